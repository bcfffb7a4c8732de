//go:build mutants

package mutants

import "slices"

const (
	ticketGo     = "internal/table/ticket.go"
	fairLineGo   = "internal/fair/line.go"
	fairPaceGo   = "internal/fair/pace.go"
	lockLineGo   = "lock/line.go"
	lockTicketGo = "lock/ticket.go"
	manyDead     = "TestManyDeadCostAFewGraces"
	differ       = "TestWaitersTakeDifferentSlots"
	passedOver   = "TestASetIsWaitedForOnlyOnceItIsFirstEverywhere"
	inTime       = "TestFirstComeFirstServed"
	notForEver   = "TestAFreeLockIsNotLeftToASetForEver"
	smaller      = "TestSmallerKeysGoFirst"
	takeTurns    = "TestTryLockPassesNobody"
	renews       = "TestALivingWaiterRenewsItsTicket"
	deletes      = "TestAWaitThatEndsHasDeletedItsTicket"
)

var fairMutants = slices.Concat(
	of("./internal/fair",
		one("last come, first served", inTime, ticketGo, "cmp.Compare(t.Time, other.Time)", "cmp.Compare(other.Time, t.Time)"),
		one("two of one instant are both first", inTime, ticketGo, "cmp.Or(cmp.Compare(t.Time, other.Time), cmp.Compare(t.Nonce, other.Nonce))", "cmp.Compare(t.Time, other.Time)"),
		one("who has no ticket is first", inTime, fairLineGo, "own.Time = math.MaxInt64", "own.Time = 0"),
		one("whose ticket has lapsed keeps its place without renewing it", "TestAllSeeTheSameOrder", fairLineGo, "if l.Own.Lapsed(l.At) {", "if false {"),
		one("a lapsed ticket counts", "TestALapsedTicketDoesNotCount", fairLineGo, "return !t.Lapsed(l.At) && (", "return ("),
		one("a process waits for its own old ticket", inTime, fairLineGo, "t.Nonce != l.Own.Nonce && ", ""),
		one("the dead cost a grace each", manyDead, fairLineGo, "math.Log2(1+float64(place))", "float64(place)"),
		one("all who are beyond try at once", manyDead, fairLineGo, "wait += random(grace)", "wait += 0"),
		one("who is beyond is first", manyDead, fairLineGo, "return l.End != \"\" && ", "return false && "),
		one("a newcomer is first if no ticket that it has read counts", "TestANewcomerComesAfterTicketsThatWereNotRead", fairLineGo, "(l.Own.Nonce == \"\" || l.Own.Row() > l.End)", "l.Own.Row() > l.End"),
		one("an old ticket of a process is its present one", inTime, fairLineGo, "if t.Same(l.Own) {", "if t.Nonce == l.Own.Nonce {"),
		one("a waiter deletes its own lapsed ticket", "TestALapsedTicketDoesNotCount", fairLineGo, "!t.Same(l.Own) && t.Lapsed(l.At)", "t.Lapsed(l.At)"),
		one("the last of several sets counts", passedOver, fairLineGo, "wait = max(wait, min(l.readyFor(t), l.longestFor(t)-free))", "wait = max(0, min(l.readyFor(t), l.longestFor(t)-free))"),
		one("the dead have left one slot only", differ, fairLineGo, "lost += int(max(f, 0) / grace)", "lost = max(lost, int(max(f, 0)/grace))"),
		one("a missing ticket is beyond", manyDead, fairLineGo, "l.Own.Row() > l.End", "l.Own.Row() != l.End"),
		one("who is slow has the grace of others", "TestTheHeadWaitsForNobodyAndTheOthersForItsGrace", fairLineGo,
			"grace = max(grace, graceOf(t, held))", "grace = max(grace, min(graceOf(t, held), 200*time.Millisecond))"),
		one("a lock is idle for a set that can't go on", passedOver, fairLineGo, "(!t.Set || l.isReady(t))", "true"),
		one("a set that is ready is passed", passedOver, fairLineGo, "wait = max(wait, min(l.readyFor(t), l.longestFor(t)-free))", "wait = max(wait, 0)"),
		one("a lock is left to a set for ever", notForEver, fairLineGo, "min(l.readyFor(t), l.longestFor(t)-free)", "l.readyFor(t)"),
		one("a set that is passed loses its place", notForEver, fairLineGo, "\t\tif !t.Set {\n", "\t\tif true {\n"),
		one("dead sets keep their places", "TestASetThatIsNotHeardFromLosesItsPlace", fairLineGo, "!t.Same(l.Own) && t.Lapsed(l.At)", "!t.Same(l.Own) && t.Lapsed(l.At) && !t.Set"),
		one("a set that is dead is waited for", passedOver, fairLineGo, "t.Ready && l.readyFor(t) > 0", "t.Ready"),
		one("a larger key passes a smaller one", smaller, fairLineGo, "other.Key < t.Key && ", "other.Key > t.Key && "),
		one("waiters with and without keys wait in a circle", "TestAllSeeTheSameOrder", fairLineGo, "cmp.Or(behind(t, all).Compare(place), ", "cmp.Or(t.Compare(place), "),
		one("a smaller key overtakes waiters without keys", "TestAllSeeTheSameOrder", fairLineGo, "last.Compare(other) < 0 && ", "last.Compare(other) > 0 && "),
		one("ticks wait for other keys", smaller, fairLineGo, " && table.Comparable(other.Key, t.Key)", ""),
		one("two waiters at one slot", differ, fairLineGo, "return place % len(free), ", "return 0, "),
		one("slots that the dead leave are for nobody", differ, fairLineGo, "lost += int(max(f, 0) / grace)", "lost += 0"),
		one("slots of those before are taken", differ, fairLineGo, "if place < len(free)+lost {", "if place <= len(free)+lost {"),
		one("those who have a slot of their own lose their places", differ, fairLineGo, "min(max(place-len(free)+1, 0), len(l.Before()))", "min(lost, len(l.Before()))"),
		one("those far behind look as often as the first", "TestThePaceOfAWaiter", fairPaceGo, "if place == 0 {", "if place >= 0 {"),
		one("who is slow asks for no more", "TestThePaceOfAWaiter", fairPaceGo, "2*p.longest()+3*p.RoundTrip", "2*p.longest()"),
		one("a set has the grace of a mutex", "TestTheGraceFollowsTheHold", fairPaceGo, "t.Set || t.RoundTrip == 0", "t.RoundTrip == 0"),
		one("an older version is thought to be fast", "TestTheGraceFollowsTheHold", fairPaceGo, "t.Set || t.RoundTrip == 0", "t.Set"),
		one("a grace is shorter than a pause", "TestTheGraceFollowsTheHold", fairPaceGo, "2*max(held/16, shortest)", "2*shortest"),
		one("a grace is longer than asked for", "TestTheGraceFollowsTheHold", fairPaceGo, "min(t.Grace, 2*max", "max(0, 2*max")),
	of("./internal/operator",
		one("lapsed tickets are listed", "TestLapsedTicketsAreNotListed", "internal/operator/waiters.go", "ok && !t.Lapsed(at) {", "ok {"),
		one("lapsed tickets are not pruned", "TestLapsedTicketsAreNotListed", "internal/operator/prune.go", "t.Lapsed(at) || t.Lasts == 0", "t.Lasts == 0")),
	of("./internal/table",
		one("a ticket written by hand counts for ever", "TestForHowLongATicketCounts", ticketGo, "min(max(lasts, 0), 3*MaxLease)", "max(lasts, 0)"),
		one("a look reads a whole queue", "TestALookAtALongQueueIsBounded", ticketGo, "Limit: 100 + 8*len(keys.Names) + 2*MostTickets*len(queues)}", "Limit: 1 << 30}"),
		one("a long queue hides the lock", "TestALookAtALongQueueIsBounded", ticketGo, "if err != nil || len(rows) < all.Limit {", "if true {"),
		one("queues of other names are read", "TestQueuesOfNamesAreApart", ticketGo, "escaped := url.PathEscape(queue)", "escaped := strings.ReplaceAll(queue, \"%\", \"%25\")"),
		one("a name too long for a key", "TestATicketIsReadAsItWasWritten", ticketGo, "if len(TicketPrefix)+len(escaped)+placeLength > MaxKey {", "if false {"),
		one("a grace without an end", "TestNonsenseInATicketIsPassedSoon", ticketGo, "min(max(grace, time.Millisecond), MaxGrace)", "max(grace, time.Millisecond)"),
		one("nonsense in a ticket holds others up", "TestNonsenseInATicketIsPassedSoon", ticketGo, "grace = defaultGrace", "grace = MaxGrace"),
		one("a lock that has the name of a ticket", "TestATicketIsReadAsItWasWritten", "internal/table/key.go", "case IsTicket(name):", "case IsTicket(name) && len(name) < 8:")),
	of("./lock",
		one("a claim leaves its ticket", takeTurns, lockLineGo, "return wait, append(also, deletes(l.tickets(l.queues))...)", "return wait, also"),
		one("TryLock passes those who wait", takeTurns, "lock/contender.go", "\t\t\tif wait > 0 {", "\t\t\tif wait > time.Hour {"),
		one("who gives up leaves its ticket", "TestAWaiterThatGivesUpLeavesTheQueueAndSaysItsPlace", "lock/queue.go", "if q.ticket.Nonce == \"\" {", "if true {"),
		one("a process stays where it was in the queue", "TestAProcessOfManyGoroutinesHasTheTurnsOfOne", lockTicketGo,
			"l.take(q.id(l.clock), table.TokenAt(l.at.Add(l.clock.Now().Ran(l.ended))))", "l.take(q.id(l.clock), table.TokenAt(l.at.Add(-time.Hour)))"),
		one("the ticket that a permit's claim has deleted is handed on", "TestAProcessOfManyGoroutinesHasTheTurnsOfOne", "lock/seek.go", "\t\tk.waiting.line.served()\n", ""),
		one("a ticket whose write failed counts as written", "TestAWriteOfATicketThatFailsIsRepeated", lockTicketGo, "\t\tl.own.Beat = time.Time{}\n", ""),
		one("a new place is kept less often than the first", "TestAWaiterWhoseTicketIsGonePutsItAgainThreeTimes", lockTicketGo, "\tl.missing = 0\n", ""),
		one("a ticket that was gone once is put again and again", "TestATicketThatIsTooFarBackIsPutAgain", lockTicketGo, "\tl.stamp(l.at)\n\tl.gone = false\n", "\tl.stamp(l.at)\n"),
		one("the write of a ticket ends with ctx", deletes, lockTicketGo, "context.WithTimeout(context.WithoutCancel(ctx), elect.Attempt(l.lease))", "context.WithTimeout(ctx, elect.Attempt(l.lease))"),
		one("the ticket that a mutex's claim has deleted is deleted again", "TestAGoroutinesTurnCostsNoRequestAboutItsTicket", "lock/mutex.go", "\tq.ticket = table.Ticket{} // the claim has deleted it\n", ""),
		one("who goes to the end goes by a clock that is set", "TestASetClockMovesNobodyInTheQueue", lockTicketGo, "l.clock.Now().Ran(l.ended)", "l.clock.Now().Since(l.ended)"),
		one("a ticket that is gone stays away", "TestAWaiterWhoseTicketIsGonePutsItAgainThreeTimes", lockTicketGo, "\tcase !has:\n\t\tl.missing++\n", "\tcase !has:\n\t\tl.missing++\n\t\treturn writes\n"),
		one("a ticket that is passed again and again keeps its place", "TestAWaiterWhoseTicketIsGonePutsItAgainThreeTimes", lockTicketGo, "!has && l.missing >= 3", "!has && l.missing >= 300"),
		one("a set never says that it is ready", "TestASetGetsItsTurnAndLeavesNoLockIdleForLong", lockTicketGo, "l.own.Ready = l.ticket.Set && l.isFirst(seen)", "l.own.Ready = false"),
		one("a waiter that lives does not renew its ticket", renews, lockTicketGo, "l.at.Sub(l.own.Beat) >= l.own.Lasts/3", "l.ticket.Set && l.at.Sub(l.own.Beat) >= l.own.Lasts/3"),
		one("a set that lives does not renew its tickets", renews, lockTicketGo, "l.at.Sub(l.own.Beat) >= l.own.Lasts/3", "!l.ticket.Set && l.at.Sub(l.own.Beat) >= l.own.Lasts/3"),
		one("a waiter renews its ticket too often", renews, lockTicketGo, "l.own.Lasts/3", "l.own.Lasts/6"),
		one("a renewal brings a ticket back", "TestALateRenewalBringsNoTicketBack", ticketGo, "return t.write(Update)", "return t.write(Put)"),
		one("a call returns before its ticket is deleted", deletes, lockTicketGo, "\tif failed {\n\t\treturn", "\tif true {\n\t\treturn"),
		one("a poll that ctx's deadline cuts off is a failure", "TestAPollThatTheDeadlineCutsOffIsNoFailure", "lock/contender.go", "case isOver(ctx):", "case ctx.Err() != nil:"),
		one("a call waits although its requests fail", "TestAnOutageHardlyDelaysAWaitThatEnds", lockTicketGo, "\tif failed {\n\t\treturn", "\tif false {\n\t\treturn"),
		one("the end of a wait cuts off the write of its ticket", deletes, lockTicketGo, "\t\tl.writing.Wait()\n", ""),
		one("a process keeps its old tickets", "TestAProcessDeletesItsOldTickets", lockTicketGo, "if t.Nonce == nonce && !t.Same(l.own) {", "if false {"),
		one("whose lapsed ticket is deleted counts as passed", "TestAStoppedWaiterHasItsOldPlace", lockTicketGo, "case !has && l.own.Lapsed(l.at):", "case false:"),
		one("the size of a lapsed ticket counts", "TestTheSizeOfALapsedTicketDoesNotCount", lockLineGo, "t.Slots > 0 && !t.Lapsed(l.at)", "t.Slots > 0"),
		one("lapsed tickets hide a queue", "TestLapsedTicketsDoNotHideTheQueue", lockTicketGo, "deletes(q.Lapsed())...)", "deletes(q.Lapsed()[:0])...)"),
		one("a ticket that is gone and too far back stays away", "TestATicketThatIsTooFarBackIsPutAgain", lockTicketGo, "\t\tl.gone = true\n", "\t\tl.gone = false\n"),
		one("who waits for a key waits for its turn", "TestThoseWhoWaitForAKeyLeaveAsSoonAsItIsDone", "lock/once.go",
			"\t\tlast, at, err := w.line.done()\n\t\tif err == nil {\n\t\t\terr = forbids(last, at)\n\t\t}\n\t\tif err != nil {\n\t\t\treturn elect.Blocked(err)\n\t\t}\n\t\treturn choose(seen)", "\t\treturn choose(seen)"),
		one("sizes of those who wait count for nothing", "TestAWaiterOfASmallerSizeIsAccepted", lockLineGo, "n = min(n, t.Slots)", "n = min(n, n)"),
		one("the second in line is thought to know of a short turn", "TestNobodyIsPassedOverAfterAShortTurn", "lock/gap.go", "return max(end.Sub(s.Token.Time()), g.ago)", "return end.Sub(s.Token.Time())"),
		one("a lock without a row has not changed for long", "TestProcessesTakeTurns", "lock/gap.go", "!s.Exists && ok", "!s.Exists && !ok"),
		one("a lock counts as free for no longer than its rows say", "TestALockIsFreeAtLeastSinceItWasSeenToBe", "lock/gap.go", "return max(s.FreeFor, s.At.Sub(known.at))", "return s.FreeFor")))
