//go:build mutants

package mutants

import "slices"

const exactRows = "TestEachStepLeavesExactlyItsRows"

// rowMutants break what a step leaves in its rows, or what it makes of the rows of others.
var rowMutants = slices.Concat(
	of("./internal/table",
		one("an ordinary lock with the name of a paused partition is released", "TestAMemberChangesNoRowsOfOthersWhoMayAct", memberGo,
			"!is || !over(with)", "is && !over(with)"),
		one("a partition of another term of the slot is reconciled", "TestAMemberChangesNoRowsOfOthersWhoMayAct", memberGo,
			"o.Exists && o.Writer == member.Key() && ", "with, _ := MemberOf(o.Writer); o.Exists && with.Name == member.Name && "),
		one("a release that leaves no free row records nothing", exactRows, tableReleaseGo,
			"return t.under(ctx, step, token, names, release, also...)", "return t.under(ctx, step, token, names, release, t.also...)"),
		one("a holder is notified under the name of another lock", exactRows, claimGo,
			"p.Notify = t.Contact(LeaseKey(name, token))", "p.Notify = t.Contact(LeaseKey(names[0], token))"),
		one("the outcome of a claim is that of its first lock", "TestTheOutcomeOfAClaimOfSeveralLocksIsThatOfAll", tableFreeGo,
			"\toutcome := Open\n\tfor _, o := range c.seen {", "\toutcome := Open\n\tfor _, o := range c.seen[:1] {"),
		one("a later lock is looked at since the first one's token", "TestSeveralLocksAreLookedAtEachByItself", observeGo,
			"LeaseKey(name, since[i])", "LeaseKey(name, since[0])"),
		one("a long poll is dated before its rows", "TestThePartsOfAPollAreReadAsTheWhole", ticketGo,
			"if rows, at, err = s.Read(ctx, step, bound, keys); err != nil {", "if rows, _, err = s.Read(ctx, step, bound, keys); err != nil {"),
		one("a plan has the body of another", "TestAPlanReplacesTheOneThatItsPublisherHasRead", snapshotGo,
			"; TokenAt(body.Token) == s.Plan {", "; s.Plan != 0 {")),
	of("./internal/operator",
		one("the count of a prune that fails begins with its second half", "TestPruneCountsWhatItHasDeleted", claimGo,
			"return a + b, err", "if err != nil {\n\t\t\treturn b, err\n\t\t}\n\t\treturn a + b, nil")),
	of("./internal/batch",
		one("looks of different bounds share a read", "TestEachLookHasItsOwnBound", "internal/batch/reads.go",
			"return int(r.bound) }", "return 0 }")),
)
