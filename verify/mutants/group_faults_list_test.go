//go:build mutants

package mutants

const groupHealthGo = "group/health.go"

// The behavior of members with damaged rows, and with steps that fail repeatedly.
var groupFaultMutants = of("./group",
	one("aborted steps tried for ever", "TestAMemberWhoseClaimsAreAbortedSendsOneAtATime", sendGo,
		"if !errors.Is(err, table.ErrAborted) || clock.Now().Since(began) >= r.repeats() || ", "if !errors.Is(err, table.ErrAborted) || began == (elect.Instant{}) || "),
	one("a partition that is lost is released", "TestAPartitionThatIsLostHoldsNoOtherUp", inventoryGo,
		"\t\tcase e.Assigned.Lost:\n", "\t\tcase e.Assigned.Lost && false:\n"),
	one("slots that can't be read are candidates", "TestAMemberWhoseRowCanNotBeReadKeepsNobodyFromJoining", whoGo,
		"s.Unreadable[name] == nil && !m.mayAct", "!m.mayAct"),
	one("as old as in the slot that another has", "TestAMemberThatLostTheSlotThatItReclaimedIsNew", joinGo,
		"\tm.candidate.LeaseRecord.Since = 0\n", ""),
	one("a record forgotten with its lease row", "TestAMemberWhoseLeaseRowIsGoneIsNotOverBeforeItsLease", whoGo,
		"return o.Exists && Over(o, h.Token)\n", "return o.Exists && (Over(o, h.Token) || o.LeaseRecord == nil)\n"),
	one("a record forgotten with all its rows", "TestTheLeaseOfAMemberWhoseRowsAreGoneIsKept", whoGo,
		"return o.Exists && Over(o, h.Token)\n", "return !o.Exists || Over(o, h.Token)\n"),
	one("a record forgotten once it can't be read", "TestAMemberWhoseLeaseRowIsGoneIsNotOverBeforeItsLease", whoGo,
		"if o.LeaseRecord != nil && s.Unreadable[name] == nil {", "if o.LeaseRecord != nil {"),
	one("a late answer extends the read deadline", "TestAMemberThatIsCutOffStopsAHundredthBeforeItsLeaseEnds", pollsGo,
		"p.readDeadline.Reset(p.left())", "p.readDeadline.Reset(p.limit())"),
	one("a member that works on nothing is healthy", "TestAMemberThatWorksOnNothingBecauseNothingSucceedsSaysSo", groupHealthGo,
		"t.conduct.FailingSince(acted)", "t.conduct.FailingSince(acted+1)"),
	one("work that hangs is said once", "TestEachTimeThatWorkHangsIsSaid", groupHealthGo,
		"e.Busy.Reminded, first = waited,", "e.Busy.Reminded, first = 1<<60,"),
	one("members of each list plan for themselves", "TestACanaryWithANewerListHasItsShare", planningGo,
		"if !Present(o) || s.Unreadable[name] != nil {", "if !Present(o) || s.Unreadable[name] != nil || o.LeaseRecord.ListDigest != p.Setting.List.Digest() {"),
)
