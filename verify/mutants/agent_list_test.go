//go:build mutants

package mutants

import "slices"

const (
	agentPkg    = "./cmd/spindle/internal/agent"
	agentFolder = "cmd/spindle/internal/agent/"
	cannotAct   = "TestALockIsReleasedOnlyIfItsProgramCannotAct"
	everyLoss   = "TestEveryLossIsToldAndMuted"

	inSimulation = "TestSimulation"

	placeOnce = "TestAPlaceIsGivenUpOnce"

	problemsGo    = "internal/loop/problems.go"
	rowOfFailures = "TestEachRowOfFailuresIsSaidOnce"

	gatheringGo = "internal/batch/gathering.go"
	ownWindow   = "TestAHeartbeatWaitsForItsOwnWindowAtMost"
)

var agentMutants = slices.Concat(
	of(agentPkg,
		one("the end of the stream suffices for a release", cannotAct, agentFolder+"machine.go",
			"m.streamEnd && (m.exited || m.releasesAtEOF)", "m.streamEnd"),
		one("the end of the process suffices for a release", cannotAct, agentFolder+"machine.go",
			"m.streamEnd && (m.exited || m.releasesAtEOF)", "m.exited || m.streamEnd && m.releasesAtEOF"),
		one("the lock of a program that does not read is released", cannotAct, agentFolder+"machine.go",
			"\tcase stalls:\n\t\treturn m.to(orphaned, sayLost, mute)\n", "\tcase stalls:\n\t\treturn m.to(releasing, sayLost, release)\n"),
		one("heartbeats for a program that does not read", everyLoss, agentFolder+"machine.go",
			"\tcase stalls:\n\t\treturn m.to(orphaned, sayLost, mute)\n", "\tcase stalls:\n\t\treturn m.to(orphaned, sayLost)\n"),
		one("a loss that the program is not told of", everyLoss, agentFolder+"machine.go",
			"\tcase termEnded:\n\t\treturn m.to(over, sayLost, discard, end)\n", "\tcase termEnded:\n\t\treturn m.to(over, discard, end)\n"),
		one("a doubt that never ends", "TestADoubtEndsWithALoss", agentFolder+"machine.go",
			"\t\tif m.phase == doubtful {\n", "\t\tif false {\n"),
		one("what is left is known before the clocks are read", "TestAPromiseIsNeverLaterThanTheLease", agentFolder+"hold.go",
			"\t\tnow, made := h.agent.clocks(), h.agent.clock.Now() // before the time that is left is known\n\t\tleft := h.lock.left()\n",
			"\t\tleft := h.lock.left()\n\t\tnow, made := h.agent.clocks(), h.agent.clock.Now()\n"),
		one("the next program of this agent does not wait for the last promise", "TestALostLockIsBarredUntilTheLastPromise", agentFolder+"hold.go",
			"\t\t\th.agent.barred.until(p, h.id, names)\n", "\t\t\t_ = names\n"),
		mutant{"a lock is barred only from its loss on", inSimulation, []edit{
			{agentFolder + "hold.go", "\t\t\th.agent.barred.until(p, h.id, names)\n", "\t\t\t_ = names\n"},
			{agentFolder + "hold.go", "\th.change(func(s *status) { s.lost = why.Error() })\n",
				"\th.change(func(s *status) { s.lost = why.Error(); h.agent.barred.until(s.promised, h.id, h.lock.names()) })\n"},
		}},
		one("a promise that bars the lock after the release", "TestTheNextProgramOfAnAgentHasAReleasedLockAtOnce", agentFolder+"hold.go", "\t\th.lift()\n", ""),
		one("a doubt that lasts ten seconds", inSimulation, agentFolder+"hold.go",
			"time.AfterFunc(longestDoubt, ", "time.AfterFunc(100*longestDoubt, "),
		one("a key that was only released is reported as done", "TestAReleasedKeyCannotBeDone", agentFolder+"http.go",
			"\tcase done && !s.done && s.lost == \"\":\n", "\tcase false:\n"),
		one("any program may release an orphaned lock", "TestTheLockOfADeadAgentIsReleasedByItsOwner", agentFolder+"orphan.go",
			"case !strings.HasSuffix(o.LeaseRecord.ID, \"/\"+proof):", "case false:"),
		one("a draining agent does not wait", "TestADrainingAgentWaitsForItsPrograms", agentFolder+"agent.go",
			"\t\tcase <-h.ended:\n\t\tcase <-ctx.Done():\n\t\t\treturn\n", "\t\tdefault:\n\t\t\t_ = h\n\t\t\treturn\n\t\tcase <-ctx.Done():\n"),
		one("a hold is kept for its wait", "TestAHoldIsNotKeptForItsWait", agentFolder+"hold.go",
			"h.wait.quit(errTimeout) }).Stop()", "h.wait.quit(errTimeout) })"),
		one("a body that is not sent hides that its client has gone", "TestClientsThatHaveGoneLeaveNoDescriptors", agentFolder+"http.go",
			"\treturn readsBody(mux)\n", "\treturn mux\n"),
		one("every user sees the names of locks", "TestAnotherUserHasNoPartInAHold", agentFolder+"metrics.go",
			"if c.names && j", "if j"),
		one("one program may have all holds", "TestAProgramHasHalfOfTheHolds", agentFolder+"program.go",
			"len(p.holds) >= most(ps.maxHolds, p.key)", "false"),
		one("a request counts only until it is over", "TestARequestCountsUntilItsCleanUpHasEnded", agentFolder+"program.go",
			"\t\tps.begin(h)\n\t\tdefer ps.end(h)\n", ""),
		one("one program may have all claims", "TestAProgramHasAFewClaimsInFlight", gateGo,
			"return o.name == \"\" || o.flying < mostOfOwner", "return true"),
		one("a program that has had its turn is served first again", "TestProgramsAreServedInTurn", agentFolder+"turns.go",
			"\t\t\tt.order = append(t.order, q)\n", "\t\t\tt.order = slices.Insert(t.order, 0, q)\n"),
		one("a request that waits keeps its place", "TestRequestsBeginInTurn", agentFolder+"http.go",
			"\t\tc.pass()\n", "\t\t_ = c\n"),
	),
	of("./cmd/spindle/internal/peer",
		one("an event is matched by its descriptor", "TestAnEventOfAClosedConnectionSaysNothingAboutTheNext", "cmd/spindle/internal/peer/poll_linux.go",
			"\tn := p.last + 1\n", "\tn := uint64(fd)\n"),
	),
	of("./internal/elect",
		one("a claim that has waited is sent as it was", "TestAClaimThatHasWaitedLooksAgain", "internal/elect/step.go",
			"\tif p.hasWaited() {\n", "\tif false {\n"),
		one("a claim whose ctx has ended waits on", "TestWhoLeavesTheGateKeepsNoPlace", gateGo,
			"\tcase <-ctx.Done():\n\t\tp.leave()\n", "\tcase <-ctx.Done():\n"),
		one("a claim without an answer keeps its place", "TestWhoLeavesTheGateKeepsNoPlace", gateGo,
			"g.patience(), p.leave)", "24*g.patience(), p.leave)"),
		one("a place is given up twice", placeOnce, gateGo,
			"\tif p.over {\n\t\treturn\n\t}\n", ""),
		one("an owner that has left is kept", placeOnce, gateGo,
			"\t\tdelete(p.owners, p.owner.name)\n", ""),
		one("the places are given as the claims arrive", "TestPlacesAreGivenInOrder", gateGo,
			"cmp.Compare(q.urgency, p.urgency), cmp.Compare(q.order, p.order), -1", "-1"),
		one("claims abort heartbeats", "TestClaimsWaitForHeartbeats", gateGo,
			" && g.beats == 0", ""),
		one("a late answer to a heartbeat does not count", "TestALateAnswerToAHeartbeatCounts", keepGo,
			"if a.n >= len(sent) || a.sent != sent[a.n].sent {", "if a.n != len(sent)-1 {"),
		one("a muted term that sends heartbeats", "TestAMutedTermExpires", "internal/elect/keep.go",
			"\t\tcase <-k.Mute:\n\t\t\treturn\n", ""),
		one("a candidate that does not hold off", "TestACandidateThatHoldsOffClaimsLater", "internal/elect/candidate.go",
			"\tif c.HoldOff != nil {\n", "\tif false {\n"),
		one("shared heartbeats at different times", "TestTermsInPhaseBeatTogether", "internal/elect/keep.go",
			"\tif k.InPhase {\n", "\tif false {\n"),
	),
	of("./internal/batch",
		one("heartbeats that failed share as before", "TestHeartbeatsThatFailedShareSmallerCommits", "internal/batch/commits.go",
			"maxWrites>>min(all[0].attempt, 10)", "maxWrites"),
		one("one superseded lock is the loss of all", "TestOneSupersededLockAmongManyStopsOnlyItself", "internal/batch/commits.go",
			"if len(all) > 1 && (", "if false && ("),
		one("a limit that is shared hides rows", "TestALimitNeverHidesRowsOfAnother", "internal/batch/reads.go",
			"\tif len(all) > 1 && merged.Limit > 0 && len(rows) >= merged.Limit {\n", "\tif merged.Limit = 2; false {\n"),
		one("a short window waits for a long one", ownWindow, gatheringGo,
			"if len(g.waiting) > 1 && !ends.Before(g.ends) {", "if len(g.waiting) > 1 {"),
		one("heartbeats once in progress are so for ever", ownWindow, gatheringGo,
			"\t\tg.busy--\n", ""),
		one("any answer sends the heartbeats that wait", "TestAHeartbeatWaitsForAllThatAreInProgress", gatheringGo,
			"\t\t\tanswered = nil\n", "\t\t\t_ = answered\n"),
		one("a heartbeat is sent although it was given up", "TestAHeartbeatThatWasGivenUpIsNotSent", "internal/batch/commits.go",
			"return c.ctx.Err() != nil })", "return false })"),
		one("a look passes one that waits", "TestALookJoinsOneThatWaits", gatheringGo,
			"g.busy == 0 && len(g.waiting) == 0 && ", "g.busy == 0 && "),
		one("looks once sent together always wait", "TestASingleLookDoesNotWait", gatheringGo,
			"time.Now(), len(all), g.busy+1", "time.Now(), max(g.size, len(all)), g.busy+1"),
	),
	of("./internal/loop",
		one("the first failure of a second row is said", rowOfFailures, problemsGo, "p.row, p.said = 0, nil", "p.said = nil"),
		one("the second row of failures is not said", rowOfFailures, problemsGo, "p.row, p.said = 0, nil", "p.row = 0"),
		one("one kind of failure is said for all", rowOfFailures, problemsGo, " && !p.said[kind] {", " && (p.said == nil || kind == \"\") {"),
		one("an error is the reason although there was a success", "TestAnErrorBeforeTheLastSuccessIsNotTheReason", "internal/loop/pulse.go",
			"p.last.Store(&beat{at: at})", "p.last.Store(&beat{at: at, err: p.last.Load().err})"),
	),
)
