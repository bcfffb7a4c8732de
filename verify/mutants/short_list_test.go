//go:build mutants

package mutants

// shortMutant is a mutant that a test without an emulator must catch, outside the elector's simulation.
type shortMutant struct {
	mutant
	pkg string // of the test
}

const (
	orders      = "TestNoOrderOfEventsReleasesALockBeforeItsWorkHasReturned"
	contenderGo = "lock/contender.go"
	waitGo      = "lock/wait.go"
	lockHoldGo  = "lock/holding.go"

	preferenceIgnored = "TestAPreferenceIsIgnoredUntilOneHasKeptTheLock"
	rowsAnew          = "TestASuccessBeginsTheRowsAnew"
	announcedEnd      = "TestAnAnnouncementEndsWithRunUnlessThatIsAnnounced"
	stepDownAtEnd     = "TestAStepDownAtTheEndOfATermIsAnswered"
	newTerms          = "TestANewTermsDeadlineCountsFromBeforeTheRequestThatWonIt"
	deadlines         = "TestADeadlineCountsFromTheSendingOfTheLastHeartbeatThatWasAcknowledged"
	disownsNothing    = "TestACandidateThatKnowsWhatBecameOfItsClaimDisownsNothing"

	heldGo      = "lock/held.go"
	mutexGo     = "lock/mutex.go"
	doGo        = "lock/do.go"
	queueGo     = "lock/queue.go"
	seekGo      = "lock/seek.go"
	semaphoreGo = "lock/semaphore.go"
	slotsGo     = "internal/wait/slots.go"
	setGo       = "lock/set.go"
	onceGo      = "lock/once.go"
	doneGo      = "internal/table/done.go"
	nameGo      = "internal/table/key.go"
	stepGo      = "internal/elect/step.go"
	seenGo      = "seen.go"
	healthGo    = "health.go"
	standingGo  = "internal/telemetry/standing.go"
	rpcGo       = "internal/telemetry/rpc.go"
)

func of(pkg string, mutants ...mutant) []shortMutant {
	all := make([]shortMutant, len(mutants))
	for i, m := range mutants {
		all[i] = shortMutant{m, pkg}
	}
	return all
}

// Here, breaks is the test that must fail.
var (
	lockMutants = of("./lock",
		one("the next goroutine goes before the lock is given back", "TestTheNextGoroutineGoesOnceTheLockIsGivenBack", heldGo,
			"\terr := h.giveBack(ctx, again...)\n\th.by.leave()\n", "\th.by.leave()\n\terr := h.giveBack(ctx, again...)\n"),
		one("Unlock of whatever the value has by then", "TestOfTwoUnlocksOfATurnOneIsTold", lockHoldGo,
			"\tif err := h.unlock(ctx); err != nil {", "\tif h != nil && h.left.Load() {\n\t\ttime.Sleep(time.Second)\n\t\th = o.now.Load()\n\t}\n\tif err := h.unlock(ctx); err != nil {"),
		one("Unlock that does not notice a lost lock", "TestUnlockOfALostLockSaysSo", heldGo,
			"\tcase reason := <-stopped:\n\t\tif reason != nil {", "\tcase reason := <-stopped:\n\t\tif reason != nil && false {"),
		one("token after the deadline", "TestALockIsNotHeldAfterItsDeadline", heldGo,
			"if h.left.Load() || !h.term.Held() {", "if h.left.Load() {"),
		one("a loss that is not told", "TestUnlockOfALostLockSaysSo", heldGo,
			"\t\tclose(h.lost)\n", ""),
		one("a claim that ctx left behind is kept", "TestAClaimThatCtxLeftBehindIsGivenBack", waitGo,
			"\t\t\t_ = w.release(context.WithoutCancel(ctx), step.Term, table.Due{})\n", ""),
		one("waiting for what does not mend", "TestWhatWaitingDoesNotMendIsReturnedAtOnce", waitGo,
			"(w.try || permanent(step.Err) || w.givesUp(step))", "(w.try || step.Err == errFull)"),
		one("a lost set is not given back", "TestALostSetIsGivenBack", releaseGo,
			"\t\t\t_ = free(ctx, name)\n", "\t\t\t_ = name\n"),
		one("what is done is done again", "TestAKeyIsDoneOnceAndASmallerOneIsNotRunAnyMore", doneGo,
			"case due.Key == d.Key:", "case false:"),
		one("the record is not read again under the lock", "TestARecordThatLandsWhileTheNextClaimsIsSeen", onceGo,
			"\t\t\terr = o.forbids(last, wanted)\n", "\t\t\t_ = o.forbids(last, wanted)\n"),
		one("a record without a fence", "TestWhoCommitsUnderALostRunRecordsNothing", doneGo,
			"return []Write{requireLease(name, token), record(", "return []Write{record("),
		one("what failed is recorded", "TestWhatFailsOrPanicsIsNotDone", onceGo,
			"own.held)) })(ctx)\n\t\tif err == nil {", "own.held)) })(ctx)\n\t\tif true {"),
		one("ticks of the machine's clock", "TestEachTickIsDoneOnceHoweverWrongTheClocksAre", onceGo,
			"o.due(key.schedule, now.Local())", "o.due(key.schedule, o.mutex.contender.config.Clock.Now().Time().Add(now.Sub(now)))"),
		one("a set that waits for its first free lock only", "TestSimulation", stepGo,
			"wait = max(wait, s.FreeIn)", "wait = min(max(wait, 0), s.FreeIn)"),
		one("a set that beats for its first name only", "TestSimulation", holdGo,
			"t.under(ctx, \"heartbeat\", token, names, ", "t.under(ctx, \"heartbeat\", token, names[:1], "),
		one("release that does not check", "TestSimulation", tableReleaseGo,
			"err := t.under(ctx, step, token, names, func(h LeaseRef) []Write { return refree(h, lease, since) }, also...)",
			"var all []Write\n\t\tfor _, name := range names {\n\t\t\tall = append(all, refree(LeaseRef{name, token}, lease, since)...)\n\t\t}\n\t\terr := t.Store.Commit(ctx, step, append(all, also...))"),
		one("heartbeat without the lease row check", "TestUnlockOfALostLockSaysSo", holdGo,
			"return t.under(ctx, \"heartbeat\", token, names, mark(ColHeartbeat, Now))",
			"var all []Write\n\tfor _, name := range names {\n\t\tall = append(all, mark(ColHeartbeat, Now)(LeaseRef{name, token})...)\n\t}\n\treturn t.Store.Commit(ctx, \"heartbeat\", all)"),
		one("bare claim that fails never given up", "TestAMutexThatCanNotConfirmLeavesTheLockToOthers", electGo,
			"\t\t\tc.withdraw(running, token, err)\n", "\t\t\tc.past.own = token\n"),
		one("a set of any size", "TestALargeSetIsRefused", setGo,
			"size > maxCommit {", "size > maxCommit<<10 {"),
		one("a value's size before it is escaped", "TestALargeSetIsRefused", setGo,
			"(p.Size() + rowOverhead)", "(len(p.Value) + rowOverhead)"),
		one("names that end like lease rows", "TestNamesOfPartsAreNames", nameGo,
			"longDigits.ReplaceAllString(strings.Join(escaped, \"/\"), \"%5F$1\")", "strings.Join(escaped, \"/\")"),

		one("Do unlocks with its own ctx", "TestDoGivesBackThoughItsCtxEndsMeanwhile", doGo,
			"context.WithTimeout(context.WithoutCancel(ctx), longestGiveBack)", "context.WithTimeout(ctx, longestGiveBack)"),
		one("Do gives back another's turn", "TestDoIsToldWhenItsLockIsUnlockedByAnother", doGo,
			"own.of.end(last, own.held)", "own.of.end(last, own.of.now.Load())"),
		one("Do is not told of another's Unlock", "TestDoIsToldWhenItsLockIsUnlockedByAnother", doGo,
			"end(fmt.Errorf(\"%w: %w\", ErrLost, context.Cause(over)))", "_ = fmt.Errorf(\"%w\", ErrLost)"),
		one("ErrHeld after Do", "TestErrHeldIsForWorkThatHoldsTheLock", doGo,
			"if w.token() == 0 || ", "if "),
		one("work that waits for itself by another value", "TestErrHeldIsForWorkThatHoldsTheLock", doGo,
			"if w.token() == 0 || ", "if w.token() == 0 || w.contender != s || "),
		one("work that waits for its own turn", "TestWhatWorkHasLostIsNotHeldByIt", mutexGo,
			"if w.queue() == m.contender.queue() && !w.left.Load() {", "if false {"),
		one("a write under a later turn", "TestTheCtxOfDoHasTheTokenOfItsTurn", lockHoldGo,
			"if w.of == o {", "if w.of == o && o.now.Load() == nil {"),
		one("a loss without its reason", "TestErrLostSaysWhy", doGo,
			"end(fmt.Errorf(\"%w: %w\", ErrLost, context.Cause(over)))", "end(fmt.Errorf(\"%w: %v\", ErrLost, context.Cause(over)))"),

		mutant{"a queue that is not fair", "TestGoroutinesHaveTheirTurnsInOrder", []edit{
			{queueGo, "import (\n", "import (\n\t\"math/rand/v2\"\n\t\"time\"\n"},
			{queueGo, "\t\tselect {\n\t\tcase q.turn <- struct{}{}:\n\t\t\tfront = true\n\t\tcase <-ctx.Done():\n\t\t}\n",
				"\t\tfor ctx.Err() == nil && !front {\n\t\t\tselect {\n\t\t\tcase q.turn <- struct{}{}:\n\t\t\t\tfront = true\n\t\t\tcase <-time.After(rand.N(50 * time.Millisecond)):\n\t\t\t}\n\t\t}\n"},
		}},
		one("a queue for free slots", "TestFreeSlotsAreTakenSideBySide", seekGo,
			"for queues := k.queue.isTaken();", "for queues := true;"),
		one("a turn that is kept until the slot is given back", "TestThoseWhoFindNoSlotQueue", seekGo,
			"\t\tk.pass()\n", ""),
		one("goroutines that choose the same slot", "TestFreeSlotsAreTakenSideBySide", seekGo,
			"return taken[o.Name] })", "return false && taken[o.Name] })"),
		one("a slot that was given up stays chosen", "TestAPollThatOutlivesItsAcquireTakesNoSlot", queueGo,
			"\tdelete(q.slots, w)\n", ""),
		one("a nested Do waits for one of a smaller size", "TestANestedDoOfAnotherSizeIsRefusedAtOnce", semaphoreGo,
			"n = min(n, w.by.Ticket.Slots)", "n = max(n, w.by.Ticket.Slots)"),
		one("a forgotten value is not said", "TestAValueThatIsForgottenIsSaidAndStaysLocked", heldGo,
			"if h.by.garbage.Load() && !h.left.Load() {", "if false {"),
		one("a forgotten value is released", "TestAValueThatIsForgottenIsSaidAndStaysLocked", heldGo,
			"\t\th.said.Do(func() {\n", "\t\th.said.Do(func() {\n\t\t\tgo h.leave()\n"),
		one("a forgotten lock that was lost is in the way", "TestAForgottenLockThatIsLostIsNoObstacle", heldGo,
			"\t\t_ = h.keeper.Stop()\n\t\th.by.leave()\n", "\t\t_ = h.keeper.Stop()\n"),
		one("a lost lock is looked at once", "TestAForgottenLockThatIsLostIsNoObstacle", heldGo,
			"\tif h.isLost() {\n\t\th.config.Clock.AfterFunc(h.config.Lease, h.overdue)\n\t}\n", ""),
		one("what the last turn held is held", "TestAWaitForAnotherGoroutineSaysWhereItLocked", queueGo,
			"\tq.holds.Store(nil)\n", ""),
		one("a mutex that its own heartbeats keep alive", "TestAValueThatIsForgottenIsSaidAndStaysLocked", mutexGo,
			"\tm.now.Store(h)\n", "\tm.now.Store(h)\n\tcontext.AfterFunc(h.term.Over(), func() { _ = m.names })\n"),
		one("Do does not say that its function hangs", "TestDoSaysThatItsFunctionDoesNotReturn", doGo,
			"elect.Remind(returned, own.config.Clock, own.config.Lease, own.remind)", "elect.Remind(returned, own.config.Clock, 1000*own.config.Lease, own.remind)"),
		one("one slot more", "TestASemaphoreMindsOnlyItsSlots", slotsGo,
			"for i := range min(max(n, 0), MostSlots) {", "for i := range min(max(n, 0), MostSlots) + 1 {"),
		one("a semaphore of 1001", "TestBadArgumentsAreRefusedAndSayWhy", semaphoreGo,
			"c.Require(n >= 1 && n <= wait.MostSlots,", "c.Require(n >= 1 && n <= wait.MostSlots+1,"),
	)

	electMutants = of("./internal/elect",
		one("the lease counts from the answer to the heartbeat that decides", newTerms, electGo,
			"\t\t\tsent = c.Clock.Now()\n\t\t\tanswer := c.try(running, heartbeat)\n", "\t\t\tanswer := c.try(running, heartbeat)\n\t\t\tsent = c.Clock.Now()\n"),
		one("the lease counts from the answer to the confirmation", newTerms, electGo,
			"\treturn s.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {\n\t\twrites, err := fn(ctx, r)\n\t\ts.sent()\n",
			"\tdefer s.sent()\n\treturn s.Store.Transact(ctx, step, func(ctx context.Context, r table.Reader) ([]table.Write, error) {\n\t\twrites, err := fn(ctx, r)\n"),
		one("the lease counts from the last attempt at a claim", newTerms, electFreeGo,
			"\t\terr := c.try(running, func(ctx context.Context) error { return c.on.ClaimFree", "\t\tsent = c.Clock.Now()\n\t\terr := c.try(running, func(ctx context.Context) error { return c.on.ClaimFree"),
		one("the lease counts from the answer to a claim's heartbeat", newTerms, electFreeGo,
			"\treturn err == nil, beat, err\n", "\treturn err == nil, c.Clock.Now(), err\n"),
		one("a claim that may have been confirmed is left as it is", newTerms, electGo,
			" && !errors.Is(err, errUnknown)", ""),
		one("a confirmation takes longer than the lease", newTerms, electGo,
			"context.WithTimeout(context.WithoutCancel(ctx), c.LeaseRecord.Lease)", "context.WithTimeout(context.WithoutCancel(ctx), time.Hour)"),
		one("a cool-down begins after the withdrawal", newTerms, electGo,
			"\tc.cool(length)\n\tc.insist(ctx, func(ctx context.Context) error { return c.Table.Withdraw(ctx, token, c.names...) })\n",
			"\tc.insist(ctx, func(ctx context.Context) error { return c.Table.Withdraw(ctx, token, c.names...) })\n\tc.cool(length)\n"),
		one("a heartbeat counts from its answer", deadlines, keepGo,
			"k.extend(a.sent)", "k.extend(k.clock.Now())"),
		one("a heartbeat may arrive after the deadline", deadlines, keepGo,
			"context.WithTimeout(a, min(left, max(", "context.WithTimeout(a, min(max("),
		one("a failure is forgotten because another heartbeat is sent", deadlines, keepGo,
			"if n > 0 && before[n-1].err == nil {", "if n > 0 {"),
		one("followers poll by their own lease while a leader leaves", "TestAFollowerOfALeavingHolderPollsAsOftenAsItsRoleRequires", electHandoverGo,
			"lease, since := s.LeaseRecord.Lease, ", "lease, since := c.LeaseRecord.Lease, "),
		one("a limit that never rises again", "TestALimitRisesOnceClaimsHaveWaitedForLongAndNoneWasWasted", gateGo,
			"case g.vain == 0 && g.waited:", "case g.vain < 0:"),
		one("a claim at the head of the queue can't give up", "TestAGateLosesNoPlaceAndNoClaim", "internal/elect/gate.go",
			"p.waiting, p); i >= 0 {", "p.waiting, p); i > 0 {"),
		one("the limit follows from the last number of claims in flight", "TestAGateLosesNoPlaceAndNoClaim", "internal/elect/gate.go",
			"g.most = max(g.most, g.flying)", "g.most = g.flying"),
		one("who gives up makes later claims look older", "TestAGateLosesNoPlaceAndNoClaim", "internal/elect/gate.go",
			"p.arrived = p.arrivals", "p.arrived = p.given + len(p.waiting)"),
		one("the time without a failure begins with the failure", "TestAPreferredCandidateAsksEachHolderOnce", preferenceGo,
			"if err != nil || p.sick || ", "if err != nil || "),
		one("a bare claim that vanished is not waited for", "TestWhenALockIsFree", historyGo,
			"h.assumedLease = max(h.assumedLease, r.lease) // a bare claim", "h.assumedLease = max(h.assumedLease, 0) // a bare claim"),
		one("a candidate that competes again remembers old rows", "TestACandidateThatCompetesAgainForgetsOnlyTheRows", "internal/elect/candidate.go",
			"again.observer, again.contests, again.retry = observer{}, 0, Backoff{}", "again.contests, again.retry = 0, Backoff{}"),
		one("another key was recorded", "TestOnlyTheRecordOfTheTermAndItsKeyCounts", announceGo,
			"last.Token == t.token && last.Key == key", "last.Token == t.token && key != \"\""),
		one("spread zero", "TestCandidatesComeAtDifferentTimesToALeaseThatEnds", stepGo,
			"return c.Clock.Random(min(min(lease/50, longestSpread)<<min(c.contests, 8), lease/4, longestPause) + 1)", "return 0 * lease"),
		one("a spread that does not grow with the crowd", "TestThoseWhoLoseAClaimSpreadMoreEachTime", stepGo,
			"longestSpread)<<min(c.contests, 8)", "longestSpread)"),
		one("a record that can't be read is ignored", "TestALockOfANewerVersionIsLeftToIt", rowsGo,
			"\t\treturn o, err\n\t}\n\to.OrphanLeases = ", "\t\tif err != nil {\n\t\t\to.LeaseRecord = nil\n\t\t}\n\t\treturn o, nil\n\t}\n\to.OrphanLeases = "),
		one("orphanLeases that can't be read are ignored", "TestALockOfANewerVersionIsLeftToIt", rowsGo,
			"\t\t\to.OrphanLeases, o.Orphans = nil, nil\n\t\t\treturn o, err\n", "\t\t\tcontinue\n"),
		one("lock delay not waited for after an absence", "TestWhenALockIsFree", historyGo,
			"h.absent.Add(h.assumedLease + r.delay + h.priorityDelay(r))", "h.absent.Add(h.assumedLease)"),
		one("a bare claim ends the term before it", "TestWhenALockIsFree", historyGo,
			"h.assumedLease = max(h.assumedLease, r.lease)", "h.assumedLease = r.lease"),
		one("an absence that begins anew with each look", "TestWhenALockIsFree", historyGo,
			"if h.absent.IsZero() || !h.knows(o.OrphanLeases) {", "if true {"),
		one("its own orphan lease is waited for", "TestWhenALockIsFree", historyGo,
			"\t\tif token != r.own {", "\t\tif token != r.own || true {"),
		one("an ended term has nothing left, and is not over", "TestATermThatHasEndedHasNothingLeft", termGo,
			"\tif s.phase == ended {\n\t\treturn -1\n", "\tif s.phase == ended {\n\t\treturn 0\n"),
		one("a rest ends once another holds, because one before it would have", "TestOnlyAYieldEndsWhenAnotherHolds", coolDownGo,
			"PauseFor(c.Clock, length), false", "PauseFor(c.Clock, length), c.yielded"),
		one("a candidate stays spurned", preferenceIgnored, preferenceGo,
			"p.spurned, p.ignoring = false, 0", "p.ignoring = 0"),
		one("a preference that has kept the lock is ignored", preferenceIgnored, preferenceGo,
			"p.spurned, p.ignoring = false, 0", "p.spurned = false"),
		one("each term is one that was spurned", preferenceIgnored, preferenceGo,
			"\tp.spurned = false\n\treturn", "\treturn"),
		one("claims that were lost before a term count after it", rowsAnew, stepGo,
			"\t\tc.retry.Reset()\n\t\tc.contests = 0\n", "\t\tc.retry.Reset()\n"),
		one("failures before a term count after it", rowsAnew, stepGo,
			"\t\tc.retry.Reset()\n\t\tc.contests = 0\n", "\t\tc.contests = 0\n"),
		one("failures before a poll count after it", rowsAnew, stepGo,
			"\t\tc.retry.Reset()\n\t\tlatest :=", "\t\tlatest :="),
		one("a claim that was aborted once is so for ever", rowsAnew, stepGo,
			"if c.aborted = errors.Is(err, table.ErrAborted); !c.aborted {", "if c.aborted = c.aborted || errors.Is(err, table.ErrAborted); !c.aborted {"),
		one("a late answer is taken for that to a later heartbeat", "TestAnAnswerToAnEarlierHeartbeatSaysNothing", keepGo,
			"if a.n >= len(sent) || a.sent != sent[a.n].sent {", "if a.n >= len(sent) {"),
		one("the failure of an old attempt sends another", "TestTheFailureOfAnEarlierAttemptSendsNoOther", keepGo,
			"case a.n == len(sent)-1:", "case true:"),
		one("the pauses between heartbeats stay long", "TestHeartbeatsAreRepeatedSoonInEachOutage", keepGo,
			"\t\tk.retry.Reset()\n", ""),
		one("who lost a claim disowns another's", disownsNothing, electGo,
			"c.unsure = err != nil && !First(err)", "c.unsure = err != nil"),
		one("who was unsure once disowns for ever", disownsNothing, electGo,
			"c.unsure = err != nil && !First(err)", "c.unsure = c.unsure || err != nil && !First(err)"),
		one("the second holder has been leaving as long as the first", "TestAHolderMayHaveBeenLeavingSinceTheLastPollThatDidNotShowIt", historyGo,
			"h.leaving != o.Token {", "h.leaving == 0 {"),
	)

	tableMutants = of("./internal/table",
		one("an aborted claim is run again", "TestAClaimThatIsAbortedHasBeenOvertaken", claimGo,
			"\t}, t.also...)\n\tswitch {\n", "\t}, t.also...)\n\tif errors.Is(err, ErrAborted) {\n\t\treturn t.claim(ctx, step, id, all, seen)\n\t}\n\tswitch {\n"),
		one("an aborted claim is an error", "TestAClaimThatIsAbortedHasBeenOvertaken", claimGo,
			"\treturn done, at, changed(err)\n", "\treturn done, at, err\n"),
		one("a withdrawal of another's claim", "TestOnlyAnOwnBareClaimIsDisowned", claimGo,
			"TokenAt(row.Token) == token && !row.Heartbeat.IsZero()", "!row.Heartbeat.IsZero()"),
		one("a member frees what another holds", "TestAMemberFreesNothingOfAnother", memberGo,
			"o.Exists && o.Writer == member.Key() && ", "o.Exists && "),
	)

	rootMutants = of(".",
		one("jeopardy without its time", "TestEachEventSaysWhenItHappenedAndWhenTheTermWillEnd", "internal/elect/keep.go",
			"\te.At = k.clock.Now()\n\te.Left = k.Term.left(k.standing.Load(), e.At)\n", "\te.Left = k.Term.left(k.standing.Load(), e.At)\n\te.At = k.clock.Now()\n"),
		one("a missing lock row is a release", "TestAHandoverIsSaidToBeAsFarAsItIs", "stepdown.go",
			"case o.Exists && o.Heartbeat.IsZero()", "case o.Heartbeat.IsZero()"),
		one("a leader that is leaving without its name", "TestAnEventAboutAnotherLeaderDescribesIt", "run.go",
			"e.tell(Leaving, e.config.Clock.Now(), elect.Event{Token: o.Token, Leader: o})", "e.tell(Leaving, e.config.Clock.Now(), elect.Event{Token: o.Token})"),
		one("a request for a handover that does not end", "TestARequestForAHandoverEndsWithItsCtx", "stepdown.go",
			"err = l.insist(ctx, l.config.Lease, \"the leader is not known\"", "err = l.insist(context.WithoutCancel(ctx), l.config.Lease, \"the leader is not known\""),
		one("a leader whose lease has ended", "TestNobodyLeadsOnceTheLeaseHasEnded", seenGo,
			"return o.LeaseRecord != nil && o.At.Sub(o.Heartbeat) < o.LeaseRecord.Lease", "return o.LeaseRecord != nil"),
		one("a leader that is not told to be gone", "TestWhoIsSeenIsToldToBeGone", runGo,
			"if before.LeaseRecord != nil && before.Token != o.Token {", "if false {"),
		one("a stale leader that is waited for", "TestALeaderThatCanNotBeSeenGetsOld", seenGo,
			"return ok && age < leader.Lease", "return ok && age >= 0"),
		one("the end of Run is announced without WithHandover", orders, courseGo,
			"if before == leading && c.handover {", "if before == leading {"),
		one("work that does not return keeps Run for ever", orders, courseGo,
			"} else if before == lost {\n\t\t\treturn c.end(abandon)\n\t\t}", "}"),
		one("the loss of a lock ends its term at once", orders, courseGo,
			"\t\tc.stage = lost\n", "\t\tc.stage = over\n"),
		one("a loop that stands still is healthy", "TestALeaderWhoseLoopStandsStillIsUnhealthy", healthGo,
			"what, age = \"no heartbeat has been acknowledged\", v.term.Silence()", "age = 0"),
		one("a loop that does not hear of the end of its term", "TestALeaderFunctionThatHangsAfterALossIsSaidAgainAndAgain", keepGo,
			"\tk.unwatch = context.AfterFunc(k.over, func() {", "\tk.unwatch = context.AfterFunc(context.Background(), func() {"),
		one("a gauge that holds on after the deadline", "TestTheGaugeIsWhatHasLockSays", standingGo,
			"if left := t.term.Left(); left > 0 {", "if left := t.term.Left(); left > -24*time.Hour {"),
		one("a margin of now", "TestTheMarginIsHowCloseItWas", rpcGo,
			"\t\tw.meter.beat(t, t.term.Left())\n", "\t\t_ = t\n"),
		one("what the end of Run interrupts has failed", "TestFailuresAreCountedByStepAndCode", rpcGo,
			"case err == nil, errors.Is(cause, context.Canceled):", "case err == nil:"),

		one("one leader that is leaving is said for two", "TestEachLeaderThatIsLeavingIsSaidToBe", runGo,
			"!(before.Token == o.Token && before.Leaving())", "!before.Leaving()"),
		one("work begins after the end of Run", "TestNoWorkBeginsAfterTheEndOfRun", leadGo,
			"\tif ctx.Err() != nil {\n\t\treturn notLost(", "\tif false {\n\t\treturn notLost("),
		one("an election is broken off at the end of Run", "TestNoWorkBeginsAfterTheEndOfRun", electGo,
			"context.WithTimeout(context.WithoutCancel(ctx), c.LeaseRecord.Lease)", "context.WithTimeout(ctx, c.LeaseRecord.Lease)"),
		one("an announcement of a step-down ends with Run in spite of handover", announcedEnd, courseGo,
			"before <= leaving && !c.handover {", "before <= leaving {"),
		one("an announcement goes on after the end of Run", announcedEnd, courseGo,
			"before <= leaving && !c.handover {", "before == leading && !c.handover {"),
		one("a StepDown at the end of a term is not answered", stepDownAtEnd, leadGo,
			"\tcase l.calls.outcome != nil:\n", "\tcase l.calls.outcome != nil && e.what != asked:\n"),
		one("a StepDown after the end of a term is not answered", stepDownAtEnd, leadGo,
			"\tl.receive() // answers StepDown calls that came too late\n", ""),
		one("a candidate yields after its term has expired", "TestALoneCandidateDoesNotYieldAfterASuspension", leadGo,
			"\tif errors.Is(reason, ErrSuperseded) {\n\t\tl.loop.candidate", "\tif reason != nil {\n\t\tl.loop.candidate"),
		one("a leader that was told to stop is not seen to leave", "TestStepDownSaysWhatHolds", leadGo,
			"\tv.canceled = ", "\tv.leaving = false\n\tv.canceled = "),
		one("an announcement that was refused goes on", "TestStepDownSaysWhatHolds", announceGo,
			"\t\t\treturn // the next heartbeat fails with the same error\n", ""),
		one("a later StepDown waits to learn that the work hangs", "TestStepDownSaysWhatHolds", leadGo,
			"\tcase l.reminder.waited > l.loop.config.Lease:\n\t\tl.calls.answer(errHung(l))\n", ""),

		one("who stepped down takes its own last claim for free", "TestWhoStepsDownLetsOthersGoFirst", coolDownGo,
			"PauseFor(c.Clock, length), true", "PauseFor(c.Clock, 0*length), true"),
		one("reclaim by the writer of a leaving row", "TestARestartedProcessReclaimsWhatItWasLeaving", historyGo,
			"case r.reclaim && o.Holder() == r.id:", "case r.reclaim && o.Writer == r.id:"),
		one("holder that goes without waiting for its followers", "TestALeaderThatStepsDownWorksUntilItsFollowersKnow", announceGo,
			"\t\t\tk.linger(ctx, k.lease/3+k.clock.Now().Since(sent))\n", "\t\t\t_ = sent\n"),
		one("followers that ignore the announcement", "TestAnAnnouncedLeaderIsReplacedWithinAFiftiethOfALease", stepGo,
			"latest := min(d.Wait+c.spread(seen), c.watch(seen))", "latest := d.Wait + c.spread(seen)"),
		one("holder that ignores no preference", "TestAPreferenceThatLeadsToNothingIsAcceptedEverMoreSeldom", preferenceGo,
			"\tp.spurned = false\n\treturn p.ignoring\n", "\tp.spurned = false\n\treturn 0 * p.ignoring\n"),
		one("candidates of one priority that make each other listen again", "TestAPreferenceThatLeadsToNothingIsAcceptedEverMoreSeldomByEach", preferenceGo,
			"o.LeaseRecord != nil && o.LeaseRecord.Rank < rank && ", "o.LeaseRecord != nil && "),
		one("equal priorities that ask", "TestAPreferredCandidateGetsTheLock", preferenceGo,
			"s.LeaseRecord.Rank <= c.LeaseRecord.Rank", "s.LeaseRecord.Rank < c.LeaseRecord.Rank"),
		one("a preference that asks before it is known to be well", "TestAPreferredCandidateGetsTheLock", preferenceGo,
			"c.Clock.Now().Since(p.well) < known*c.LeaseRecord.Lease", "c.Clock.Now().Since(p.well) < 0"),
		one("StepDown that returns before the release", "TestALeaderThatStepsDownWorksUntilItsFollowersKnow", leadGo,
			"\tl.keeper.CancelWork(cause)\n", "\tl.keeper.CancelWork(cause)\n\tl.calls.answer(nil)\n"),
		one("work that is told to stop when Run's ctx ends, in spite of handover", "TestAnAnnouncedLeaderIsReplacedWithinAFiftiethOfALease", electGo,
			"return c.begin(running, token", "return c.begin(ctx, token"),
		one("a low priority without a priority delay for others", "TestAPriorityDelaysLowerOnes", historyGo,
			"time.Duration(r.rank) / table.MaxRank", "time.Duration(0) / table.MaxRank"),
	)
)
