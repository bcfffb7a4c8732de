//go:build mutants

package mutants

import "slices"

const (
	fenceGo       = "internal/fence/fence.go"
	fenceReportGo = "internal/telemetry/span.go"
	snapshotGo    = "internal/table/snapshot.go"
	rowsGo        = "internal/table/rows.go"
	recordGo      = "internal/table/record.go"
	listGo        = "internal/operator/list.go"
	spanGo        = "internal/telemetry/span.go"
)

// The guarantees of the fence, the results of the steps on the table, and the contents of spans.
var fenceMutants = slices.Concat(fencedMutants, foundMutants, spanMutants)

var fencedMutants = of("./internal/fence",
	one("an aborted attempt hides that a later one is fenced", "TestOnlyTheLastAttemptOfATransactionCounts", fenceGo,
		"\t\t\tif refused = txn.BufferWrite(f.Mutations()); refused == nil {\n\t\t\t\trefused = fn(ctx, txn)\n\t\t\t}\n\t\t\treturn refused\n",
		"\t\t\terr := txn.BufferWrite(f.Mutations())\n\t\t\tif err == nil {\n\t\t\t\terr = fn(ctx, txn)\n\t\t\t}\n\t\t\tif err != nil {\n\t\t\t\trefused = err\n\t\t\t}\n\t\t\treturn err\n"),
	one("an error of fn is taken for the fence's", "TestOnlyTheLastAttemptOfATransactionCounts", fenceGo,
		"\tif refused != nil {\n\t\treturn at, err // fn's own error is never about the fence\n\t}\n", ""),
	one("a ctx that has ended asks no more", "TestAWriteThatIsRefusedAsItsCtxEndsIsFenced", fenceGo,
		"context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)", "context.WithTimeout(ctx, 2*time.Second)"),
	one("the caller's isolation level", "TestTheCallersOptionsDoNotWeakenTheFence", fenceGo,
		"opts = append(slices.Clip(opts), spanner.IsolationLevel(sppb.TransactionOptions_SERIALIZABLE))",
		"opts = slices.Concat([]spanner.ApplyOption{spanner.IsolationLevel(sppb.TransactionOptions_SERIALIZABLE)}, opts)"),
	one("the client's isolation level", "TestTheCallersOptionsDoNotWeakenTheFence", fenceGo,
		"spanner.TransactionOptions{IsolationLevel: sppb.TransactionOptions_SERIALIZABLE})", "spanner.TransactionOptions{})"),
	one("the caller's slice is written to", "TestWhatTheCallerGivesIsLeftAsItIs", fenceGo,
		"append(slices.Clip(opts), ", "append(opts, "),
	one("the caller's rows before the fence", "TestAWriteLandsWhileEveryLockIsHeld", fenceGo,
		"append(fs.mutations(), ms...)", "slices.Concat(ms, fs.mutations())"),
	one("only a missing row is a refusal", "TestARefusedWriteIsFencedExactlyIfALockIsLost", fenceGo,
		"case codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange, codes.InvalidArgument:", "case codes.NotFound:"),
	one("whatever is refused is fenced", "TestARefusedWriteIsFencedExactlyIfALockIsLost", fenceGo,
		"\tcase valid:\n", "\tcase valid && f.Token <= 0:\n"),
	one("the first of several fences is enough", "TestACommitUnderSeveralLocksLandsWhileAllAreHeld", fenceGo,
		"\tfor _, f := range fs {\n\t\tall = append(all", "\tfor _, f := range fs[:1] {\n\t\tall = append(all"),
	one("only the first of several fences is asked", "TestACommitUnderSeveralLocksLandsWhileAllAreHeld", fenceGo,
		"\tfor _, f := range fs {\n\t\tif found :=", "\tfor _, f := range fs[:1] {\n\t\tif found :="),
	one("one lock of several is enough", "TestARefusedWriteIsFencedExactlyIfALockIsLost", holdGo,
		"return len(rows) == len(names), err", "return len(rows) > 0, err"),
	one("the present tells whether a lock is lost", "TestARefusedWriteIsFencedExactlyIfALockIsLost", holdGo,
		"t.Store.Read(ctx, \"valid\", Strong, keys)", "t.Store.Read(ctx, \"valid\", Present, keys)"),
	one("what can't be asked is fenced", "TestARefusalThatIsNotUnderstoodIsNotCalledFenced", fenceGo,
		"\tcase readErr != nil:\n\t\treturn fmt.Errorf(\"%w (it is not known whether the fence refused the commit: %w)\", err, f.Wrap(readErr))\n", "\tcase readErr != nil:\n"),
	one("a transaction without a timestamp has landed", "TestAWriteThatIsAnsweredWithoutATimestampHasNotLanded", fenceGo,
		"return table.Acknowledged(resp.CommitTs, err)", "return resp.CommitTs, err"),
	one("the zero token is asked for", "TestATokenThatIsNoneIsRefusedWithoutARequest", fenceGo,
		"\tcase f.Token <= 0:\n", "\tcase f.Token < 0:\n"),
	one("a write to a table in memory is never fenced", "TestAWriteToATableInMemoryIsAnsweredByItsToken", fenceGo,
		"\tcase !valid:\n", "\tcase !valid && began.IsZero():\n"),
	one("a transaction that was not run succeeds", "TestAWriteToATableInMemoryIsAnsweredByItsToken", fenceGo,
		"\terr := f.Wrap(errNotRun)\n", "\tvar err error\n"),
	one("fenced for one of several locks", "TestAFencedWriteIsReportedOnce", fenceReportGo,
		"range s.Locks {", "range s.Locks[:1] {"),
	one("the name of a table that is SQL", "TestATableThatIsNoneFencesNothing", spannerGo,
		"\tif CheckTable(s.Table) != nil {\n\t\treturn spanner.Statement{}\n\t}\n", ""),
)

var foundMutants = of("./internal/table",
	one("eviction without comparing the heartbeat", "TestAMemberThatWasHeardFromIsNotEvicted", claimGo,
		"\t\tif !unchanged(o, rows) {\n", "\t\tif step == \"evict\" && TokenAt(rows.byName[o.Name].Token) != o.Token || step != \"evict\" && !unchanged(o, rows) {\n"),
	one("others' orphan leases reconciled", "TestAMemberFreesNothingOfAnother", memberGo,
		"\t\t\tif o.OrphanLeases[token].With == member.Key() {\n", "\t\t\tif true {\n"),
	one("a claim hours after its look", "TestAClaimLongAfterItsLookGivesNothing", claimGo,
		"case at.After(seen[0].At.Add(recent)):", "case false:"),
	one("a set whose first lock alone is read for new terms", "TestAStepForSeveralLocksLeavesThoseThatChanged", claimGo,
		"\tfor _, o := range seen {\n\t\tif !o.Exists {\n", "\tfor i, o := range seen {\n\t\tif !o.Exists && i == 0 {\n"),
	one("a claim leaves the second of two orphan leases", "TestAClaimLeavesNoLeaseRowOfAnEarlierTerm", claimGo,
		"\tfor _, token := range o.Orphans {\n", "\tfor _, token := range o.Orphans[:min(1, len(o.Orphans))] {\n"),
	one("a lock that was reclaimed was given back", "TestOnlyOwnReleasesAreTakenForSuch", tableReleaseGo,
		"if !exists || reclaimed || ", "if !exists || reclaimed && id == \"\" || "),
	one("a read by a clock that is behind", "TestWhatIsFoundDoesNotDependOnTheLocalClock", tableGo,
		"if err != nil || k.All || !rows.At.After(about.Add(12*time.Hour)) {", "if true {"),
	one("a record without a key is none", "TestARecordThatCanNotBeReadIsNotTakenForNone", doneGo,
		" || j.Key == \"\" {", " {"),
	one("times of other zones are ticks", "TestOnlyTicksAreComparedWithTicks", tickGo,
		"return timeOf(key).UTC().Format(time.RFC3339) == key", "return !timeOf(key).IsZero()"),
)

var spanMutants = of("./internal/telemetry",
	one("a slot that is held after its call has ended is not shown", "TestTheGaugesAreTheSumOfAllCandidatesAndTerms", standingGo,
		"one.candidates == 0 && len(one.terms) == 0", "one.candidates == 0"),
	one("a release that failed ends the handover", "TestASpanSaysAtItsEndWhatCameOfIt", spanGo,
		"string(ReasonOf(err, notReleased))", "\"\""),
	one("a handover that came to nothing is done", "TestASpanSaysAtItsEndWhatCameOfIt", spanGo,
		"if why != \"\" {", "if false {"),
	one("an election that failed was overtaken", "TestASpanSaysAtItsEndWhatCameOfIt", spanGo,
		"\tcase step.Err != nil:\n\t\tw.election.SetAttributes(keyOutcome.String(\"failed\"))\n\t\tfail(w.election, step.Err)\n", ""),
	one("steps that failed are done", "TestASpanSaysAtItsEndWhatCameOfIt", spanGo,
		"c.code != codes.OK {\n\t\tfail(span, c.err)\n\t}", "false {\n\t\tfail(span, c.err)\n\t}"),
)
