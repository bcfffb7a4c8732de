//go:build mutants

package mutants

import "slices"

const (
	agesGo = "internal/operator/prune.go"

	patienceGo = "internal/elect/patience.go"
)

// Processes of different sizes and versions: their messages to each other, and the rows that they leave behind.
var semaphoreMutants = slices.Concat(sizeMutants, newerMutants, pruneMutants, refusalMutants, neighbourMutants)

// Goroutines of one process that wait side by side.
var neighbourMutants = of("./lock",
	one("a mutex and a semaphore of one name wait for each other", "TestAMutexAndASemaphoreOfOneNameShareNoQueue", "lock/semaphore.go", "\ts.contender.key += \" semaphore\"\n", ""),
	one("a permit's release puts another ticket", "TestAProcessHasOneTicketHoweverManyOfItsGoroutinesWait", "lock/held.go", "if h.by.front && h.by.queue.behind() > 0 {", "if h.by.queue.behind() > 0 {"),
	one("a run goes on looking after the end of its ctx", "TestOnceEndsWithItsCtxWhileItLooksForTheLastTime", "lock/once.go", "o.last(ctx, table.Strong, try, patience)", "o.last(context.WithoutCancel(ctx), table.Strong, try, patience)"),
)

// Waiters whose requests Spanner refuses.
var refusalMutants = of("./lock",
	one("one refusal ends a wait", "TestARefusalThatPassesDoesNotEndAWait", patienceGo,
		"return now.Ran(r.first) >= limit", "return true"),
	one("a refusal in the middle of a wait counts as one at its beginning", "TestARefusalThatPassesDoesNotEndAWait", patienceGo,
		"fault.Setup && !p.began {", "fault.Setup {"),
	one("a success does not interrupt refusals", "TestARefusalThatPassesDoesNotEndAWait", patienceGo,
		"\tdelete(p.refused, step)\n", ""),
	one("refusals are waited out for ever", "TestAStepThatIsRefusedForLongEndsAWait", patienceGo,
		"return now.Ran(r.first) >= limit", "return false"),
	one("the lease does not matter to a refused waiter", "TestAStepThatIsRefusedForLongEndsAWait", patienceGo,
		"max(p.Lease, 10*time.Second)", "10*time.Second"),
	one("refusals that are far apart add up", "TestRefusalsThatAreFarApartDoNotAddUp", patienceGo,
		"now.Ran(r.last) > 2*limit", "false"),
	one("a ticket that is written does not interrupt refusals", "TestAWriteOfATicketThatFailsIsRepeated", waitGo,
		"\tw.patience.Passed(\"ticket\")\n", ""),
	one("a refusal that has passed is said at the end", "TestAWaitThatEndsSaysWhatIsRefused", waitGo,
		"\t\tcase !step.CoolingDown:\n", "\t\tcase !step.CoolingDown && step.Err != nil:\n"),
	one("a refused ticket is not told", "TestAStepThatIsRefusedForLongEndsAWait", waitGo,
		"if w.patience.Ends(\"ticket\", err) {", "if false {"),
	one("a loss without its cause", "TestALossNamesItsCause", termGo,
		"t.End(t.standing.Load().expired())", "t.End(ErrExpired)"),
	one("a dropped database counts as another holder", "TestALossOfTheWholeTableSaysSo", holdGo,
		"return gone{err}", "return ErrSuperseded"),
)

var sizeMutants = of("./lock",
	one("a withdrawal that is tried once", "TestAClaimThatCtxLeftBehindIsWithdrawnHoweverOftenThatIsAborted", electGo,
		"return Insist(ctx, c.Clock, Attempt(c.LeaseRecord.Lease), free)", "return free(ctx)"),
	one("semaphores that do not look at each other", "TestASlotThatAHolderDoesNotKnowIsGivenBackForOneThatItKnows", seekGo,
		"if known && !lost {", "if (known || err == nil) && !lost {"),
	one("a slot that a holder does not know is handed out", "TestASlotThatAHolderDoesNotKnowIsGivenBackForOneThatItKnows", slotsGo,
		"return chosen < Slot(s.Name, s.common(holders)), nil", "return chosen != \"\" || s.common(holders) > 0, nil"),
	one("a slot that is not handed out is kept", "TestASlotThatAHolderDoesNotKnowIsGivenBackForOneThatItKnows", seekGo,
		"\tif h.leave() {", "\tif false {"),
	one("only slots of the last size that was seen", "TestWhileASmallerSizeHoldsNoSlotBeyondItIsTaken", slotsGo,
		"common = min(common, size)", "common = size"),
	one("another size is logged each time", "TestASizeThatOthersDoNotShareIsLoggedOnce", slotsGo,
		"if _, again := said.LoadOrStore(o.LeaseRecord.Slots, true); !again {", "if said.Store(o.LeaseRecord.Slots, true); true {"),
	one("holders of high slots not seen", "TestASizeThatOthersDoNotShareIsLoggedOnce", slotsGo,
		"\"/slot/9999_9999999999999999\"", "\"/slot/0002_9999999999999999\""),
	one("a slot that is not handed out is given back with ctx", "TestASlotThatIsNotHandedOutIsGivenBackWheneverCtxEnds", seekGo,
		"_ = h.giveBack(context.WithoutCancel(ctx))", "_ = h.giveBack(ctx)"),
	one("a slot that comes after the end of ctx is kept", "TestASlotThatIsNotHandedOutIsGivenBackWheneverCtxEnds", waitGo,
		"_ = h.unlock(context.WithoutCancel(ctx))", "_ = h.by"),
	one("a mutex taken for a semaphore of another size", "TestASemaphoreMindsOnlyItsSlots", slotsGo,
		"if size := o.LeaseRecord.Slots; size > 0 && size != len(s.Names) {", "if size := o.LeaseRecord.Slots; size != len(s.Names) {"),
	one("TryAcquire that waits out an outage", "TestTryAcquireWaitsForNoOutage", contenderGo,
		"if try || patience.Ends(", "if patience.Ends("),
	one("a slot that was lost is handed out", "TestAcquireGoesOnWhenASlotIsLostBeforeItIsHandedOut", seekGo,
		"if known && !lost {", "if known || lost {"),
)

var newerMutants = slices.Concat(
	of("./internal/table",
		one("other locks taken for slots", "TestOnlyASlotHasTheQueueOfASemaphore", ticketGo,
			" || strings.Trim(name[i:], \"0123456789\") != \"\"", ""),
		one("a row of a newer version is read", "TestALeaseRowThatCanNotBeReadSaysSo", recordGo,
			"if v <= format {", "if v <= 2*format {"),
		one("a record of a newer version is one of this", "TestARecordThatCanNotBeReadIsNotTakenForNone", doneGo,
			"if newer := known(row.Name, j.V); newer != nil {", "if newer := known(row.Name, 0*j.V); newer != nil {"),
	),
	of("./lock",
		one("a lock of a newer version is an error", "TestALockOfANewerVersionIsWaitedFor", contenderGo,
			"if !errors.Is(err, table.ErrNewer) || permanent(err) {", "if true {"),
		one("a slot is kept while that of a newer version is there", "TestASlotOfANewerVersionIsWaitedFor", contenderGo,
			" || errors.Is(err, table.ErrNewer) {", " {"),
	),
	of("./internal/share",
		one("a partition of a newer version is claimed", "TestWhenAPartitionCanBeClaimed", claimableGo,
			"case errors.Is(unreadable, table.ErrNewer):", "case errors.Is(nil, table.ErrNewer):"),
	),
)

var pruneMutants = of("./internal/operator",
	one("a wait begins anew with each renewal", "TestWaitersAreListedInTheirOrder", "internal/operator/waiters.go",
		"l.At.Sub(t.Since())", "l.At.Sub(t.Beat)"),
	one("a partition of a member that can't be read is unconfirmed", "TestAPartitionIsListedAsItsMemberIs", listGo,
		"l.Heartbeat, l.Writer, l.LeaseRecord, l.Unreadable = m.Heartbeat, m.Writer, m.LeaseRecord, m.Unreadable", "l.Heartbeat, l.Writer, l.LeaseRecord = m.Heartbeat, m.Writer, m.LeaseRecord"),
	one("a pause of an earlier term counts", "TestAPartitionIsListedAsItsMemberIs", listGo,
		"m.IsHeld() && m.Token == by.Token {", "m.IsHeld() {"),
	one("expired rows that are pruned unasked", "TestOnlyLocksThatExpiredLongAgoArePruned", agesGo,
		"return a.Expired != 0 && at.Sub(row.Heartbeat) >= a.Expired", "return at.Sub(row.Heartbeat) >= a.Expired"),
	one("age without the lease", "TestOnlyLocksThatExpiredLongAgoArePruned", agesGo,
		">= o.LeaseRecord.Lease+a.Expired", ">= a.Expired"),
	one("rows that somebody changed by hand are pruned", "TestOnlyLocksThatExpiredLongAgoArePruned", agesGo,
		"case len(leases) > 1 || leases[0].Name != own || o.LeaseRecord == nil:", "case own == \"\" || o.LeaseRecord == nil:"),
	one("a holder that comes back is pruned", "TestPruneLeavesALockThatComesBackMeanwhile", claimGo,
		"\t\tif !unchanged(o, rows) {\n", "\t\tif step == \"prune\" && TokenAt(rows.byName[o.Name].Token) != o.Token || step != \"prune\" && !unchanged(o, rows) {\n"),
	one("the lease row of an expired lock stays", "TestATermThatIsPrunedIsOver", claimGo,
		"\t\treturn append(drop(o), Write{Kind: Delete, Name: o.Name}", "\t\tif !o.Heartbeat.IsZero() {\n\t\t\treturn []Write{{Kind: Delete, Name: o.Name}}\n\t\t}\n\t\treturn append(drop(o), Write{Kind: Delete, Name: o.Name}"),
	one("what was claimed meanwhile is pruned", "TestWhatIsInUseAgainIsNotPruned", agesGo,
		"case err != nil, !a.are(rows.Row(name), rows.At), ", "case err != nil, "),
	one("only the first lock of a batch can be broken", "TestALockThatWasBrokenLatelyIsKeptBesideOthers", agesGo,
		"\t\t\tkeys.Names = append(keys.Names, table.BrokenRow(name))\n", "\t\t\tkeys.Names = append(keys.Names, table.BrokenRow(name))\n\t\t\tbreak\n"),
	one("any age is safe", "TestPruneRefusesAgesThatAreNotSafe", agesGo,
		"case a.Expired != 0 && a.Expired < table.MaxLease:", "case a.Expired != 0 && a.Expired < table.MaxLease/2:"),
)
