//go:build mutants

package mutants

const (
	memberGo    = "internal/table/member.go"
	claimableGo = "group/claimable.go"
	evictGo     = "group/evict.go"
	whoGo       = "internal/plan/who.go"
	groupRunGo  = "group/run.go"
	groupSeenGo = "group/seen.go"
	groupTermGo = "group/term.go"
	inventoryGo = "group/inventory.go"
	joinGo      = "group/join.go"
	looksGo     = "group/looks.go"
	movesGo     = "group/moves.go"
	paceGo      = "group/pace.go"
	planningGo  = "internal/plan/planning.go"
)

// groupMutants must break an invariant of the group simulation (see verify/simulation/group_check_test.go).
var groupMutants = []mutant{
	// The steps on the table.
	one("eviction of another instant than the observation", "evicted in time", memberGo,
		"\t\t\tif unchanged(o, rows) {\n\t\t\t\twrites = append(append(writes, drop(o)...)",
		"\t\t\tif o = lockRow(o.Name, o.At, rows); o.Confirmed() {\n\t\t\t\twrites = append(append(writes, drop(o)...)"),
	one("confirmation without the member's check", "member there", memberGo,
		"writes := []Write{requireLease(member.Name, member.Token)}", "writes := []Write{}"),
	one("claim that leaves the old lease row", "fence", claimGo,
		"\t\twrites = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, o.Token)})\n", ""),

	// The interpretation of a look.
	one("eviction by the local clock", "evicted in time", whoGo,
		"s.At.Sub(o.Heartbeat) < m.LeaseOf(o) {", "time.Now().Sub(o.Heartbeat) < m.LeaseOf(o) {"),
	one("eviction by the own lease", "evicted in time", whoGo,
		"\treturn cmp.Or(m.Leases[table.LeaseRef{Name: o.Name, Token: o.Token}], m.Lease)\n", "\treturn m.Lease\n"),
	{"two reads for one snapshot", "claimed in time", []edit{
		{groupTermGo, "\tprogress progress\n", "\tprogress progress\n\tearlier  map[string]table.Observation\n"},
		{groupSeenGo, "\tif s.Members != nil {\n\t\tt.learn(s)\n",
			"\tif before := t.earlier; s.Members != nil {\n\t\tif t.earlier = s.Members; before != nil {\n\t\t\ts.Members = before\n\t\t}\n\t\tt.learn(s)\n"},
	}},
	one("missing member taken for one that is over", "claimed in time", claimableGo,
		"return j.left(since.Add(max(leases, j.memory.Leases[with], j.lease)))", "return j.left(since)"),
	one("orphan leases ignored", "claimed in time", claimableGo,
		"\tfor _, p := range o.OrphanLeases {\n\t\twait", "\tfor _, p := range map[table.Token]table.LeaseRecord{} {\n\t\twait"),
	one("every member is over", "claimed in time", claimableGo,
		"\tcase o.Exists && plan.Over(o, with.Token):", "\tcase o.Exists:"),

	// Claims, held partitions and releases.
	one("acting after the deadline", "one worker", inventoryGo,
		"return a.ctx.Err() == nil && a.in.lease.Held() && a.in.looks.left() > 0", "return true"),
	one("member that goes on without looking", "ctx ends", groupTermGo,
		"\tt.looks.readDeadline = clock.AfterFunc(t.looks.limit(), func() { lease.CancelWork(t.looks.late()) })\n",
		"\tt.looks.readDeadline = clock.AfterFunc(1000*t.looks.limit(), func() {})\n"),
	one("released before the work has returned", "work first", movesGo,
		"case e.state != revoking || e.busy != nil && e.busy == e.assigned && !e.assigned.let:", "case e.state != revoking:"),
	one("leaving before all work has returned", "work first", groupTermGo,
		"t.lease.Context().Err() != nil && !t.m.inventory.works(t, false)\n", "t.lease.Context().Err() != nil\n"),
	one("next term before the work has returned", "work first", groupRunGo,
		"\t\t\tm.await(ctx, m.config.Lease) //", "\t\t\t//"),
	{"work on a partition whose last work has not returned", "one work", []edit{
		{decideGo, "l.target, l.busy = e.target && !e.paused, e.busy != nil", "l.target, l.busy = e.target && !e.paused, false"},
		{looksGo, "e.state == free && e.busy == nil {", "e.state == free {"},
		{movesGo, "t.acts() && !t.leaving() && e.busy == nil {", "t.acts() && !t.leaving() {"},
	}},
	one("what the table shows as the own is adopted", "tokens grow", movesGo,
		"\t\te.claim(t.looks.number)\n",
		"\t\tif e.state == unresolved && o.Confirmed() && e.busy == nil {\n\t\t\tt.begin(e, o.Token)\n\t\t\tcontinue\n\t\t}\n\t\te.claim(t.looks.number)\n"),
	one("acting again after a release was sent", "tokens grow", movesGo,
		"\t\t\te.doubt(t.looks.number)\n\t\t}\n\t\tt.m.problems.Note(fmt.Errorf(\"release",
		"\t\t\tif e.target && e.busy == nil && t.acts() && !t.leaving() {\n\t\t\t\tt.begin(e, e.assigned.token)\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\te.doubt(t.looks.number)\n\t\t}\n\t\tt.m.problems.Note(fmt.Errorf(\"release"),
}

// groupShortMutants must each fail the test of package group that they name.
var groupShortMutants = of("./group",
	one("release whose outcome is not known forgotten", "TestOutcomesThatAreNotKnownAreReconciled", movesGo,
		"\t\t\te.doubt(t.looks.number)\n\t\t}\n\t\tt.m.problems.Note(fmt.Errorf(\"release", "\t\t\te.clear(t.looks.number)\n\t\t}\n\t\tt.m.problems.Note(fmt.Errorf(\"release"),
	one("newcomers counted at once", "TestAMemberThatEndsWheneverItStartsTakesNothing", planningGo,
		"if !known && o.Heartbeat.Sub(began) < o.LeaseRecord.Lease && ", "if false && "),
	one("timer by the member alone", "TestWhenAPartitionCanBeClaimed", claimableGo,
		"\tswitch since, missing := j.memory.Missing[with]; {\n",
		"\tsince, missing := time.Time{}, false\n\tfor h, at := range j.memory.Missing {\n\t\tif h.Name == with.Name {\n\t\t\tsince, missing = at, true\n\t\t}\n\t}\n\tswitch {\n"),
	one("bare claim of a live member waited for", "TestWhenAPartitionCanBeClaimed", claimableGo,
		"return min(j.freeWith(with, never), j.left(o.Heartbeat.Add(j.lease))), false", "return j.freeWith(with, never), false"),
	one("member that can't claim never goes", "TestAMemberThatCanNotClaimLeavesItToOthers", groupTermGo,
		"if !t.leaving() && t.progress.useless(", "if false && t.progress.useless("),
	one("member that can't release never goes", "TestAMemberThatCanNotReleaseLeavesItToOthers", movesGo,
		"\tcase elect.First(err) && !errors.Is(err, table.ErrAborted):\n", "\tcase true:\n"),
	mutant{"reply of an earlier term believed", "TestAReplyThatOutlivesTheTermBeginsNoWork", []edit{
		{groupRunGo, "\tmemory *plan.Memory\n", "\tmemory *plan.Memory\n\tresults chan func()\n"},
		{executorGo, "\tx.ctx, x.cancel = context.WithCancel(ctx)\n",
			"\tx.ctx, x.cancel = context.WithCancel(ctx)\n\tif m.results == nil {\n\t\tm.results = x.results\n\t}\n\tx.results = m.results\n"},
		{executorGo, "\t\tcase <-x.ctx.Done():\n", "\t\tcase <-time.After(100 * x.lease):\n"},
	}},
	one("Has without the deadline of looks", "TestHasIsFalseOnceTheWorkIsRevoked", inventoryGo,
		"return a.ctx.Err() == nil && a.in.lease.Held() && a.in.looks.left() > 0", "return a.in.lease.Held()"),
	one("every failure counts as a lost claim", "TestAnOutageMakesNobodyTakeAHighSlot", joinGo,
		"\t\tstep, err := m.tryJoin(ctx, &c)\n", "\t\tstep, err := m.tryJoin(ctx, &c)\n\t\tc.lost++\n"),
	mutant{"claim whose outcome is not known forgotten", "TestAClaimOfUnknownOutcomeIsFreedForOthers", []edit{
		{movesGo, "\t\te.doubted = true //", "\t\te.doubted = false //"},
		{movesGo, "lease, err)\n\t\te.doubt(t.looks.number)\n", "lease, err)\n\t\te.clear(t.looks.number)\n"},
	}},
	one("nothing reconciled", "TestAClaimOfUnknownOutcomeIsFreedForOthers", groupSeenGo,
		"\tt.reconcile(d.reconcile)\n", ""),
	one("partition whose lease row is gone kept", "TestALeaseRowThatIsGoneIsNoticed", groupSeenGo,
		"return partitionView{gone: read && !valid}", "return partitionView{gone: read && !valid && false}"),
	mutant{"another's slot for who had all its rows deleted", "TestAMemberWhoseRowsWereDeletedTakesNobodysSlot", []edit{
		{whoGo, "top := slotOf(last) - 1", "top := 0*slotOf(last) - 1"},
		{whoGo, "\t\t\ttop = max(top, p.Slot)\n", "\t\t\ttop = max(top, 0*p.Slot-1)\n"},
	}},
	one("looks that take turns", "TestPartitionsOfMembersThatWereDeletedAreClaimed", groupSeenGo,
		"_, e.leases = j.claimableIn(lockRow(o), e.history)", "_, e.leases = j.claimableIn(o, e.history)"),
	mutant{"looks after their deadline", "TestAMemberThatLeavesDoesNotLookInVain", []edit{
		{looksGo, "\tif t.looks.left() > 0 {\n\t\tt.soon(t.looks.beforeRetry())", "\tif true {\n\t\tt.soon(t.looks.beforeRetry())"},
		{looksGo, "\t\t\tl.next.off()\n\t\t\tt.lease.CancelWork", "\t\t\tt.soon(0)\n\t\t\tt.lease.CancelWork"},
	}},
	one("reclaimed term that begins anew", "TestAMemberThatReclaimsHasItsPartitionsBackAtOnce", joinGo,
		"\t\t\t\tm.candidate.LeaseRecord.Since = plan.Since(s.Observation)\n", ""),
	one("all work that moves revoked at once", "TestManyPartitionsMoveSomeAtATime", groupSeenGo,
		"f.room = max(t.m.config.Batch/2, 1)", "f.room = len(t.m.inventory.all)"),
	one("no time for those who claim", "TestManyPartitionsMoveSomeAtATime", paceGo,
		"t.revokes.set(t.m.config.Clock, 2*released)", "t.revokes.set(t.m.config.Clock, 0*released)"),
	one("only the first of many looked at", "TestWorkThatHangsKeepsNoOtherOfManyPartitionsFromMoving", groupSeenGo,
		"\t\tt.looks.turn += 2 * t.m.config.Batch\n", ""),
	one("a look that leaves out what the member holds for a whole one", "TestWhoWaitsStillSeesThatItsOwnRowsAreGone", looksGo,
		"if whole && !l.extend(sent) {", "if !l.extend(sent) {"),
	one("every look a whole one", "TestWhoWaitsDoesNotReadWhatItHas", looksGo,
		"whole := l.skip > 0 || ", "whole := l.skip >= 0 || "),
	one("a cool-down without looks", "TestWorkThatHangsIsSaidWhileItsMemberCoolsDown", groupRunGo,
		"\t\tstep := min(lease, left)\n", "\t\tstep := max(lease, left)\n"),
	one("partitions for nobody while there are two lists", "TestAPartitionThatOnlyTheOldListHasIsClaimedWhenItsMemberDies", planningGo,
		"if !p.Counts() {",
		"if !p.Counts() || slices.ContainsFunc(p.members, func(m Member) bool { return m.List != p.Setting.List.Digest() }) {"),
)
