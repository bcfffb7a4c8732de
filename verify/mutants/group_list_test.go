//go:build mutants

package mutants

const (
	memberGo    = "internal/table/member.go"
	claimableGo = "internal/share/claimable.go"
	whoGo       = "internal/plan/who.go"
	groupRunGo  = "group/run.go"
	groupTermGo = "group/term.go"
	inventoryGo = "internal/share/inventory.go"
	joinGo      = "group/join.go"
	pollsGo     = "group/polls.go"
	suspectsGo  = "internal/share/suspects.go"
	sharePollGo = "internal/share/poll.go"
	upkeepGo    = "group/upkeep.go"
	movesGo     = "group/moves.go"
	planningGo  = "internal/plan/planning.go"
)

// groupMutants must break an invariant of the group simulation (see verify/simulation/group_check_test.go).
var groupMutants = []mutant{
	// The steps on the table.
	one("eviction of another instant than the observation", "evicted in time", claimGo,
		"\t\tif !unchanged(o, rows) {\n", "\t\tif step == \"evict\" {\n\t\t\to, _ = rows.Observe(o.Name)\n\t\t}\n\t\tif !unchanged(o, rows) {\n"),
	one("confirmation without the member's check", "member there", claimGo,
		"names, requireLease(member.Name, member.Token))", "names)"),

	// The interpretation of a look.
	one("eviction by a clock that is ahead", "evicted in time", whoGo,
		"s.At.Sub(o.Heartbeat) < m.LeaseOf(o) {", "s.At.Add(m.LeaseOf(o)/3).Sub(o.Heartbeat) < m.LeaseOf(o) {"),
	one("eviction by the own lease", "evicted in time", whoGo,
		"\treturn cmp.Or(m.Leases[table.LeaseRef{Name: o.Name, Token: o.Token}], m.Lease)\n", "\treturn m.Lease\n"),
	{"two reads for one snapshot", "claimed in time", []edit{
		{pollsGo, "\tpending bool  // a poll is in progress\n", "\tpending bool  // a poll is in progress\n\tearlier map[string]table.Observation\n"},
		{pollsGo, "\tif s.Members != nil {\n\t\tp.learn(s)\n",
			"\tif before := p.earlier; s.Members != nil {\n\t\tif p.earlier = s.Members; before != nil {\n\t\t\ts.Members = before\n\t\t}\n\t\tp.learn(s)\n"},
	}},
	one("missing member taken for one that is over", "claimed in time", claimableGo,
		"return j.left(since.Add(max(leases, j.Memory.Leases[with], j.Memory.Lease)))", "return j.left(since)"),
	one("orphan leases ignored", "claimed in time", claimableGo,
		"\tfor _, p := range o.OrphanLeases {\n\t\twait", "\tfor _, p := range map[table.Token]table.LeaseRecord{} {\n\t\twait"),
	one("every member is over", "claimed in time", claimableGo,
		"\tcase o.Exists && plan.Over(o, with.Token):", "\tcase o.Exists:"),

	// Claims, held partitions and releases.
	one("acting after the deadline", "one worker", workGo,
		"return a.ctx.Err() == nil && a.in.lease.Held() && a.in.polls.left() > 0", "return true"),
	one("member that goes on without looking", "ctx ends", pollsGo,
		"\tp.readDeadline = p.clock.AfterFunc(p.limit(), func() { t.lease.CancelWork(p.late()) })\n",
		"\tp.readDeadline = p.clock.AfterFunc(1000*p.limit(), func() {})\n"),
	one("released before the work has returned", "work first", inventoryGo,
		"case e.State != Revoking || e.Busy != nil && e.Busy == e.Assigned && !e.Assigned.Let:", "case e.State != Revoking:"),
	one("leaving before all work has returned", "work first", groupTermGo,
		"t.lease.Context().Err() != nil && !t.m.inventory.All.Works(false)\n", "t.lease.Context().Err() != nil\n"),
	one("next term before the work has returned", "work first", groupRunGo,
		"\t\t\tm.takeIn(ctx.Done(), c.Lease, m.rests)", "\t\t\t"),
	{"work on a partition whose last work has not returned", "one work", []edit{
		{decideGo, "!e.Wanted() || e.Busy != nil || !f.Acting", "!e.Wanted() || !f.Acting"},
		{sharePollGo, "e.State == Free && e.Busy == nil {", "e.State == Free {"},
		{inventoryGo, "case e.Wanted() && goesOn && e.Busy == nil:", "case e.Wanted() && goesOn:"},
	}},
	one("what the table shows as the own is adopted", "tokens grow", "group/commits.go",
		"\tc := &commit{",
		"\tif n := len(rows); n > 0 {\n\t\trows = slices.DeleteFunc(slices.Clone(rows), func(o table.Observation) bool {\n\t\t\te := m.t.m.inventory.Of(o.Name)\n\t\t\tadopt := !frees && o.Confirmed() && o.Writer == m.t.own.Key() && e.Busy == nil\n\t\t\tif adopt {\n\t\t\t\tm.begin(e, o.Token)\n\t\t\t}\n\t\t\treturn adopt\n\t\t})\n\t}\n\tc := &commit{"),
	one("acting again after a release was sent", "tokens grow", movesGo,
		"\t\tt.m.inventory.Doubt(released...)\n",
		"\t\tfor _, e := range released {\n\t\t\tif e.Target && e.Busy == nil && t.acts() && !t.leaving() {\n\t\t\t\tm.begin(e, e.Assigned.Token)\n\t\t\t} else {\n\t\t\t\tt.m.inventory.Doubt(e)\n\t\t\t}\n\t\t}\n"),
}

// groupShortMutants must each fail the test of package group that they name.
var groupShortMutants = of("./group",
	one("release whose outcome is not known forgotten", "TestOutcomesThatAreNotKnownAreReconciled", movesGo,
		"\t\tt.m.inventory.Doubt(released...)\n", "\t\tt.m.inventory.Clear(released...)\n"),
	one("newcomers counted at once", "TestACrashLoopWithReclaimKeepsItsShareFromNobody", planningGo,
		"if !known && o.Heartbeat.Sub(began) < o.LeaseRecord.Lease && ", "if false && "),
	one("member that can't claim never goes", "TestAMemberWhoseClaimsNeverSucceedLeavesItsShareToOthers", groupTermGo,
		"if !t.leaving() && t.conduct.Useless(", "if false && t.conduct.Useless("),
	one("member that can't release never goes", "TestWhileReleasesFailMostPartitionsAreWorkedOn", movesGo,
		"\tcase first && !aborted:\n", "\tcase true:\n"),
	mutant{"reply of an earlier term believed", "TestAReplyThatOutlivesTheTermBeginsNoWork", []edit{
		{groupRunGo, "\tmemory    *plan.Memory\n", "\tmemory    *plan.Memory\n\treplies   chan func()\n"},
		{sendGo, "\tr.ctx, r.cancel = context.WithCancel(ctx)\n",
			"\tr.ctx, r.cancel = context.WithCancel(ctx)\n\tif m.replies == nil {\n\t\tm.replies = r.replies\n\t}\n\tr.replies = m.replies\n"},
		{sendGo, "\t\tcase <-r.ctx.Done():\n", "\t\tcase <-time.After(100 * r.config.Lease):\n"},
	}},
	one("Has without the deadline of looks", "TestHasIsFalseOnceTheWorkIsRevoked", workGo,
		"return a.ctx.Err() == nil && a.in.lease.Held() && a.in.polls.left() > 0", "return a.in.lease.Held()"),
	one("every failure counts as a lost claim", "TestAnOutageMakesNobodyTakeAHighSlot", joinGo,
		"\t\tstep, err := m.tryJoin(ctx, &c)\n", "\t\tstep, err := m.tryJoin(ctx, &c)\n\t\tc.lost++\n"),
	mutant{"claim whose outcome is not known forgotten", "TestAClaimOfUnknownOutcomeIsFreedForOthers", []edit{
		{inventoryGo, "\t\te.doubted = true //", "\t\te.doubted = false //"},
		{movesGo, "\t\tt.m.inventory.Doubt(entries...)\n", "\t\tt.m.inventory.Clear(entries...)\n"},
	}},
	one("nothing reconciled", "TestAClaimOfUnknownOutcomeIsFreedForOthers", pollsGo,
		"\t\tt.moves.add(rows, true, 0)\n", "\t\t_ = rows\n"),
	one("partition whose lease row is gone kept", "TestLeaseRowsThatAreGoneAreOneWarning", sharePollGo,
		"read && !exists {", "false && read && !exists {"),
	mutant{"looks after their deadline", "TestAMemberThatLeavesDoesNotLookInVain", []edit{
		{pollsGo, "\t\t\tif p.left() > 0 {\n\t\t\t\tp.soon(p.beforeDeadline(p.retry", "\t\t\tif true {\n\t\t\t\tp.soon(p.beforeDeadline(p.retry"},
		{pollsGo, "\t\t\tp.next.off()\n\t\t\tt.lease.CancelWork", "\t\t\tp.soon(0)\n\t\t\tt.lease.CancelWork"},
	}},
	one("reclaimed term that begins anew", "TestAMemberThatReclaimsHasItsPartitionsBackAtOnce", joinGo,
		"\t\t\t\tm.candidate.LeaseRecord.Since = plan.Since(s.Observation)\n", ""),
	one("all work that moves revoked at once", "TestManyPartitionsMoveSomeAtATime", decideGo,
		"return max(f.Batch/2, 1)", "return max(f.Batch*1000, 1)"),
	one("no time for those who claim", "TestManyPartitionsMoveSomeAtATime", movesGo,
		"m.revokes.set(t.polls.clock, 2*took)", "m.revokes.set(t.polls.clock, 0*took)"),
	one("only the first of many looked at", "TestWorkThatHangsKeepsNoOtherOfManyPartitionsFromMoving", decideGo,
		"\t\tf.Inventory.turn += 2 * f.Batch // continue with the next window\n", ""),
	one("a look that leaves out what the member holds for a whole one", "TestWhoWaitsStillSeesThatItsOwnRowsAreGone", pollsGo,
		"if whole && !p.extend(sent) {", "if !p.extend(sent) {"),
	one("every look a whole one", "TestWhoWaitsDoesNotReadWhatItHas", pollsGo,
		"whole := p.skip > 0 || ", "whole := p.skip >= 0 || "),
	one("a cool-down without looks", "TestWorkThatHangsIsSaidWhileItsMemberCoolsDown", groupRunGo,
		"\t\tstep := min(m.g.config.Lease/2, left)\n", "\t\tstep := max(m.g.config.Lease/2, left)\n"),
	one("partitions for nobody while there are two lists", "TestAPartitionThatOnlyTheOldListHasIsClaimedWhenItsMemberDies", planningGo,
		"if !p.Counts() {",
		"if !p.Counts() || slices.ContainsFunc(p.members, func(m Member) bool { return m.List != p.Setting.List.Digest() }) {"),
)
