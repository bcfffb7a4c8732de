//go:build mutants

package mutants

const (
	memberGo    = "internal/table/member.go"
	freeGo      = "group/free.go"
	joinGo      = "group/join.go"
	lookGo      = "group/look.go"
	moveGo      = "group/move.go"
	paceGo      = "group/pace.go"
	partitionGo = "group/partition.go"
	groupTermGo = "group/term.go"
	groupLoopGo = "group/member.go"
	groupPlanGo = "group/plan.go"
)

// groupMutants must break an invariant of the simulation of groups (they are listed in simulation/group_check_test.go).
var groupMutants = []mutant{
	// The steps on the table.
	one("burial without comparing the heartbeat", "buried in time", memberGo,
		"\t\tif !unchanged(o, rows) {\n\t\t\treturn nil, ErrChanged\n\t\t}\n\t\treturn append(drop(o)",
		"\t\tif TokenAt(rows[o.Name].Token) != o.Token {\n\t\t\treturn nil, ErrChanged\n\t\t}\n\t\treturn append(drop(o)"),
	one("burial of another instant than the observation", "buried in time", memberGo,
		"\t\tif !unchanged(o, rows) {\n\t\t\treturn nil, ErrChanged\n\t\t}\n\t\treturn append(drop(o)",
		"\t\tif o = lockRow(o.Name, o.At, rows); !o.Confirmed() {\n\t\t\treturn nil, ErrChanged\n\t\t}\n\t\treturn append(drop(o)"),
	one("confirmation without the member's check", "member there", memberGo,
		"writes := []Write{good(member.Name, member.Token)}", "writes := []Write{}"),
	one("claim that leaves the old lease row", "fence", claimGo,
		"\t\twrites = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, o.Token)})\n", ""),

	// What a look is taken for.
	one("burial by the local clock", "buried in time", lookGo,
		"r.At.Sub(o.Heartbeat) < t.leaseOf(o) {\n\t\t\tcontinue", "t.config.Clock.Now().Time().Sub(o.Heartbeat) < t.leaseOf(o) {\n\t\t\tcontinue"),
	one("burial by the own lease", "buried in time", lookGo,
		"\treturn cmp.Or(t.promised[table.Hold{Name: o.Name, Token: o.Token}], t.config.Lease)\n", "\tcmp.Or(o.Token)\n\treturn t.config.Lease\n"),
	{"two reads for one snapshot", "taken in time", []edit{
		{groupTermGo, "\tretry   elect.Backoff // of looks\n", "\tretry   elect.Backoff // of looks\n\tearlier map[string]table.Observation\n"},
		{lookGo, "\tt.retry.Reset()\n\tt.check", "\tt.retry.Reset()\n\tif before := t.earlier; r.Members != nil {\n\t\tif t.earlier = r.Members; before != nil {\n\t\t\tr.Members = before\n\t\t}\n\t}\n\tt.check"},
	}},
	one("missing member taken for one that is over", "taken in time", freeGo,
		"return j.left(since.Add(promised))", "return j.left(since)"),
	one("stray lease rows ignored", "taken in time", freeGo,
		"\tfor _, p := range o.Strays {\n", "\tfor _, p := range map[table.Token]table.Promise{} {\n"),
	one("whoever has it is over", "taken in time", freeGo,
		"\tcase o.Exists && over(o, with.Token):", "\tcase o.Exists:"),

	// What is taken, had and given.
	one("acting after the deadline", "one worker", partitionGo,
		"return h.ctx.Err() == nil && h.in.lease.Held() && h.in.config.Clock.Now().Since(*h.in.looked.Load()) < h.in.limit()", "return true"),
	one("member that goes on without looking", "ctx ends", groupTermGo,
		"\tt.blind = m.config.Clock.AfterFunc(t.limit(), func() { lease.Tell(spindle.ErrExpired) })\n",
		"\tt.blind = m.config.Clock.AfterFunc(1000*t.limit(), func() {})\n"),
	one("given before the work has returned", "work first", moveGo,
		"case h == nil || !h.told || h.working:", "case h == nil || !h.told:"),
	one("leaving before all work has returned", "work first", groupTermGo,
		"t.lease.Context().Err() != nil && !t.works(false)\n", "t.lease.Context().Err() != nil\n"),
	one("next term before the work has returned", "work first", groupLoopGo,
		"\tm.await(ctx, m.config.Lease)\n", ""),
	one("work on a partition whose last work has not returned", "one work", paceGo,
		"t.have[s] == nil && s.busy == nil {", "t.have[s] == nil {"),
	one("what the table shows as the own is adopted", "tokens grow", lookGo,
		"\t\to := r.Partitions[s.lock]\n\t\twait, _",
		"\t\to := r.Partitions[s.lock]\n\t\tif t.loose[s] && o.Surveyed && o.Confirmed() && t.names(o) {\n\t\t\tt.begin(s, o.Token)\n\t\t\tcontinue\n\t\t}\n\t\twait, _"),
	one("acting again after a give was sent", "tokens grow", moveGo,
		"\t\tt.problems.Note(fmt.Errorf(\"give: %w\", err))\n",
		"\t\tfor _, h := range holds {\n\t\t\tif s := t.byLock[h.Name]; t.mine[s] {\n\t\t\t\tt.begin(s, h.Token)\n\t\t\t}\n\t\t}\n"),
}

// groupShortMutants must each fail the one test of package group that they name.
var groupShortMutants = of("./group",
	one("give whose outcome is not known forgotten", "TestOutcomesThatAreNotKnownAreSettled", moveGo,
		"\t\tdelete(t.have, s)\n\t\tt.loose[s] = true\n", "\t\tdelete(t.have, s)\n"),
	one("newcomers counted at once", "TestAMemberThatEndsWheneverItStartsTakesNothing", groupPlanGo,
		"if o.Heartbeat.Sub(began.Time()) < o.Promise.Lease && ", "if false && "),
	one("timer by the member alone", "TestWhenAPartitionCanBeTaken", freeGo,
		"\tswitch since, missing := j.missing[with]; {\n",
		"\tsince, missing := time.Time{}, false\n\tfor h, at := range j.missing {\n\t\tif h.Name == with.Name {\n\t\t\tsince, missing = at, true\n\t\t}\n\t}\n\tswitch {\n"),
	one("bare claim of a live member waited for", "TestWhenAPartitionCanBeTaken", freeGo,
		"return min(j.freeWith(with, never), j.left(o.Heartbeat.Add(j.lease))), false", "return j.freeWith(with, never), false"),
	one("member that can't take never goes", "TestAMemberThatCanNotTakeLeavesItToOthers", groupTermGo,
		"return !t.leaving() && t.failing != ", "return false && t.failing != "),
	one("member that can't give never goes", "TestAMemberThatCanNotGiveLeavesItToOthers", moveGo,
		"\t\t\tt.endanger(\"settle\", err)\n", ""),
	one("take that came to nothing ends the term", "TestATakeThatFailedOnceCostsNoTerm", lookGo,
		"\t\tt.succeeded() // what", "\t\t// what"),
	one("reply of an earlier term believed", "TestAReplyThatOutlivesTheTermBeginsNoWork", moveGo,
		"\tif !t.acts() {\n\t\th.tell(context.Cause(h.ctx))\n\t\treturn\n\t}\n", ""),
	one("Has without the deadline of looks", "TestHasIsFalseOnceTheWorkWasTold", partitionGo,
		"return h.ctx.Err() == nil && h.in.lease.Held() && h.in.config.Clock.Now().Since(*h.in.looked.Load()) < h.in.limit()", "return h.in.lease.Held()"),
	one("every failure counts as a lost claim", "TestAnOutageMakesNobodyTakeAHighSlot", joinGo,
		"\t\tstep, err := m.tryJoin(ctx, &c)\n", "\t\tstep, err := m.tryJoin(ctx, &c)\n\t\tc.lost++\n"),
	one("take whose outcome is not known forgotten", "TestATakeOfUnknownOutcomeIsFreedForOthers", moveGo,
		"\tfor _, s := range shares {\n\t\tt.loose[s] = true\n\t}\n", ""),
	one("nothing settled", "TestATakeOfUnknownOutcomeIsFreedForOthers", lookGo,
		"\tt.settle(ctx, unsettled)\n", ""),
	one("partition whose lease row is gone kept", "TestALeaseRowThatIsGoneIsNoticed", lookGo,
		"\tt.check(r)\n", ""),
	one("another's slot for who had all its rows deleted", "TestAMemberWhoseRowsWereDeletedTakesNobodysSlot", joinGo,
		"top := own.Slot - 1", "top := 0*own.Slot - 1"),
	one("looks that take turns", "TestPartitionsOfMembersThatWereDeletedAreTaken", lookGo,
		"freeIn(table.Sighting{Observation: lockRow(o)}, *t.traces[s])\n\t\tmore = more || t.surveys[s] && !o.Surveyed", "freeIn(o, *t.traces[s])\n\t\tmore = more || t.surveys[s]"),
	one("looks after their deadline", "TestAMemberThatLeavesDoesNotLookInVain", lookGo,
		"\t\tt.next.off()\n", ""),
	one("reclaimed term that begins anew", "TestAMemberThatReclaimsHasItsPartitionsBackAtOnce", joinGo,
		"\t\t\t\tm.candidate.Promise.Since = since(s.Observation)\n", ""),
	one("all work that is to go told at once", "TestManyPartitionsMoveSomeAtATime", paceGo,
		"case told == most:", "case told == -most:"),
	one("no time for those who take", "TestManyPartitionsMoveSomeAtATime", moveGo,
		"\tt.pause(t.config.Clock.Now().Since(began))\n", "\t_ = began\n"),
	one("only the first of many looked at", "TestWorkThatHangsKeepsNoOtherOfManyPartitionsFromMoving", paceGo,
		"\tt.turn += 2 * t.config.Batch\n", ""),
	one("a look that leaves out what the member has taken for a whole one", "TestWhoWaitsStillSeesThatItsOwnRowsAreGone", lookGo,
		"if whole && !t.extend(sent) {", "if !t.extend(sent) {"),
	one("every look a whole one", "TestWhoWaitsDoesNotReadWhatItHas", lookGo,
		"whole := t.skip > 0 || ", "whole := t.skip >= 0 || "),
	one("a rest taken for silence", "TestAMemberThatRestsIsHealthy", groupLoopGo,
		"\tm.pulse.Rest(m.pause)\n", ""),
	one("partitions of the older list for nobody", "TestAPartitionThatOnlyTheOldListHasIsTakenWhenItsMemberDies", lookGo,
		"max(m.free.Add(patienceOfElders*", "max(m.free.Add(1000*patienceOfElders*"),
)
