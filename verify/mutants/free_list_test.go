//go:build mutants

package mutants

import "slices"

const (
	tableFreeGo = "internal/table/free.go"
	storeGo     = "internal/table/store.go"
	electFreeGo = "internal/elect/free.go"
	oneCommit   = "TestAReleasedLockIsClaimedByOneCommit"
	lateClaim   = "TestALateClaimComesToNothing"
	lostMessage = "TestALostMessageOfAClaimCostsNoLease"
)

var freeMutants = slices.Concat(
	of("./internal/operator",
		one("prune leaves free rows", "TestOnlyLocksThatWereReleasedLongAgoArePruned", claimGo,
			"\t\treturn append(drop(o), Write{Kind: Delete, Name: o.Name}", "\t\tif o.Heartbeat.IsZero() {\n\t\t\treturn []Write{{Kind: Delete, Name: o.Name}}\n\t\t}\n\t\treturn append(drop(o), Write{Kind: Delete, Name: o.Name}"),
		one("prune goes by the token of a lock that has a free row", "TestOnlyLocksThatWereReleasedLongAgoArePruned", agesGo,
			"len(leases) == 1 && rows.At.Sub(o.Freed) >= a.Released", "false"),
		one("prune goes on though its caller has stopped", "TestPruneGoesOnlyAsFarAsItsCaller", agesGo,
			"if !yield(some, err) || err != nil {", "if !yield(some, err) && err != nil {"),
		one("prune deletes the trace of an operator's release at once", "TestALockThatWasBrokenIsPrunedAfterTheLongestLease", agesGo,
			"rows.At.Sub(rows.Row(table.BrokenRow(name)).Heartbeat) < table.MaxLease", "rows.At.Before(rows.Row(table.BrokenRow(name)).Heartbeat)")),
	of("./internal/table",
		one("a claim by a free row leaves it", oneCommit, tableFreeGo,
			"requireLease(o.Name, o.Token), Write{Kind: Delete, Name: LeaseKey(o.Name, o.Token)},\n", "requireLease(o.Name, o.Token),\n"),
		one("a claim by a free row does not need it", lateClaim, tableFreeGo,
			"requireLease(o.Name, o.Token), Write{", "Write{"),
		one("a nonce is not compared", "TestOneOfThoseThatChooseTheSameTokenWins", tableFreeGo,
			"err == nil && p.Nonce == c.record.Nonce && !p.Free", "err == nil && !p.Free"),
		one("a token that does not grow", oneCommit, tableFreeGo, "max(last+1, ", "max(last, "),
		one("a token of the future is followed by another", "TestOnlyLocksWithFreeRowsAreClaimedWithout", tableFreeGo,
			"o.Freed.IsZero() || o.Token >= TokenAt(o.At)", "o.Freed.IsZero()"),
		one("a claim is open though a row is in its way", "TestARowMadeByHandDoesNotStopAReleasedLock", tableFreeGo,
			"held || now.Freed.IsZero()", "held && false || now.Freed.IsZero()"),
		one("a retracted claim may be applied yet", lateClaim, tableFreeGo,
			"\t\t{Kind: Delete, Name: h.Key()},\n", ""),
		one("a lock is free since a claim was retracted", "TestARetractedClaimLeavesTheLockFreeSinceItWasReleased", tableFreeGo,
			"c.record.Lease, o.Freed, ", "c.record.Lease, Now, "),
		one("a row in the way of a free row keeps the lock from being released", "TestARowMadeByHandDoesNotStopAReleasedLock", tableReleaseGo,
			"if !errors.Is(err, ErrExists) {", "if true {"),
		one("a free row is a holder's", "TestAFreeRowIsNoHolder", rowsGo, "if !p.Free {", "if true {"),
		one("free rows outlive the lock row", "TestAFreeRowIsNoHolder", claimGo, "for _, token := range o.Orphans {\n", "for token := range o.OrphanLeases {\n"),
		one("free rows of idle locks are kept in lockHistory", "TestAFreeRowIsNoHolder", storeGo,
			"!freedSince(row).IsZero()", "row.Name == \"\"")),
	of("./internal/elect",
		one("the deadline of a claim by a free row counts from the reply", lostMessage, electFreeGo,
			"\t\t\treturn sent, nil\n", "\t\t\treturn c.Clock.Now(), nil\n"),
		one("a claim that was not acknowledged is the own last term", "TestAClaimThatWasLostIsNotTakenForTheOwn", electFreeGo,
			"\tsent := c.Clock.Now()\n\tlate", "\tc.past.own, c.past.names = claim.Token, c.names\n\tsent := c.Clock.Now()\n\tlate"),
		one("all claims of a process have one nonce", "TestAClaimThatWasLostIsNotTakenForTheOwn", electFreeGo,
			"p.Nonce = strconv.FormatInt(int64(c.Clock.Random(math.MaxInt64)), 36)", "_, p.Nonce = strconv.FormatInt(int64(c.Clock.Random(math.MaxInt64)), 36), c.ID"),
		one("a heartbeat under a token whose nonce was not read", "TestAClaimThatWasLostIsNotTakenForTheOwn", electFreeGo,
			"\tcase outcome == table.Lost:\n\t\treturn false, beat, table.ErrChanged\n", ""),
		one("a claim is held however late it is acknowledged", "TestAClaimThatIsAcknowledgedTooLateIsGivenBack", electFreeGo,
			"if err == nil && !late() {", "if err == nil {"),
		one("a claim that is given up may be applied yet", "TestAClaimThatIsGivenUpLeavesTheLockFree", electFreeGo,
			"late() {\n\t\t\tc.giveUp(running, claim)\n", "late() {\n"),
		one("a claim that is given up stays applied", "TestAClaimThatIsGivenUpLeavesTheLockFree", electFreeGo,
			"\t\tcase outcome == table.Won:\n\t\t\treturn c.Table.ReleaseFree(ctx, claim.Token, c.LeaseRecord.Lease, claim.Names()...)\n", ""),
		one("a free row that is gone is an error for good", "TestAClaimWhoseFreeRowIsGoneIsOnlyLate", electFreeGo,
			"if table.Refused(err) {", "if table.Refused(err) || errors.Is(err, table.ErrMissing) {"),
		one("a claim goes on without a table", "TestAClaimEndsWhereThereIsNoTable", electFreeGo,
			"\t\t\tcase hopeless(answer):\n\t\t\t\treturn sent, fmt.Errorf(\"claim: the outcome is unknown: %w\", answer)\n", ""),
		one("a claim of unknown outcome says that its row is missing", "TestAnUnknownOutcomeNamesWhatIsInTheWay", electFreeGo,
			"\t\t\t\terr = answer //", "\t\t\t\t//"),
		one("a token that Spanner refuses is a failure", "TestALockIsClaimedWhoseTokenSpannerRefuses", electGo,
			"case !refusedTime(err):", "default:"),
		one("a waiter looks twice at what was released", "TestAWaiterTakesAReleasedLockInTwoRequests", observerGo,
			"\tif !c.FreeRows && c.Queue == nil {\n\t\treturn on.Observe", "\tif true {\n\t\treturn on.Observe")),
)
