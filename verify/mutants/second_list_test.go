//go:build mutants

package mutants

import "slices"

// secondMutants break what happens the second time, or to the second of two.
var secondMutants = slices.Concat(
	of("./lock",
		one("only the innermost work is checked for a lost lock", "TestALostLockIsRefusedAtEveryDepthOfItsWork", mutexGo,
			"for w := working(ctx); w != nil; w = w.within {", "if w := working(ctx); w != nil {"),
		one("a set heeds only its last queue", "TestASetHeedsEachOfItsQueues", placeGo, "wait = max(wait, q.Wait(", "wait = max(0, q.Wait("),
		one("the tick of a strong read", "TestTheTickOfAQuietTableIsThePresentOne", onceGo, "o.last(ctx, table.Present, try, patience)", "o.last(ctx, table.Strong, try, patience)"),
		one("Apply in Do is under the present term", "TestEachWriteInDoIsUnderTheTermOfThatDo", lockHoldGo, "o.FenceIn(ctx).Apply(ctx, ms, opts...)", "o.fence().Apply(ctx, ms, opts...)"),
		one("only the innermost Do fences writes", "TestEachWriteInDoIsUnderTheTermOfThatDo", lockHoldGo, "for w := working(ctx); w != nil; w = w.within {", "if w := working(ctx); w != nil {"),
		one("any Do prolongs a release", "TestHowLongAReleaseTakesThatIsNotAnswered", heldGo, "\tcase h.work(ctx) == nil:\n", "\tcase working(ctx) == nil:\n"),
		one("the ctx of Do ends after the release", "TestTheCtxOfDoEndsBeforeTheLockIsReleased", doGo, "\t\tend(nil)\n\t\tlast, cancel :=", "\t\tdefer end(nil)\n\t\tlast, cancel :="),
		one("a permit that is released counts as lost", "TestLostSaysWhetherALockWasLost", lockHoldGo, " || h.isPermit()) {", ") {"),
		one("All sorts the caller's names", "TestASetKeepsItsOwnListOfNames", setGo, "names = slices.Sorted(slices.Values(names))", "slices.Sort(names)"),
		one("a try that stays in the queue", "TestATryLeavesNoTicket", waitGo, "\t\tif h == nil {\n\t\t\tw.abandon()", "\t\tif h == nil && !w.try {\n\t\t\tw.abandon()")),
	of("./internal/wait",
		one("a ticket for another key comes back", "TestAfterEachPollAWaiterHasTheTicketsThatItNeeds", waitTicketGo, "write = p.Ticket.Key, p.Ticket.Slots, table.Ticket.Renew", "_ = p.Ticket.Key, p.Ticket.Slots, table.Ticket.Renew"),
		one("a set does not say again that it is ready", "TestAfterEachPollAWaiterHasTheTicketsThatItNeeds", waitTicketGo, "(!was || p.at.Sub(p.Own.Beat) >= p.Own.Grace/2)", "!was"),
		one("a claim of a slot deletes all tickets ahead", "TestAClaimOfASlotLeavesTheTicketsOfThoseWhoWaitOn", placeGo, "deletes(q.Before()[:passed])", "deletes(q.Before()[passed*0:])"),
		one("a waiter goes on leaving the lock to others", "TestHowLongAWaiterRests", placeGo, "seen, b.Rows, 0, b.At, p.Config.Clock.Now()", "seen, b.Rows, p.wait, b.At, p.Config.Clock.Now()")),
	of("./internal/loop",
		one("the end of an Inbox wakes nobody", "TestAReceiverOfOneEventAtATimeIsWokenForEachAndForTheEnd", "internal/loop/inbox.go",
			"len(i.events) > 0 || i.closed", "len(i.events) > 0")),
	of("./internal/table",
		one("partitions of a member that is gone are confirmed", "TestAMemberThatIsGoneConfirmsNothing", claimGo,
			", requireLease(member.Name, member.Token))", ")"),
		one("a page begins with the last row of the one before", "TestPagesOfAFullReadHaveEachRowOnce", "internal/table/spanner.go",
			"all.Start, all.Kind = spanner.Key{k.After}, spanner.OpenClosed", "all.Start = spanner.Key{k.After}")),
	of(".",
		one("a release that was superseded is one that was done", "TestAReleaseAfterTheLockWasBrokenIsALoss", releaseGo,
			" && t.released(ctx):", " && (t.released(ctx) || true):"),
		one("a gap from the last release", "TestAHandoverIsSaidToBeAsFarAsItIs", "stepdown.go", " && !f.free: //", ": //"),
		one("a view after Run", "TestTheLeaderIsKnownWithoutAnRPC", "run.go", "\te.lock.show(view{})\n", "")),
	of(agentPkg,
		one("lasting promises are forgotten", "TestALockIsBarredUntilTheLastPromiseOfWhoeverCanAct", agentFolder+"promises.go",
			"\t\tclock.AfterFunc(left, h.liftOnceOver)\n\t\treturn\n", "\t\t_ = left\n")),
)
