//go:build mutants

package mutants

const (
	requestGo   = "stepdown.go"
	refusedEnds = "TestARefusedWriteEndsItsTermAtOnce"
	suspended   = "TestASuspensionMakesNoLockUnhealthyWhateverItDoes"
	saysExpiry  = "TestAStopSaysThatTheLockWillBeLeftToExpireWhileTheWorkCanStillReturn"
	givesUp     = "TestALeaderFunctionThatReturnsGivesTheLockToAHealthyCandidate"
	evermore    = "TestALeaderFunctionThatKeepsReturningLeadsEverMoreSeldom"
	elector     = "TestALeaderWhoseHeartbeatsFailYields"
	longLease   = "TestALongLeaseDoesNotMakeAFailureExpensive"
)

var electorMutants = of(".",
	// Sick machines yield.
	one("a term that expired is claimed again before others may", elector, historyGo,
		"case r.unkept != 0 && o.Token == r.unkept:", "case r.delay < 0:"),
	one("who can't keep the lock lets nobody go first", elector, pastGo,
		"p.yieldFor = t.lease / 3", "p.yieldFor = 0"),
	one("who reclaims claims its expired term again at once", "TestALeaderWhoseWorkChokesItsHeartbeatsYields", historyGo,
		"case r.unkept != 0 && o.Token == r.unkept:", "case r.unkept != 0 && o.Token == r.unkept && !r.reclaim:"),
	one("a preference counts from before the own term", "TestAPreferredCandidateWaitsThreeLeasesAfterItsOwnTerm", electGo,
		"\tc.preference.well = Instant{} // successful polls do not prove that it can keep a term\n", ""),
	one("a priority delay by the own lease", "TestTheBetterOfTwoFollowersLeadsWhateverTheirLeases", historyGo,
		"return min(h.paceOr(r.lease)/50, longestSpread)", "return min(r.lease/50, longestSpread)"),
	one("a priority delay without an end", "TestThePriorityDelayIsASecondAtMost", historyGo,
		"return min(h.paceOr(r.lease)/50, longestSpread)", "return h.paceOr(r.lease) / 50"),
	one("the lease counts from the read before the confirmation", "TestASlowNetworkCanKeepAShortLease", electGo,
		"\t\twrites, err := fn(ctx, r)\n\t\ts.sent()\n", "\t\ts.sent()\n\t\twrites, err := fn(ctx, r)\n"),

	// A leader function that returns gives the lock up, and its process rests.
	one("a term goes on without its leader function", givesUp, courseGo,
		"case before == leading && c.keepOnReturn:", "case before == leading:"),
	one("a term ends without its leader function although it is to go on", "TestATermGoesOnWithoutItsLeaderFunctionIfItIsTo", courseGo,
		"case before == leading && c.keepOnReturn:", "case false:"),
	one("a rest that counts as a candidate that can't hold the lock", evermore, stepGo,
		"CoolingDown: c.coolDown.Left(c.Clock) > 0}", "CoolingDown: c.restsFor(seen[0].Name) > 0}"),
	one("rests that do not grow", evermore, runGo, "max(2*r.length, lease/3)", "lease/3"),
	one("rests that grow without an end", evermore, runGo, "min(max(2*r.length, lease/3), 3*lease)", "max(2*r.length, lease/3)"),
	one("a long term does not begin the rests anew", evermore, runGo, "\t\tr.length = 0\n", ""),
	one("a rest ends once another candidate holds the lock", "TestTwoProcessesWhoseLeaderFunctionsReturnTakeTurnsSlowly", leadGo,
		"\t\te.restNow()\n", "\t\te.candidate.Yield(true, \"\")\n"),
	one("a loss at which the function returns is a reason to rest", "TestALeaderFunctionThatReturnsAtALossIsNoReasonToRest", leadGo,
		"\tl.calls.outcome = &reason\n", "\tl.calls.outcome = &reason\n\tif l.course.early {\n\t\tl.loop.restNow()\n\t}\n"),
	one("a panic is taken for a return", "TestALeaderFunctionThatPanicsReleasesNothing", leadGo,
		"if p := recover(); p != nil {", "if p := any(nil); p != nil {"),
	one("a candidate that rests is a successor", "TestACandidateThatRestsIsNobodysSuccessor", "internal/elect/handover.go",
		"c.restsFor(s.Name) <= 0", "c.coolDown.Left(c.Clock) <= 0"),

	one("followers are not told that their leader is leaving", "TestFollowersAreToldThatTheirLeaderIsLeaving", leadGo,
		"\tl.book.Leaving()\n", ""),

	// A suspension is no sickness, and a stop is said in time.
	one("health counts suspended time for work that hangs", suspended, healthGo,
		"l.config.Clock.Now().Ran(v.canceled)", "l.config.Clock.Now().Since(v.canceled)"),
	one("health counts suspended time for heartbeats", suspended, termGo,
		"t.clock.Now().Ran(t.standing.Load().acknowledged)", "t.clock.Now().Since(t.standing.Load().acknowledged)"),
	one("health counts suspended time for polls", suspended, "internal/loop/pulse.go",
		"return c.Now().Ran(b.at), true", "return c.Now().Since(b.at), true"),
	one("the lock is said to stay held at a stop", saysExpiry, leadGo,
		"if l.stopping() {\n\t\tl.reminder.waited", "if false {\n\t\tl.reminder.waited"),
	one("a stop that comes later is not said", saysExpiry, leadGo,
		"\t\t\tif l.stopping() {\n\t\t\t\tl.remindLater()", "\t\t\tif false {\n\t\t\t\tl.remindLater()"),
	one("work that returned in time is late if the loop is", "TestWorkThatReturnedInTimeIsNotLateBecauseTheLoopIs", leadGo,
		"\t\t\tl.receive() // if both are ready, the work was in time\n", ""),
	one("a call of StepDown waits on after its lock was left to expire", "TestAStepDownThatWaitsForWorkIsAnsweredHoweverTheTermEnds", leadGo,
		"\tl.calls.outcome = &l.stop.err\n", ""),

	// A refused write ends its own term.
	one("a refused write ends no term", refusedEnds, "internal/fence/fence.go",
		"\tcase !valid:\n\t\tf.gone()\n", "\tcase !valid:\n"),
	one("a refused write of an old token ends the present term", "TestARefusedWriteOfAnotherTokenEndsNoTerm", "fence.go",
		"t != nil && t.Token() == token", "t != nil"),
	one("a term that a refused write ended is lost at its deadline", refusedEnds, termGo,
		"\tt.refused.CompareAndSwap(nil, &at)\n", "\t_ = at\n"),

	// Failed steps are retried within seconds.
	one("a first pause without an end", longLease, clockGo,
		"min(b.Max/30, longestFirstPause)", "b.Max/30"),
	one("pauses without an end", longLease, clockGo,
		", b.Max, LongestPause)", ", b.Max)"),
	one("a request waits for one answer as long as its caller", "TestARequestSurvivesALostMessage", requestGo,
		"attempt, cancel := context.WithTimeout(ctx, elect.Attempt(lease))", "attempt, cancel := context.WithCancel(ctx)"),

	// Messages and events are exact.
	one("a refused release is a loss", "TestAReleaseThatWasSentAgainIsNoLoss", releaseGo,
		" && t.released(ctx):", " && false:"),
	one("a lock that was broken was released", "TestAReleaseAfterTheLockWasBrokenIsALoss", tableReleaseGo,
		" || TokenAt(all.byName[BrokenRow(name)].Token) >= token {", " {"),
	one("a withdrawn claim is a release", "TestTheGapOfAHandoverIsAtLeastTheTimeWithoutAHolder", requestGo,
		"o.Heartbeat.IsZero() && o.Writer == \"\" && !f.free", "o.Heartbeat.IsZero() && !f.free"),
	one("the gap metric counts from a withdrawn claim", "TestTheGapCountsFromTheLastHolder", historyGo,
		"\t} else if !h.taken {\n\t\th.last", "\t} else if o.Heartbeat.IsZero() {\n\t\th.last"),
	one("claims that never succeed are healthy", "TestClaimsThatNeverSucceedAreSaidAndUnhealthy", stepGo,
		"if c.contests >= lostInARow {", "if c.contests < 0 {"),
	one("a function that hangs after a request is healthy", "TestALeaderFunctionThatHangsAfterARequestIsSaidAndIsUnhealthy", healthGo,
		"hung > age {", "hung < 0 {"),
	one("the end of a term is told after its release", "TestTheEndOfATermIsToldBeforeItsLockIsReleased", leadGo,
		"\tl.over(l.stop.why, now())\n\terr := e.release(l.ctx, l.keeper.Term, l.stop.why)\n", "\terr := e.release(l.ctx, l.keeper.Term, l.stop.why)\n\tl.over(l.stop.why, now())\n"),
	one("a prune leaves the row of a lock that was broken", "TestAPrunedLockLeavesNoRow", claimGo,
		", Write{Kind: Delete, Name: BrokenRow(o.Name)})", ")"),
)
