//go:build mutants

package mutants

import "slices"

const (
	childGo         = "cmd/spindle/internal/child/child.go"
	childWatchGo    = "cmd/spindle/internal/child/vigil.go"
	childLeashGo    = "cmd/spindle/internal/child/leash.go"
	childDogGo      = "cmd/spindle/internal/child/watchdog.go"
	childOrphansGo  = "cmd/spindle/internal/child/orphans_linux.go"
	childTerminalGo = "cmd/spindle/internal/child/terminal_unix.go"
	childReportGo   = "cmd/spindle/internal/child/report_linux.go"
	childStateGo    = "cmd/spindle/internal/child/state_unix.go"
	execJobGo       = "cmd/spindle/internal/run/jobcontrol.go"
	execDeadlineGo  = "cmd/spindle/internal/run/deadlines.go"
	execGo          = "cmd/spindle/internal/run/runner.go"
	machineGo       = "cmd/spindle/internal/run/machine.go"
	holdingGo       = "cmd/spindle/internal/run/holding.go"
	execProgramGo   = "cmd/spindle/internal/run/programs.go"
	execWaitGo      = "cmd/spindle/internal/run/waiting.go"
	execOnceGo      = "cmd/spindle/internal/run/once.go"
	guardGo         = "cmd/spindle/internal/run/service.go"
	serveHTTPGo     = "cmd/spindle/internal/serve/http.go"
	serveServerGo   = "cmd/spindle/internal/serve/server.go"
	serveHistoryGo  = "cmd/spindle/internal/serve/history.go"
	serveMetricsGo  = "cmd/spindle/internal/serve/metrics.go"
	serveWireGo     = "cmd/spindle/internal/serve/wire.go"
	modelGroupGo    = "cmd/spindle/internal/model/group.go"
	modelEndingGo   = "cmd/spindle/internal/model/ending.go"
	modelNamedGo    = "cmd/spindle/internal/model/named.go"
	modelLockGo     = "cmd/spindle/internal/model/lock.go"
	competeGuardGo  = "cmd/spindle/internal/run/guard.go"
	competeFolderGo = "cmd/spindle/internal/run/lockfile.go"
	hooksGo         = "cmd/spindle/internal/run/hooks.go"
	probeGo         = "cmd/spindle/internal/health/health.go"
	systemdGo       = "cmd/spindle/internal/health/systemd.go"
	operatePruneGo  = "cmd/spindle/internal/operate/prune.go"
	operateAskGo    = "cmd/spindle/internal/operate/handover.go"
	operateBreakGo  = "cmd/spindle/internal/operate/release.go"
	connectionGo    = "cmd/spindle/internal/database/connection.go"
	completionGo    = "cmd/spindle/internal/cli/completion.go"
	followGo        = "cmd/spindle/internal/view/follow.go"
	modelPaceGo     = "cmd/spindle/internal/model/pace.go"
	doctorReadsGo   = "doctor/reads.go"
	doctorProbesGo  = "doctor/probes.go"
	doctorTermsGo   = "doctor/terms.go"
)

var (
	childMutants = of("./cmd/spindle/internal/child",
		one("a terminal is lent by a job that does not have it", "TestATerminalIsLentOnlyByWhoHasIt", childTerminalGo,
			"\tcase has != t.own:\n\t\treturn false\n", ""),
		one("a terminal is as it was before the first loan", "TestATerminalIsTakenBackFromAProgramAndFromNobodyElse", childTerminalGo,
			"\tt.mode, _ = term.GetState(int(t.file.Fd()))\n", "\tif t.mode == nil {\n\t\tt.mode, _ = term.GetState(int(t.file.Fd()))\n\t}\n"),
		one("a watchdog that was late once acts no more", "TestAWatchdogThatHasActedActsOnceMoreAtTheEndOfItsParent", childWatchGo,
			"\t\t\t\tv.act(Dead)\n", "\t\t\t\tif !acted {\n\t\t\t\t\tv.act(Dead)\n\t\t\t\t}\n"),
		one("a mark is the beginning of another", "TestWhatHasAllTheMarksIsKilled", childOrphansGo,
			"if !slices.Contains(has, e) {", "if !slices.ContainsFunc(has, func(h string) bool { return strings.HasPrefix(h, e) }) {"),
		one("a program that was killed is sent signals", "TestAProgramWhoseEndIsNotedIsSentNoSignal", childStateGo,
			"c.code, c.state.exited = code, true", "c.code, c.state.exited = code, code < 128"),
		one("a watchdog hears of the program before the deadline", "TestAWatchdogHearsTheDeadlineBeforeItHearsOfTheProgram", childGo,
			"\tif c.Until != nil { // before watch,", "\tdog.watch(c.Pid(), born(c.Pid()))\n\tif c.Until != nil { // before watch,"),
		one("a watchdog that was killed has not begun", "TestAWatchdogThatWasKilledIsGone", childDogGo, "\tdefer begun()\n", ""),
		one("a watchdog reports to a parent that does not wait", "TestAWatchdogSparesAStrangersGroupWithTheNumberOfItsOwn", childWatchGo, "return why == Told && order(", "return order("),
		one("a deadline counts from when it is read", "TestADeadlineOfAWatchdogPassesByTheClockThatIsAhead", childWatchGo,
			"return min(left-now.Since(since), time.Duration(wall-now.Wall))", "return left - now.Since(since)"),
		one("an order that did not fit is not given again", "TestAWatchdogThatDoesNotReadHearsTheOrderToActLater", childDogGo,
			"w.told = order(w.pipe, \"finish\\n\") == nil", "w.told = true\n\t\t_ = order(w.pipe, \"finish\\n\")"),
		one("a watchdog is up to a second late", "TestAWatchdogActsEachTimeItsParentIsLate", childWatchGo,
			"\t\tif !acted {\n", "\t\tif acted {\n"),
		one("a stopped watchdog does not hear the order to act", "TestAWatchdogThatIsStoppedObeysTheOrderToAct", childDogGo,
			"\tgoOn(w.process)\n\tselect {", "\tselect {"),
		one("a service inherits its watchdog's files", "TestWhatAWatchdogStartsInheritsNoneOfItsFiles", "cmd/spindle/internal/child/group_unix.go",
			"\tsyscall.CloseOnExec(first)\n", ""),
		one("a stop from before the program was continued", "TestAReportOfAStopMayComeTooLate", childStateGo,
			"r.taken && r.err == nil; r = wait(c.Pid(), syscall.WNOHANG) {", "r.taken && r.err == nil; r.taken = false {"),
		one("a report of a stop is taken too early", "TestAReportOfAStopMayComeTooLate", childReportGo,
			"|unix.WNOWAIT", ""),
		one("a program that was continued counts as stopped", "TestAStopEndsWhenTheProgramIsContinued", childStateGo,
			"\tc.state.stopped = nil\n", ""),
		one("a watchdog of a program that can't be run is kept", "TestAProgramThatCanNotBeRunLeavesNoProcess", childGo,
			"<-started); err != nil {\n\t\tc.unleash()\n", "<-started); err != nil {\n"),
		one("a program begins by the deadline of before its start", "TestAProgramBeginsByTheDeadlineAtTheEndOfItsStart", childGo,
			"\t\tdog.Allow(c.Until())\n", ""),
		one("a watchdog that kills a stranger's group", "TestAWatchdogSparesAStrangersGroupWithTheNumberOfItsOwn", childWatchGo,
			"\tif !v.strange() {", "\tif true {"),
		one("a watchdog that learns by itself whose group it watches", "TestAWatchdogKnowsItsGroupFromItsParent", childWatchGo,
			"_, v.leader, _ = strings.Cut(strings.TrimPrefix(order, \"watch \"), \" \")", "_, v.leader = strings.Cut, born(v.group)"),
		one("a program that has exited is sent signals", "TestAProgramThatHasExitedIsSentNoSignal", childGo,
			"\tif !c.state.exited {\n", "\tif true {\n"),
		one("what left the group lives on", "TestWhatHasLeftTheGroupEndsWithTheProgram", childGo,
			"if c.Whole {\n\t\tc.strays", "if false {\n\t\tc.strays"),
		one("the end of a program kills other children", "TestTheEndOfAProgramSparesOtherChildren", childOrphansGo,
			" || family.pids[p.PID] {", " {"),
		one("one mark is enough", "TestWhatHasAllTheMarksIsKilled", childOrphansGo,
			"for _, e := range entries {", "for _, e := range entries[:1] {"),
		one("another watchdog has a deadline of its own", "TestAnotherWatchdogKnowsTheDeadline", childLeashGo,
			"c.Watch(*l.dog.until.Load())", "c.Watch(time.Now().Add(time.Minute))"),
		one("another watchdog does not know the program", "TestAnotherWatchdogKnowsTheDeadline", childLeashGo,
			"\tdog.watch(c.Pid(), l.leader)\n", ""),
		one("a stopped watchdog misses the deadline", "TestAWatchdogThatWasStoppedGoesOn", childDogGo,
			"\t\tgoOn(w.process) // a", "\t\t// a"),
	)

	execMutants = of("./cmd/spindle/internal/run",
		one("a program is signaled at each look", "TestAProgramIsSignaledOnceAndKilledInTimeWhateverHappens", execDeadlineGo,
			"case !d.told && left", "case left"),
		one("a long lease is cut by a twentieth", "TestAProgramIsSignaledOnceAndKilledInTimeWhateverHappens", execDeadlineGo,
			"min(d.lease/20, time.Second)", "d.lease / 20"),
		one("a signal waits for the pause of an outage", "TestASignalEndsAWaitAtOnceWhateverExecWaitsFor", "cmd/spindle/internal/run/waiting.go",
			"elect.Sleep(ctx, w.config.Clock, step.Pause)", "elect.Sleep(context.WithoutCancel(ctx), w.config.Clock, step.Pause)"),
		one("work that was done elsewhere is reported as undone", "TestExecTellsEachTurnFromItsBeginningToItsEnd", execProgramGo,
			"h.put(event{what: done, end: *over})", "h.put(event{what: unable, end: *over})"),
		one("a program that starts though its lock came too late", "TestAProgramDoesNotStartOnceTheWaitIsOver", machineGo,
			"case m.signal != nil || e.late:", "case m.signal != nil:"),
		one("a claim comes before the signal of the same instant", "TestASignalComesBeforeAClaim", execGo,
			"for len(r.signals) > 0 {", "for false {"),
		one("a wait that ends when its timer runs", "TestAProgramDoesNotStartOnceTheWaitIsOver", execGo,
			"e.late = !r.until.IsZero() && !r.began.Before(r.until)", "e.late = false"),
		one("the wait's end hides a signal", "TestOfTwoEventsAtTheSameInstantEitherMayComeFirst", machineGo,
			"case m.signal != nil && t.exited == nil:", "case m.signal != nil && t.exited == nil && !t.tooLate:"),
		one("a lock that is lost during a handover is handed over", "TestOfTwoEventsAtTheSameInstantEitherMayComeFirst", machineGo,
			"return m.turn.yielded && m.turn.lost == nil", "return m.turn.yielded"),
		one("a handover that is announced again at the second signal", "TestTheFirstSignalIsAnnouncedAndTheSecondPassedOnAtOnce", machineGo,
			"case m.handover && m.phase == running && m.turn.active:", "case m.handover && m.turn.active:"),
		one("a lock that is lost before the start waits for a signal", "TestWhileItAsksWhatIsDueExecNoticesALossAndASignal", machineGo,
			"\tcase lost:\n\t\treturn m.abandon(e.err)\n", ""),
		one("a program that starts under a lock that is lost", "TestALeaseThatIsOverAfterASuspensionIsOver", execProgramGo,
			"if !h.Held() {", "if false {"),
		one("a lock that is lost when its program ends was held", "TestALeaseThatIsOverAfterASuspensionIsOver", holdingGo,
			"case !h.Held():", "case false:"),
		one("a program that had to end has done it", "TestOnlyAProgramThatSucceedsByItselfHasDoneIt", machineGo,
			"\tcase late:\n\t\tm.turn.unfit = cmp.Or(m.turn.unfit, errLate)\n", "\tcase late:\n"),
		one("a watchdog that knows only the first deadline", "TestTheWatchdogKnowsUntilWhenTheLockIsHeld", execProgramGo,
			"\t\tn.Allow(n.watched())\n", ""),
		one("a program has its grace period after a suspension", "TestALeaseThatIsOverAfterASuspensionIsOver", execProgramGo,
			"\t\tp.program.expire(now)\n", "\t\tp.program.lose(now)\n"),
		one("a suspension does not shorten the time of a program", "TestADeadlineMovesBack", "cmd/spindle/internal/run/deadlines.go",
			" || until.Before(d.until)) {", ") {"),
		one("a program that has all of the lease after a loss", "TestAProgramIsGoneBeforeTheNextOneStarts", execProgramGo,
			"\t\tp.program.lose(now)\n", ""),
		one("a program that reads is left without the terminal", "TestExecStopsWithItsProgram", execJobGo,
			"case asksForTerminal(s) && p.lend():", "case false:"),
		one("exec goes on while its program is stopped", "TestExecStopsWithItsProgram", execJobGo,
			"case p.terminal != nil && !p.m.announcesEnd() && p.suspend():", "case false:"),
		one("exec stops before it has handled a signal", "TestASignalComesBeforeAStop", execGo,
			"\t\tlast = event{what: paused}\n", "\t\tr.edge.hears(event{what: paused})\n"),
		one("exec stops while it announces that it will end", "TestExecDoesNotStopBeforeItHasPassedASignalOn", execJobGo,
			"case p.terminal != nil && !p.m.announcesEnd() && p.suspend():", "case p.terminal != nil && p.suspend():"),
		one("a program that goes on has lost the terminal", "TestExecStopsWithItsProgram", execJobGo,
			"if had {", "if had && p.program == nil {"),
		one("a key stops what nobody lets go on", "TestWithoutAShellNobodyIsStoppedByAKey", execJobGo,
			"case p.terminal != nil && s == keyStop:", "case false:"),
		one("a key ends the program and not exec", "TestAKeyEndsExecWithItsProgram", execProgramGo,
			"key = interrupt(p.program.Code())", "_ = interrupt"),
		one("a terminal stays as a killed program left it", "TestAKeyEndsExecWithItsProgram", execProgramGo,
			"TakeBack(p.program.Code() > 128)", "TakeBack(false)"),
		one("a program that is stopped keeps the lock", "TestAProgramThatIsStoppedForALeaseGivesTheLockUp", execJobGo,
			"\t\tn.stalls = time.Now().Add(p.lease)\n", ""),
		one("a program that went on counts as stopped", "TestAProgramThatIsStoppedForALeaseGivesTheLockUp", execJobGo,
			"\tn.stalls = time.Time{}\n", ""),
		one("heartbeats extend the grace of an unfit program", "TestAProgramThatIsStoppedForALeaseGivesTheLockUp", execDeadlineGo,
			"\td.final = true\n", ""),
		one("heartbeats during a start do not count", "TestAProgramThatTakesLongerThanALeaseToStartBeginsUnderItsLock", execProgramGo,
			"\t\tn.extend(time.Now(), h.Left())\n", "\t\tif n.until.IsZero() {\n\t\t\tn.extend(time.Now(), h.Left())\n\t\t}\n"),
		one("a signal to end waits until a stopped program goes on", "TestASignalLetsAProgramThatIsStoppedGoOn", execProgramGo,
			"\t\tp.program.Continue()\n", ""),
		one("a program that does not end has all the time", "TestAProgramThatDoesNotEndInTimeIsKilled", execProgramGo,
			"\t\t\tp.program.stopBy = time.Now().Add(p.limit)\n", ""),
		one("each signal begins the time of a program anew", "TestAProgramThatDoesNotEndInTimeIsKilled", execProgramGo,
			"p.limit > 0 && p.program.stopBy.IsZero()", "p.limit > 0"),
		one("a program that was signaled keeps the time that it had", "TestADeadlineMovesBack", execDeadlineGo,
			"(forward || until.Before(d.until))", "(forward || !d.told && until.Before(d.until))"),
		one("a program goes on without a watchdog", "TestAProgramHasAnotherWatchdogOrEnds", execProgramGo,
			"\tcase err != nil:\n\t\treturn event{what: unfit, err: fmt.Errorf(\"the watchdog", "\tcase false:\n\t\treturn event{what: unfit, err: fmt.Errorf(\"the watchdog"),
		one("an unfit program has done it", "TestOnlyAProgramThatSucceedsByItselfHasDoneIt", machineGo,
			"\tcase unfit:\n\t\tm.turn.unfit = e.err\n\t\treturn m.stop", "\tcase unfit:\n\t\treturn m.stop"),
		one("a loss that is said again and again", "TestEachLossIsToldOnce", holdingGo, " && !h.told {", " {"),
		one("a program that outlives its lock silently", "TestAProgramThatOutlivesItsLockIsToldOnce", execProgramGo, "case n.told && !now.Before(n.until) && !p.term.Held():", "case false:"),
		one("a request counts in the next turn", "TestOfTwoEventsAtTheSameInstantEitherMayComeFirst", machineGo,
			"m.phase, m.turn = waiting, turn{}", "m.phase, m.turn = waiting, turn{yielding: yielding{by: m.turn.by}}"),
		one("the second watchdog is not replaced", "TestAProgramHasAnotherWatchdogOrEnds", execProgramGo,
			"\t\tp.unwatched = p.program.Unwatched()\n", ""),
		one("the pause after a turn counts from the first one", "TestAProgramIsRunAgainAfterOthersHadTheirTurn", execGo,
			"r.term, r.began = hold(e.term, r.of.lease()/3, r.events), time.Now()", "r.term = hold(e.term, r.of.lease()/3, r.events)\n\t\tif r.began.IsZero() {\n\t\t\tr.began = time.Now()\n\t\t}"),
		one("the pause for others is a part of the wait", "TestAProgramIsRunAgainAfterOthersHadTheirTurn", execProgramGo,
			"Add(limit + pause)", "Add(limit)"),
		one("a lock that is released before its program has ended", "TestAProgramThatDoesNotEndInTimeIsKilled", machineGo,
			"\tcase overstayed:\n\t\treturn m.stop(action{do: kill})\n", "\tcase overstayed:\n\t\treturn m.giveUp()\n"),
		one("an exec that cools down queues", "TestAnExecThatLeavesTheLockToOthersDoesNotQueueForIt", execWaitGo,
			" || step.CoolingDown {", " {"),
		one("a signal keeps a slot that may be unknown", "TestASlotThatMayBeUnknownIsGivenBackHoweverTheWaitEnds", execWaitGo,
			"step.Term.Release(context.WithoutCancel(ctx), errGivenUp)", "step.Term.Release(ctx, errGivenUp)"),
		one("a won wait deletes its ticket again", "TestAProgramDoesNotWaitForTheQueueOnceTheLockIsHeld", execWaitGo,
			"w.place != nil && !won && ", "w.place != nil && "),
		one("a key is chosen at each poll", "TestAnExecKeepsItsKeyWhileItWaits", execOnceGo,
			"\tif x.todo.Key == \"\" {\n\t\tif err", "\tif true {\n\t\tif err"),
		one("a key that can't be compared is done", "TestWhatWasDoneLastDecidesWheneverExecLearnsOfIt", execOnceGo,
			"\tdefault:\n\t\treturn &terminal.Exit{Code: terminal.Failed, Err: fmt.Errorf(\"%s: %w\", x.name, err)}\n", "\tdefault:\n"),
		one("each wait is shortened by what came before the first", "TestEachWaitIsAsLongAsTheUserAllows", execProgramGo,
			"limit, trouble = limit-p.waited, p.trouble\n", "trouble = p.trouble\n\t}\n\tswitch limit -= p.waited; how {\n"),
		one("an outage that is over is why the wait failed", "TestTheEndOfAWaitSaysWhatIsKnown", holdingGo,
			"trouble = r.of.Explain(step.Err)", "trouble = cmp.Or(r.of.Explain(step.Err), trouble)"),
		one("a key between two programs is for the first", "TestEachProgramIsLookedAfterLikeTheFirst", execProgramGo,
			"\tp.program = nil\n", ""),
		one("every signal continues a stopped program", "TestASignalThatEndsNothingLeavesAProgramStopped", execProgramGo,
			"\t\tif !ends(a.signal) {\n\t\t\treturn\n\t\t}\n", ""),
		one("every failed request is a failed heartbeat", "TestAProbeFollowsExecThroughItsTurns", "cmd/spindle/internal/run/reports.go",
			"err != nil && step == \"heartbeat\"", "err != nil"),
	)

	guardMutants = of("./cmd/spindle/internal/run",
		one("a stop hides that a deactivation fails", "TestAServiceThatCanNotBeDeactivatedIsShownAsSuchWhateverHappens", guardGo,
			"\tif e.command != 0 {\n\t\ts.retry", "\tif e.what != nothing {\n\t\ts.retry"),
		one("guards of two tables wait for each other", "TestGuardsWaitForEachOtherIfTheyManageTheSameService", competeFolderGo,
			"g.Path, g.Table, g.name", "g.Path, g.name"),
		one("a service that is being activated is announced", "TestAGuardThatIsStoppedEndsAsFastAsItsStateAllows", machineGo,
			"m.phase == running && m.turn.active:", "m.phase == running:"),
		one("heartbeats do not extend the watchdog's deadline", "TestEachHeartbeatOfAGuardExtendsTheDeadlineOfItsWatchdog", guardGo,
			"h.Interval, h.beat = s.renew, s.service.Extended", "h.Interval = s.renew"),
		one("a command does not wait for the end of the one before", "TestGuardAtEachMoment", guardGo, "\t<-s.finished\n", ""),
		one("checks that failed on standby count when active", "TestChecksThatFailedOnStandbyDoNotCountWhenActive", "cmd/spindle/internal/run/checks.go",
			"if err == nil || as != of {", "if err == nil || as != of && false {"),
		one("an exec does not look at the sizes of the other holders", "TestExecsAndPermitsOfDifferentSizesShareASemaphore", "cmd/spindle/internal/run/waiting.go",
			"\tif known {\n", "\tif known || true {\n"),
		one("an exec keeps a slot that another holder does not know", "TestASlotThatAHolderDoesNotKnowIsGivenBackBeforeTheProgramStarts", "cmd/spindle/internal/run/waiting.go",
			"if err := step.Term.Release(context.WithoutCancel(ctx), errGivenUp); err != nil {", "if step.Term.End(errGivenUp); err != nil {"),
		one("an exec asks once whether its slot is known", "TestAReadThatFailsOnceCostsNoSlot", "cmd/spindle/internal/run/waiting.go",
			"slot); x.atOnce || errors.Is(err, table.ErrNewer) {", "slot); true {"),
		one("an exec waits for its own slot", "TestAnExecInTheOnlySlotThatAllKnowWaitsForItself", "cmd/spindle/internal/run/waiting.go",
			"return seen[:w.slots.Common(seen)]", "return seen"),
		one("an exec picks a slot that a holder does not know", "TestASlotThatAHolderDoesNotKnowIsGivenBackBeforeTheProgramStarts", slotsGo,
			"common := s.Common(seen)\n", "common := len(s.Names)\n"),
		one("an unhealthy machine competes again at once", "TestAMachineOnWhichTheServiceFailsLeavesTheLockToOthersForALease", machineGo,
			"m.service && m.turn.unfit == nil {", "m.service {"),
		one("an unsettled lock is released", "TestAnUnsettledLockIsNotReleased", machineGo,
			"\tif m.turn.unsettled {\n\t\treturn m.abandon(errUnsettled)\n\t}\n", ""),
		one("a machine that failed once competes late for ever", "TestAMachineOnWhichTheServiceFailsLeavesTheLockToOthersForALease", machineGo,
			"m.phase, m.turn = waiting, turn{}", "m.phase, m.turn = waiting, turn{unfit: m.turn.unfit}"),
		one("a deactivation that failed once is shown to fail for ever", "TestUsersAreShownEachState", guardGo,
			"s.retry = e.what == notExited", "s.retry = s.retry || e.what == notExited"),
		one("an earlier command counts", "TestWhatIsReportedTooLateChangesNothing", guardGo,
			"e.command != s.number {", "e.command > s.number {"),
		one("a machine that was sick on standby never competes again", "TestASickServiceGivesTheLockUpAtOnce", guardGo,
			"\t\t\ts.well = well\n", "\t\t\ts.well = s.well && well\n"),
		one("a loss that nobody hears of", "TestEachLossIsToldOnce", execGo, "\t\tr.reportLoss(r.term, e.err)\n", ""),
		one("a loop that is not asked", "TestUsersAreShownEachState", execGo, "\tcase <-r.of.asks:\n", ""),
		one("a service that is activated after a stop", "TestGuardAtEachMoment", machineGo,
			"case m.signal != nil || e.late:", "case e.late:"),
	)

	hooksMutants = of("./cmd/spindle/internal/run",
		one("two hooks of a kind run at a time", "TestAtMostOneHookOfAKindRunsAtATime", hooksGo, "; running {", "; running && false {"),
		one("the end waits for hooks for ever", "TestTheEndWaitsForHooksOnlyAsLongAsTheyMayRun", hooksGo, "\t\t\tif ends(s) {\n", "\t\t\tif ends(s) && h == nil {\n"),
	)

	probeMutants = of("./cmd/spindle/internal/health",
		one("a holder is ready", "TestEachPartOfAReportIsAnsweredForItself", probeGo, "answer(w, now.Ready, now.Why)", "answer(w, now.Held, now.Why)"),
		one("an answer is of two moments", "TestAnAnswerIsOfOneMoment", probeGo, "answer(w, now.Ready, now.Why)", "answer(w, now.Ready, p.report().Why)"),
		one("a loop that hangs is alive", "TestAProcessIsAliveAsLongAsItsLoopAnswersWithinASecond", probeGo, "answer(w, false, fmt.Sprintf(", "answer(w, true, fmt.Sprintf("),
	)

	systemdMutants = of("./cmd/spindle/internal/health",
		one("a report replaces a status", "TestTheLastWordReachesSystemd", systemdGo, "variable+\"=\")", "\"STATUS=\")"),
		one("pings without a pause", "TestBetweenTwoPingsTheLoopIsLeftAlone", systemdGo,
			"asks, next = nil, time.After(u.ping)", "_ = next"),
		one("a status that is an assignment of its own", "TestAStatusIsOneLine", systemdGo, "terminal.Escape(text)", "text"),
	)

	serveMutants = of("./cmd/spindle/internal/serve",
		one("serve that is stopped in its first read has failed", "TestServeThatIsInterruptedHasNotFailed", "cmd/spindle/internal/serve/serve.go",
			"\tcase ctx.Err() != nil:\n\t\treturn <-ended\n", ""),
		one("a slow page sends frames that have moved", "TestFramesThatAPageHasTakenStayAsTheyAre", "cmd/spindle/internal/serve/feed.go",
			"f.frames = append([][]byte(nil), f.frames[1:]...)", "copy(f.frames, f.frames[1:])\n\t\tf.frames = f.frames[:maxBehind]"),
		one("a lock that had expired is not read again", "TestAPageSaysWhatBecameOfALockThatWasTaken", serveHistoryGo,
			"if h.skips && k.isTaken() {", "if h.skips && k.IsHeld() {"),
		one("merged terms are all the last holder's", "TestMergedTermsSayWhatIsTrueOfAllOfThem", serveHistoryGo,
			"if a.holder != b.holder {", "if a.holder != b.holder && b.holder == \"\" {"),
		mutant{"nothing is answered while a read hangs", "TestALookEndsWithItsTimeoutOrWithTheCommand", []edit{
			{serveServerGo, "\tbegan := time.Now()\n", "\tbegan := time.Now()\n\ts.mu.Lock()\n"},
			{serveServerGo, "s.history.names()...)\n\tif", "s.history.names()...)\n\ts.mu.Unlock()\n\tif"},
		}},
		one("an outage that never ends", "TestWhatIsOutOfDateIsNotSaid", serveServerGo,
			"if s.away = err; err == nil {", "if err != nil {\n\t\ts.away = err\n\t}\n\tif err == nil {"),
		one("a host that ends like an allowed one", "TestOnlyThisMachinesNamesAreAnswered", serveHTTPGo,
			"return strings.EqualFold(h, host) })", "return strings.HasSuffix(strings.ToLower(host), strings.ToLower(h)) })"),
		one("merged terms don't reach the open pages", "TestTermsThatWereMergedReachThePagesThatAreOpen", serveHistoryGo,
			"\t\t\tk.merge()\n\t\t\tunchanged = 0\n", "\t\t\tk.merge()\n\t\t\tunchanged = len(k.terms) - 1\n"),
		one("the end of a term does not reach the open pages", "TestTermsThatWereMergedReachThePagesThatAreOpen", serveHistoryGo,
			"model.Ending(k.Listing, l)\n\t\tunchanged--\n", "model.Ending(k.Listing, l)\n"),
		one("a table that was never read is up", "TestWhatIsOutOfDateIsNotSaid", serveMetricsGo,
			"if s.stale() != nil {\n\t\tall.add(descUp", "if !s.looked.IsZero() && s.stale() != nil {\n\t\tall.add(descUp"),
		one("one slow read puts the next one off", "TestALargeTableIsReadLessOften", modelPaceGo,
			"min(d, p.last)", "max(d, p.last)"),
		one("a large table is read all the time", "TestALargeTableIsReadLessOften", modelPaceGo,
			"time.Duration(p.Share-1)*slow", "slow"),
		one("the end of a term that was forgotten is sent", "TestALockThatIsTakenHoursAfterItExpiredIsShown", serveHistoryGo,
			"\t\tt.tail = min(t.tail, len(k.terms)) //", "\t\t//"),
		one("another first waiter is not told", "TestAPageThatIsOpenShowsTheSameAsOneThatIsOpenedNow", serveHistoryGo,
			" || waitingSince(k.Listing) != waitingSince(l)", ""),
		one("a page has no successor", "TestAPageShowsWhatIsInTheTable", serveWireGo,
			"\t\tw.Successor = id\n", "\t\t_ = id\n"),
		one("a group without a holder counts its paused partitions", "TestMetricsSayWhatIsInTheTable", serveMetricsGo,
			"float64(g.JSON.WithoutHolder)", "float64(g.JSON.Paused)"),
		one("an interrupted read is an outage", "TestALookEndsWithItsTimeoutOrWithTheCommand", serveServerGo,
			"\tif ctx.Err() != nil {\n\t\treturn ctx.Err()\n\t}\n", ""),
	)

	modelMutants = of("./cmd/spindle/internal/model",
		one("the holder of an expired lock notifies waiters", "TestNobodyIsNotifiedOfALockWithoutAHolder", modelLockGo,
			"\tcase !l.IsHeld():\n", "\tcase l.LeaseRecord == nil:\n"),
		one("a group that is expired and has members", "TestTheStateOfAGroupIsThatOfItsMembersAndPartitions", modelGroupGo,
			"case here > 0 || held > 0:", "case held > 0:"),
		one("a term that ended with its lease was released", "TestTwoReadsShowWhyATermEnded", modelEndingGo,
			"case !end.Before(expiry):", "case end.After(expiry):"),
		one("a group that can't be read is free", "TestALockIsReadByItsNameAndAGroupIsNotTakenForIt", modelNamedGo,
			"\t\treturn err\n\t}\n\treturn terminal.Misuse(\"%[1]s is", "\t\treturn nil\n\t}\n\treturn terminal.Misuse(\"%[1]s is"),
		one("a released lock has the token of a term", "TestTheJSONOfALockHasWhatIsKnownAndNoMore", modelLockGo,
			"l.Token == 0 || l.Exists && l.Heartbeat.IsZero()", "l.Token == 0"),
	)

	viewMutants = of("./cmd/spindle/internal/view",
		one("a signal in the first read of watch is a failure", "TestAFollowerEndsAtOnce", followGo,
			"\t\tcase ctx.Err() != nil:\n", "\t\tcase last != \"\" && ctx.Err() != nil:\n"),
		one("watch complains at every look that fails", "TestAWatchedListGoesOnThroughAnOutage", followGo,
			"if !failing.Swap(true) {", "if failing.Store(true); true {"),
		one("watch says nothing of a look that hangs", "TestALookThatHangsIsSaidInWatch", followGo,
			"\t\tlate := time.AfterFunc(f.patience", "\t\tlate := time.AfterFunc(time.Hour*1000"),
		one("a signal does not end a read of watch", "TestAFollowerEndsAtOnce", followGo,
			"f.once(ctx, t)", "f.once(context.WithoutCancel(ctx), t)"),
		one("ls --watch does not say why a read has failed", "TestAReadOfAListThatTakesTooLongIsSaidWithItsReason", "cmd/spindle/internal/view/lswatch.go",
			"patience: ls.Timeout + time.Second", "patience: ls.Timeout"),
		one("ls --watch forgets released locks", "TestLsListsExactlyWhatItIsAskedFor", "cmd/spindle/internal/view/lswatch.go",
			"ls.selected.prefix, ls.selected.idle())", "ls.selected.prefix, false)"),
		one("the first of some moves gives the time of all", "TestAMoveSaysWhenItsLastPartitionMoved", "cmd/spindle/internal/view/changes.go",
			"at.After(of.at)", "of.at.IsZero()"),
		one("status asks a leaving holder's row for its id", "TestStatusAnswersWhoHoldsTheLock", "cmd/spindle/internal/view/status.go",
			"!isHolder(l.Holder(), a.id)", "!isHolder(l.Writer, a.id)"),
		one("a member has joined when it got its token", "TestMembersShowsWhoIsInTheGroup", "cmd/spindle/internal/view/members.go",
			"cmp.Or(l.LeaseRecord.Since, l.Token)", "cmp.Or(l.Token, l.LeaseRecord.Since)"),
	)

	terminalMutants = of("./cmd/spindle/internal/terminal",
		one("a second SIGHUP kills a command that is stopping", "TestASignalEndsACommandAndASecondOneKillsIt", "cmd/spindle/internal/terminal/exit.go",
			"\t\t\tfor range hangUp {\n\t\t\t\tcancel()\n\t\t\t}\n", "\t\t\t<-hangUp\n\t\t\tsignal.Stop(hangUp)\n\t\t\tcancel()\n"),
		one("programs inherit that SIGPIPE is ignored", "TestACommandOutlivesItsReaders", "cmd/spindle/internal/terminal/exit.go",
			"signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)", "signal.Ignore(syscall.SIGPIPE)"),
		one("a table that just fits is not one of single lines", "TestATableIsLaidOutAsWideAsTheTerminalIs", "cmd/spindle/internal/terminal/columns.go",
			"c.widths[0]+rest+2+tail <= p.Width", "c.widths[0]+rest+2+tail < p.Width"),
		one("a process can't end while nobody reads its messages", "TestFlushWaitsForMessagesButNotForLong", "cmd/spindle/internal/terminal/journal.go",
			"\tcase o.lines <- written:\n\tcase <-late:\n\t\treturn false\n", "\tcase o.lines <- written:\n\tcase <-late:\n\t\treturn true\n"),
	)

	operateMutants = of("./cmd/spindle/internal/operate",
		one("the timeout of prune is for all requests", "TestALargeTableIsPrunedThroughASlowProxy", operatePruneGo,
			"\tt = patient(t, p.Timeout)\n", "\tt = patient(t, p.Timeout)\n\tctx, cancel := context.WithTimeout(ctx, p.Timeout)\n\tdefer cancel()\n"),
		one("a request of prune without a timeout", "TestARequestOfPruneThatIsNotAnsweredEndsIt", operatePruneGo,
			"\tt = patient(t, p.Timeout)\n", ""),
		one("an interrupted prune goes on", "TestAnInterruptedPruneStopsAndSaysHowFarItCame", operatePruneGo,
			"operator.Prunable(ctx, t, p.ages)", "operator.Prunable(context.WithoutCancel(ctx), t, p.ages)"),
		one("prune forgets the batches before the last one", "TestPruneSaysWhatItDid", operatePruneGo,
			"n += len(tickets)", "n = len(tickets)"),
		one("names that can't be written are lost", "TestNoOutputIsLostWithoutAFailure", operatePruneGo,
			"\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\treturn nil\n", "\t\t_ = err\n\t}\n\treturn nil\n"),
		one("an old token releases the term of a later holder", "TestOnlyTheTermThatIsMeantCanBeReleased", operateBreakGo,
			"case l.Token != token:", "case l.Token < token:"),
		one("a release that leaves no trace", "TestAReleaseChangesNoOtherTerm", operateBreakGo,
			"t.Break(ctx, token, l.Name)", "t.Release(ctx, token, l.Name)"),
		one("an old token asks a later holder for a handover", "TestOnlyAHolderOfTheTermThatIsMeantIsAskedForAHandover", operateAskGo,
			"l.Token != table.Token(h.token):", "l.Token < table.Token(h.token):"),
		one("doctor counts one check of each verdict", "TestAReportIsPrintedWhole", "cmd/spindle/internal/operate/doctor.go",
			"counts[c.Verdict]++", "counts[c.Verdict] = 1"),
	)

	databaseMutants = of("./cmd/spindle/internal/database",
		one("notifications are heard at all addresses", "TestACommandHearsNotificationsAtTheAddressThatItWasGiven", "cmd/spindle/internal/database/notifications.go",
			"net.JoinHostPort(host, \"0\")", "net.JoinHostPort(host[:0], \"0\")"),
		one("each call replaces the client that another call has replaced", "TestOneClientReplacesTheOneThatAllCallsHave", connectionGo,
			"\tif c.db == db { //", "\tif db != nil { //"),
		one("a client that has lost its session is left open", "TestAClientThatHasLostItsSessionIsReplaced", connectionGo,
			"\t\t\tdb.Close()\n", ""),
		one("a client in vain: the call is repeated with the old one", "TestAClientThatHasLostItsSessionIsReplaced", connectionGo,
			"table.Spanner{DB: c.Client(), Table: c.table}", "table.Spanner{DB: db, Table: c.table}"),
	)

	cliMutants = of("./cmd/spindle/internal/cli",
		one("a shell completes the second of three names", "TestAShellOffersWhatIsInTheTable", completionGo,
			"strings.LastIndexByte(begun", "strings.IndexByte(begun"),
	)

	competeMutants = of("./cmd/spindle/internal/run",
		one("a lock file in a folder that others can write to", "TestNoOtherUserHasAHandInTheFolderOfTheLockFile", competeFolderGo,
			"&0o022 != 0", "&0o002 != 0"),
		one("a lock file in another user's folder", "TestNoOtherUserHasAHandInTheFolderOfTheLockFile", competeFolderGo, "case owner(info) != a.uid:", "case false:"),
		one("a program that outlived its lock is reported for ever", "TestAProgramThatOutlivesItsLockIsToldOnce", execProgramGo,
			"\tp.ranOut()\n", ""),
		one("a service that could be deactivated stays stuck", "TestAServiceIsStuckUntilItIsDeactivated", competeGuardGo,
			"\t\tg.ranOut()\n", "\t\t_ = 0\n"),
		one("a guard that leaves its watchdog", "TestNothingIsLeftOfACommandOfGuardThatCanNotBeStarted", competeGuardGo,
			"\t\terr = dog.Finish(ctx)\n", ""),
	)

	doctorMutants = of("./doctor",
		one("a clock that may be too slow is ok", "TestAClockIsOkIfItIsKnownNotToBeTooSlow", doctorReadsGo,
			"c.Within <= maxDrift && c.Drift+c.Within <= maxDrift", "c.Within <= maxDrift"),
		one("commit timestamps that repeat are in order", "TestTimestampsGrowAndAreStoredAsTheyWereReturned", doctorProbesGo,
			"case !at.After(last):", "case at.Before(last):"),
		one("strong reads that are a little behind", "TestReadsAdvanceWhileNothingIsWritten", doctorReadsGo,
			"case worst > 0:\n\t\trefute(\"the timestamp of a strong", "case worst > time.Second:\n\t\trefute(\"the timestamp of a strong"),
		one("a commit that is refused may change a row", "TestACheckFindsWhateverIsBroken", doctorProbesGo,
			"\tcase e.row(name) != before:\n\t\trefute(\"a refused commit changed a row\")\n", ""),
		one("a partition of a member that left is refused for any reason", "TestACheckFindsWhateverIsBroken", doctorTermsGo,
			" || spanner.ErrCode(err) == codes.NotFound && !overrun(err)\n", " || err != nil\n"),
		one("a row that is returned for another counts", "TestACheckFindsWhateverIsBroken", doctorTermsGo,
			"\t\tif there[row.Name] {\n", "\t\tif row.Name != \"\" {\n"),
		one("a clock is not compared again", "TestTheClockIsComparedForAsLongAsItTakes", doctorReadsGo,
			"\t\tc = compare(longestComparison - c.Over)\n", ""),
	)

	commandMutants = slices.Concat(childMutants, execMutants, guardMutants, hooksMutants, probeMutants, systemdMutants, serveMutants, modelMutants, competeMutants, operateMutants,
		doctorMutants, viewMutants, databaseMutants, cliMutants, terminalMutants)
)
