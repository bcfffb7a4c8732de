//go:build mutants

package mutants

const groupHealthGo = "group/health.go"

// The behavior of members with damaged rows, and with steps that fail repeatedly.
var groupFaultMutants = of("./group",
	one("aborted steps tried for ever", "TestAStepThatIsAbortedEachTimeIsGivenUpSoon", executorGo,
		"if !errors.Is(err, table.ErrAborted) || clock.Now().Since(began) >= lease/20 || ", "if !errors.Is(err, table.ErrAborted) || began == (elect.Instant{}) || "),
	one("a partition that is lost is released", "TestAPartitionThatIsLostHoldsNoOtherUp", movesGo,
		"\t\tcase e.assigned.lost:\n", "\t\tcase e.assigned.lost && false:\n"),
	one("slots that can't be read are candidates", "TestAMemberWhoseRowCanNotBeReadKeepsNobodyFromJoining", joinGo,
		"s.Unreadable[name] == nil && !m.mayAct", "!m.mayAct"),
	one("as old as in the slot that another has", "TestAMemberThatLostTheSlotThatItReclaimedIsNew", joinGo,
		"\tm.candidate.LeaseRecord.Since = 0\n", ""),
	one("members that can't be read evicted", "TestAMemberWhoseLeaseRowCanNotBeReadIsNotOverByItself", evictGo,
		" || s.Unreadable[name] != nil || s.At", " || s.At"),
	one("a record forgotten with its lease row", "TestAMemberWhoseLeaseRowIsGoneIsNotOverBeforeItsLease", groupRunGo,
		"o.Exists && over(o, h.Token) {", "o.Exists && (over(o, h.Token) || o.LeaseRecord == nil) {"),
	one("a record forgotten with all its rows", "TestTheLeaseOfAMemberWhoseRowsAreGoneIsKept", groupRunGo,
		"o.Exists && over(o, h.Token) {", "!o.Exists || over(o, h.Token) {"),
	one("a record forgotten once it can't be read", "TestAMemberWhoseLeaseRowIsGoneIsNotOverBeforeItsLease", groupRunGo,
		"if o.LeaseRecord != nil && s.Unreadable[name] == nil {", "if o.LeaseRecord != nil {"),
	one("never is 292 years", "TestWhenAPartitionCanBeClaimed", claimableGo,
		" && missing && leases != never:", " && missing:"),
	one("an absence that was over", "TestAnAbsenceCountsFromWhenTheRowWasThereLast", claimableGo,
		"\t\th.assumed, h.absent = 0, time.Time{}\n", "\t\th.assumed = 0\n"),
	one("an absence that ended with a holder", "TestASecondAbsenceCountsFromItsBeginning", claimableGo,
		"h.assumed, h.absent = lease, time.Time{}", "h.assumed = lease"),
	one("work that hangs is said once", "TestEachTimeThatWorkHangsIsSaid", groupHealthGo,
		"\t\tm.reminded = 0\n", ""),
	one("members of each list plan for themselves", "TestACanaryWithANewerListHasItsShare", planningGo,
		"if !present(o) || s.Unreadable[name] != nil {", "if !present(o) || s.Unreadable[name] != nil || o.LeaseRecord.ListDigest != p.list.Digest() {"),
	one("slots that can't be read, in a group whose rows are damaged", "FuzzDamagedRows", joinGo,
		"s.Unreadable[name] == nil && !m.mayAct", "!m.mayAct"),
	one("a slot claimed before the lease that was leases", "TestAMemberThatJoinsAgainTakesNoSlotBeforeItsLeaseHasEnded", joinGo,
		" && !m.mayAct(s.Members[name]) && ", " && "),
)
