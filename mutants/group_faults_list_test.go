//go:build mutants

package mutants

const groupHealthGo = "group/health.go"

// What members do about rows that somebody has damaged, and about steps that fail again and again.
var groupFaultMutants = of("./group",
	one("aborted steps tried for ever", "TestATakeThatIsAbortedAgainAndAgainIsTriedLessOften", moveGo,
		"if !errors.Is(err, table.ErrAborted) || t.config.Clock.Now().Since(began) >= t.config.Lease/20 {", "if !errors.Is(err, table.ErrAborted) || began == (elect.Instant{}) {"),
	one("a partition that is lost is given", "TestAPartitionThatIsLostHoldsNoOtherUp", moveGo,
		"\t\tcase !h.lost:\n", "\t\tdefault:\n"),
	one("slots that can't be read are candidates", "TestAMemberWhoseRowCanNotBeReadKeepsNobodyFromJoining", joinGo,
		"r.Unreadable[name] == nil && !m.mayAct", "!m.mayAct"),
	one("as old as in the slot that another has", "TestAMemberThatLostTheSlotThatItReclaimedIsNew", joinGo,
		"\tm.candidate.Promise.Since = 0\n", ""),
	one("members that can't be read buried", "TestAMemberWhoseLeaseRowCanNotBeReadIsNotOverByItself", lookGo,
		" || r.Unreadable[name] != nil || r.At", " || r.At"),
	one("a promise forgotten with its row", "TestAMemberWhoseLeaseRowIsGoneIsNotOverBeforeItsLease", lookGo,
		"} else if known, ok := t.promised[h]; ok {", "} else if known, ok := t.promised[h]; ok && known == 0 {"),
	one("a promise forgotten once it can't be read", "TestAMemberWhoseLeaseRowIsGoneIsNotOverBeforeItsLease", lookGo,
		"if o.Promise != nil && r.Unreadable[name] == nil {", "if o.Promise != nil {"),
	one("never is 292 years", "TestWhenAPartitionCanBeTaken", freeGo,
		" && missing && promised != never:", " && missing:"),
	one("an absence that was over", "TestAnAbsenceCountsFromWhenTheRowWasThereLast", freeGo,
		"\t\tm.feared, m.absent = 0, time.Time{}\n", "\t\tm.feared = 0\n"),
	one("work that hangs is said once", "TestEachTimeThatWorkHangsIsSaid", groupHealthGo,
		"\t\tm.reminded = 0\n", ""),
	one("members of an older list give to each other", "TestMembersOfAnOlderListGiveNothingToEachOther", paceGo,
		"if t.leaving() || t.elder {", "if t.leaving() {"),
	one("slots that can't be read, in a group whose rows are damaged", "FuzzDamagedRows", joinGo,
		"r.Unreadable[name] == nil && !m.mayAct", "!m.mayAct"),
	one("a slot taken before the lease that was promised", "TestAMemberThatJoinsAgainTakesNoSlotBeforeItsLeaseHasEnded", joinGo,
		" && !m.mayAct(r.Members[name]) {", " {"),
)
