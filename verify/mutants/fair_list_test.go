//go:build mutants

package mutants

import "slices"

const (
	ticketGo     = "internal/table/ticket.go"
	fairLineGo   = "internal/fair/line.go"
	fairPaceGo   = "internal/fair/pace.go"
	placeGo      = "internal/wait/place.go"
	waitTicketGo = "internal/wait/ticket.go"
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
		one("who has no ticket is first", inTime, fairLineGo, "own.Time = table.TurnFor(table.TokenAt(l.At), own.Rank)", "own.Time = 0"),
		one("who has no ticket comes after all others", "TestANewcomerIsBeforeThoseOfLowerPriority", fairLineGo, "own.Time = table.TurnFor(table.TokenAt(l.At), own.Rank)", "own.Time = math.MaxInt64"),
		one("whose ticket has expired keeps its place without renewing it", "TestAllSeeTheSameOrder", fairLineGo, "if l.Own.Expired(l.At) {", "if false {"),
		one("an expired ticket counts", "TestAnExpiredTicketDoesNotCount", fairLineGo, "return !t.Expired(l.At) && (", "return ("),
		one("a process waits for its own old ticket", inTime, fairLineGo, "t.Nonce == l.Own.Nonce || ", ""),
		one("the dead cost a grace each", manyDead, fairLineGo, "math.Log2(1+float64(place))", "float64(place)"),
		one("all who are beyond try at once", manyDead, fairLineGo, "wait += random(longest(before, gap.After))", "wait += 0"),
		one("who is beyond is first", manyDead, fairLineGo, "return l.End != \"\" && ", "return false && "),
		one("a newcomer is first if no ticket that it has read counts", "TestANewcomerComesAfterTicketsThatWereNotRead", fairLineGo, "(l.Own.Nonce == \"\" || l.Own.Row() > l.End)", "l.Own.Row() > l.End"),
		one("an old ticket of a process is its present one", inTime, fairLineGo, "slices.ContainsFunc(l.Tickets, l.Own.Same)", "slices.ContainsFunc(l.Tickets, func(t table.Ticket) bool { return t.Nonce == l.Own.Nonce })"),
		one("a waiter deletes its own expired ticket", "TestAnExpiredTicketDoesNotCount", fairLineGo, "t.Same(l.Own) || !t.Expired(l.At)", "!t.Expired(l.At)"),
		one("the last of several sets counts", passedOver, fairLineGo, "wait = max(wait, min(l.readyFor(t), l.longestFor(t)-free))", "wait = max(0, min(l.readyFor(t), l.longestFor(t)-free))"),
		one("the dead have left one slot only", differ, fairLineGo, "lost += int(max(f, 0) / grace)", "lost = max(lost, int(max(f, 0)/grace))"),
		one("a missing ticket is beyond", manyDead, fairLineGo, "l.Own.Row() > l.End", "l.Own.Row() != l.End"),
		one("who is slow has the grace of others", "TestTheHeadWaitsForNobodyAndTheOthersForItsGrace", fairLineGo,
			"grace = max(grace, graceOf(t, held))", "grace = max(grace, min(graceOf(t, held), 200*time.Millisecond))"),
		one("a lock is idle for a set that can't go on", passedOver, fairLineGo, "(!t.Set || l.isReady(t))", "true"),
		one("a lock is left to a set for ever", notForEver, fairLineGo, "min(l.readyFor(t), l.longestFor(t)-free)", "l.readyFor(t)"),
		one("a set that is passed loses its place", notForEver, fairLineGo, "{ return t.Set })", "{ return false })"),
		one("dead sets keep their places", "TestASetThatIsNotHeardFromLosesItsPlace", fairLineGo, "t.Same(l.Own) || !t.Expired(l.At)", "t.Same(l.Own) || !t.Expired(l.At) || t.Set"),
		one("a set that is dead is waited for", passedOver, fairLineGo, "t.Ready && l.readyFor(t) > 0", "t.Ready"),
		one("a larger key passes a smaller one", smaller, fairLineGo, "other.Key < t.Key && ", "other.Key > t.Key && "),
		one("waiters with and without keys wait in a circle", "TestAllSeeTheSameOrder", fairLineGo, "cmp.Or(behind(t, all).Compare(place), ", "cmp.Or(t.Compare(place), "),
		one("a smaller key overtakes waiters without keys", "TestAllSeeTheSameOrder", fairLineGo, "last.Compare(other) < 0 && ", "last.Compare(other) > 0 && "),
		one("ticks wait for other keys", smaller, fairLineGo, " && table.Comparable(other.Key, t.Key)", ""),
		one("two waiters at one slot", differ, fairLineGo, "return place % len(free), ", "return 0, "),
		one("slots of those before are taken", differ, fairLineGo, "if place < len(free)+lost {", "if place <= len(free)+lost {"),
		one("those who have a slot of their own lose their places", differ, fairLineGo, "min(max(place-len(free)+1, 0), len(l.Before()))", "min(lost, len(l.Before()))"),
		one("those far behind look as often as the first", "TestThePaceOfAWaiter", fairPaceGo, "if place == 0 {", "if place >= 0 {"),
		one("who is slow asks for no more", "TestThePaceOfAWaiter", fairPaceGo, "2*p.longest()+3*p.RoundTrip", "2*p.longest()"),
		one("a set has the grace of a mutex", "TestTheGraceFollowsTheHold", fairPaceGo, "t.Set || t.RoundTrip == 0", "t.RoundTrip == 0"),
		one("an older version is thought to be fast", "TestTheGraceFollowsTheHold", fairPaceGo, "t.Set || t.RoundTrip == 0", "t.Set"),
		one("a grace is shorter than a pause", "TestTheGraceFollowsTheHold", fairPaceGo, "2*max(held/16, shortest)", "2*shortest"),
		one("a grace is longer than asked for", "TestTheGraceFollowsTheHold", fairPaceGo, "min(t.Grace, 2*max", "max(0, 2*max")),
	of("./internal/operator",
		one("expired tickets are listed", "TestExpiredTicketsAreNotListed", "internal/operator/waiters.go", "ok && !t.Expired(rows.At) {", "ok {"),
		one("a look reads a whole queue", "TestOfALongQueueTheFirstAreRead", ticketGo, "Limit: 100 + 8*len(keys.Names) + 2*MostTickets*len(queues)}", "Limit: 1 << 30}"),
		one("a long queue hides the lock", "TestOfALongQueueTheFirstAreRead", ticketGo, "if err != nil || len(rows) < all.Limit {", "if true {"),
		one("expired tickets are not pruned", "TestExpiredTicketsAreNotListed", "internal/operator/prune.go", "t.Expired(at) || t.Lasts == 0", "t.Lasts == 0"),
		one("prune ends at a page with nothing to prune", "TestPruneReadsEveryPage", "internal/operator/prune.go", "full = len(rows) == page", "full = len(rows) == page && len(chosen) > 0")),
	of("./internal/table",
		one("a ticket written by hand counts for ever", "TestForHowLongATicketCounts", ticketGo, "min(max(lasts, 0), 3*MaxLease)", "max(lasts, 0)"),
		one("queues of other names are read", "TestQueuesOfNamesAreApart", ticketGo, "escaped := url.PathEscape(queue)", "escaped := strings.ReplaceAll(queue, \"%\", \"%25\")"),
		one("a name too long for a key", "TestATicketIsReadAsItWasWritten", ticketGo, "if len(TicketPrefix)+len(escaped)+placeLength > MaxKey {", "if false {"),
		one("a grace without an end", "TestNonsenseInATicketIsPassedSoon", ticketGo, "min(max(grace, time.Millisecond), MaxGrace)", "max(grace, time.Millisecond)"),
		one("nonsense in a ticket holds others up", "TestNonsenseInATicketIsPassedSoon", ticketGo, "grace = defaultGrace", "grace = MaxGrace"),
		one("a lock that has the name of a ticket", "TestATicketIsReadAsItWasWritten", "internal/table/key.go", "case IsTicket(name):", "case IsTicket(name) && len(name) < 8:")),
	of("./lock",
		one("a claim leaves its ticket", takeTurns, placeGo, "return wait, append(also, deletes(p.in(p.Queues, p.Table))...)", "return wait, also"),
		one("TryLock passes those who wait", takeTurns, placeGo, "\t\tif wait > 0 {", "\t\tif wait > time.Hour {"),
		one("who gives up leaves its ticket", "TestAWaiterThatGivesUpLeavesTheQueueAndSaysItsPlace", waitGo, "\t\t\tw.Forget()\n", ""),
		one("a process stays where it was in the queue", "TestAProcessOfManyGoroutinesHasTheTurnsOfOne", waitTicketGo,
			"at := p.at.Add(p.Config.Clock.Now().Ran(p.ended))", "at := p.at.Add(-time.Hour)"),
		one("the ticket that a permit's claim has deleted is handed on", "TestAProcessOfManyGoroutinesHasTheTurnsOfOne", waitGo, "\t\t\tw.Own = table.Ticket{} // the claim has deleted it\n", ""),
		one("a ticket whose write failed counts as written", "TestAWriteOfATicketThatFailsIsRepeated", waitTicketGo, "\t\tp.Own.Beat = time.Time{}\n", ""),
		one("a new place is kept less often than the first", "TestAWaiterWhoseTicketIsGonePutsItAgainThreeTimes", waitTicketGo, "\tq.Own, q.missing = t, 0\n", "\tq.Own = t\n"),
		one("a ticket that was gone once is put again and again", "TestATicketThatIsTooFarBackIsPutAgain", waitTicketGo, "\tp.stamp(p.at, pace(p))\n\tp.gone = false\n", "\tp.stamp(p.at, pace(p))\n"),
		one("the write of a ticket ends with ctx", deletes, waitTicketGo, "context.WithTimeout(context.WithoutCancel(ctx), elect.Attempt(p.Config.Lease))", "context.WithTimeout(ctx, elect.Attempt(p.Config.Lease))"),
		one("the ticket that a mutex's claim has deleted is deleted again", "TestAProcessOfManyGoroutinesHasTheTurnsOfOne", waitGo, "\t\t\tw.Own = table.Ticket{} // the claim has deleted it\n", ""),
		one("who goes to the end goes by a clock that is set", "TestASetClockMovesNobodyInTheQueue", waitTicketGo, "Clock.Now().Ran(p.ended)", "Clock.Now().Since(p.ended)"),
		one("a ticket that is gone stays away", "TestAWaiterWhoseTicketIsGonePutsItAgainThreeTimes", waitTicketGo, "\tcase !has:\n\t\tp.missing++\n", "\tcase !has:\n\t\tp.missing++\n\t\treturn writes\n"),
		one("a ticket that is passed again and again keeps its place", "TestAWaiterWhoseTicketIsGonePutsItAgainThreeTimes", waitTicketGo, "!has && p.missing >= 3", "!has && p.missing >= 300"),
		one("a set never says that it is ready", "TestASetGetsItsTurnAndLeavesNoLockIdleForLong", waitTicketGo, "p.Own.Ready = p.Ticket.Set && isFirst(p, seen)", "p.Own.Ready = false"),
		one("a waiter that lives does not renew its ticket", renews, waitTicketGo, "p.at.Sub(p.Own.Beat) >= p.Own.Lasts/3", "p.Ticket.Set && p.at.Sub(p.Own.Beat) >= p.Own.Lasts/3"),
		one("a set that lives does not renew its tickets", renews, waitTicketGo, "p.at.Sub(p.Own.Beat) >= p.Own.Lasts/3", "!p.Ticket.Set && p.at.Sub(p.Own.Beat) >= p.Own.Lasts/3"),
		one("a waiter renews its ticket too often", renews, waitTicketGo, "p.Own.Lasts/3", "p.Own.Lasts/6"),
		one("a renewal brings a ticket back", "TestALateRenewalBringsNoTicketBack", ticketGo, "return t.write(Update)", "return t.write(Put)"),
		one("a call returns before its ticket is deleted", deletes, waitGo, "(f == nil || w.inTable.Load())", "f == nil"),
		one("a poll that ctx's deadline cuts off is a failure", "TestAPollThatTheDeadlineCutsOffIsNoFailure", waitGo, "case elect.IsOver(ctx):", "case ctx.Err() != nil:"),
		one("a call waits although its requests fail", "TestAnOutageHardlyDelaysAWaitThatEnds", waitGo, "r.held == nil && !failed && ", "r.held == nil && (!failed || failed) && "),
		one("a process keeps its old tickets", "TestAProcessDeletesItsOldTickets", waitTicketGo, "if t.Nonce == nonce && !t.Same(p.Own) {", "if false {"),
		one("whose expired ticket is deleted counts as passed", "TestAStoppedWaiterHasItsOldPlace", waitTicketGo, "case !has && p.Own.Expired(p.at):", "case false:"),
		one("the size of an expired ticket counts", "TestTheSizeOfAnExpiredTicketDoesNotCount", slotsGo, "t.Slots > 0 && !t.Expired(p.at)", "t.Slots > 0"),
		one("expired tickets hide a queue", "TestExpiredTicketsDoNotHideTheQueue", waitTicketGo, "deletes(q.Expired())...)", "deletes(q.Expired()[:0])...)"),
		one("a ticket that is gone and too far back stays away", "TestATicketThatIsTooFarBackIsPutAgain", waitTicketGo, "\t\tp.gone = true\n", "\t\tp.gone = false\n"),
		one("who waits for a key waits for its turn", "TestThoseWhoWaitForAKeyLeaveAsSoonAsItIsDone", "lock/once.go",
			"\t\tlast, at, err := w.Done()\n\t\tif err == nil {\n\t\t\terr = forbids(last, at)\n\t\t}\n\t\tif err != nil {\n\t\t\treturn elect.Decision{Err: err}\n\t\t}\n\t\treturn choose(seen)", "\t\treturn choose(seen)"),
		one("sizes of those who wait count for nothing", "TestAWaiterOfASmallerSizeIsAccepted", slotsGo, "common = min(common, t.Slots)", "common = min(common, common)"),
		one("the second in line is thought to know of a short turn", "TestNobodyIsPassedOverAfterAShortTurn", "internal/wait/gap.go", "return max(end.Sub(s.Token.Time()), g.ago)", "return end.Sub(s.Token.Time())"),
		one("a lock without a row has not changed for long", "TestProcessesTakeTurns", "internal/wait/gap.go", "!s.Exists && ok", "!s.Exists && !ok")),
	of("./internal/wait",
		one("a lock counts as free for no longer than its rows say", "TestALockIsFreeAtLeastSinceItWasSeenToBe", "internal/wait/gap.go", "return max(s.FreeFor, s.At.Sub(known.at))", "return s.FreeFor")),
	of("./cmd/spindle/internal/run",
		one("an exec does not queue", "TestExecsQueueBesidePrograms", "cmd/spindle/internal/run/waiting.go", "if !w.queues {", "if w.queues {"),
		one("a lower priority is in the order of arrival", "TestExecsQueueBesidePrograms", ticketGo, "return began + Token(rank)*behindAll", "return began"),
		one("an exec that ends leaves its ticket", "TestAnExecThatStopsWaitingLeavesNoTicket", "cmd/spindle/internal/run/waiting.go", "\t\t\tplace.Forget()\n", ""),
		one("a table that hangs delays an end", "TestAnExecThatStopsWaitingLeavesNoTicket", "cmd/spindle/internal/run/waiting.go", "\tcase <-ctx.Done():\n\t}\n", "\t}\n"),
		one("an exec tells nobody that it has released the lock", "TestAWaitingExecIsToldThatTheLockIsFree", "cmd/spindle/internal/run/holding.go", "\th.book.Free(h.done)\n", ""),
		one("a holder tells an exec that stands by first", "TestAWaitingExecIsToldThatTheLockIsFree", "internal/notify/book.go", "cmp.Compare(x.rank, y.rank), cmp.Compare(a.turn(), b.turn())", "cmp.Compare(x.rank, y.rank), cmp.Compare(a.time, b.time)")))
