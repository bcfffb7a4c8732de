//go:build mutants

package mutants

import "slices"

const (
	executorGo  = "group/executor.go"
	fitnessGo   = "group/fitness.go"
	leaveGo     = "group/leave.go"
	partitionGo = "group/partition.go"
	requestsGo  = "group/requests.go"
	workGo      = "group/work.go"
)

// The behavior of a member with its failed requests, with itself, and with requests from its program.
var groupMemberMutants = slices.Concat(groupRequestMutants, fitnessMutants, groupJoinMutants, groupWorkMutants)

var groupRequestMutants = of("./group",
	one("no halves of what has failed", "TestOnePartitionThatNobodyCanClaimCostsTheOthersNothing", movesGo,
		"\t\tsplit(c, 0)\n", "\t\tfor _, e := range c.entries {\n\t\t\te.doubt(t.looks.number)\n\t\t}\n\t\tt.soon(t.redo.Pause(t.m.config.Clock))\n"),
	one("a suspect is claimed with others", "TestASuspectIsClaimedAlone", movesGo,
		"if e.suspect.since != (elect.Instant{}) {", "if false {"),
	one("members that are in each other's way go on", "TestCommitsThatAreAbortedGoOneAtATime", executorGo,
		"case x.single, x.crowded.wait(x.clock) > 0:", "case x.single:"),
	one("a member that is sick goes on as ever", "TestAClaimThatFailsIsTriedLessAndLessOften", movesGo,
		"\tt.exec.slow(t.progress.sick())\n", ""),
)

var fitnessMutants = of("./group",
	one("an outage makes members cool down", "TestOutagesThatAllMembersHaveCostNoCoolDown", fitnessGo,
		"if silent && !useless {", "if silent && !useless && false {"),
	one("one useless term after an outage costs nothing", "TestCoolDowns", fitnessGo,
		"if silent && !useless {", "if silent {"),
	one("coolingDown are all alike", "TestCoolDowns", fitnessGo,
		"f.pause = min(max(2*pause, f.lease), longest)", "f.pause = min(f.lease, longest)"),
	one("a term that lasts is no new beginning", "TestCoolDowns", fitnessGo,
		"if e.lasted >= longestRest*f.lease && !useless {", "if false && !useless {"),
	one("who holds something is never useless", "TestAMemberThatCanNotReleaseLeavesItToOthers", fitnessGo,
		"return p.sick() && now.Since(p.sickSince()) >= limit || holds == 0", "return holds == 0"),
	one("one partition that fails makes a member useless", "TestOnePartitionThatNobodyCanClaimCostsTheOthersNothing", fitnessGo,
		"return p.sick() && now.Since(p.sickSince()) >= limit ||", "return p.lasts(now) >= limit ||"),
	one("a second partition that fails for a moment makes a member useless", "TestAMemberIsUselessOnlyIfItFailsAtTwoPartitionsForLong", fitnessGo,
		"return second", "return first"),
	one("a partition that another member has claimed since still counts", "TestClaimsThatAnotherMemberHasMadeSinceDoNotCount", groupSeenGo,
		"\tt.progress.absolve(d.taken)\n", ""),
	one("a failure that another holder explains still runs", "TestAMemberIsUselessOnlyIfItFailsAtTwoPartitionsForLong", fitnessGo,
		"if len(p.failures) == 0 {", "if false {"),
	one("a plain lock is no other holder", "TestADecisionIsOfAllPartitions", decideGo,
		"(x.wait == never || x.wait > 0 && x.row.Confirmed())", "x.wait == never"),
	one("a suspect that another holder has stays one", "TestAMemberWhoseOnlyPartitionAnotherHolderHasIsNotUseless", inventoryGo,
		"if e.done() || slices.Contains(taken, e) || ", "if e.done() || "),
	one("no trial after a useless term", "TestCoolDowns", fitnessGo,
		"longest, f.trial = longestUselessCoolDown*f.lease, true", "longest, f.trial = longestUselessCoolDown*f.lease, false"),
	one("a trial without an end", "TestAMemberThatCanNotClaimLeavesItToOthers", groupTermGo,
		"t.planning.full, t.trial = true, false", "t.planning.full, t.trial = false, false"),
	one("who is in no group is healthy", "TestAMemberThatIsNotInTheGroupIsUnhealthyAfterThreeLeases", groupHealthGo,
		"\tnote(\"the process has not been in the group\", m.out, m.failing)\n", ""),
	one("who can't claim a partition is healthy", "TestOnePartitionThatNobodyCanClaimCostsTheOthersNothing", groupHealthGo,
		"for _, e := range m.inventory.suspects {", "for _, e := range m.inventory.suspects[:0] {"),
	one("balanced while work is to return", "TestBalancedWaitsForTheOwnShare", groupHealthGo,
		"|| e.state == held && e.target {", "|| e.state == held && e.target || e.state == revoking {"),
)

var groupJoinMutants = of("./group",
	one("a slot that has vanished is claimed at once", "TestASlotWhoseRowsHaveVanishedIsLeftAlone", joinGo,
		" && !m.waitsFor(name, s.At) {", " {"),
	one("the highest slots may vanish", "TestASlotWhoseRowsHaveVanishedIsLeftAlone", joinGo,
		"\t\t\ttop = max(top, p.Slot)\n", "\t\t\ttop = max(top, 0*p.Slot)\n"),
	one("an age that was never lived", "TestAReclaimingMemberThatEndsWheneverItStartsTakesNothing", joinGo,
		"s.Heartbeat.Sub(s.Token.Time()) >= s.LeaseRecord.Lease {", "true {"),
	one("an age that is handed down", "TestACrashLoopWithReclaimKeepsItsShareFromNobody", joinGo,
		"s.Heartbeat.Sub(s.Token.Time()) >= s.LeaseRecord.Lease {", "s.Heartbeat.Sub(since(s.Observation).Time()) >= s.LeaseRecord.Lease {"),
	one("the age of a member with another list", "TestAMemberThatReclaimsWithAnotherListIsNew", joinGo,
		"s.LeaseRecord.ListDigest == m.list.Digest() && ", ""),
	one("releases before the others know", "TestAUselessMemberWithWorkThatHangsLeavesItsShareToOthers", movesGo,
		"if t.leaving() && !t.leave.marked {", "if false {"),
	one("who can't look keeps what it has", "TestAMemberThatCanNotLookReleasesWhatItHas", groupTermGo,
		"errors.Is(reason, errReadDeadline) && t.lease.Held() {", "errors.Is(reason, errReadDeadline) && false {"),
	one("who leaves publishes no plan", "TestAMemberThatLeavesPublishesThePlanWithoutIt", leaveGo,
		"\tif t.publishing {\n", "\tif true {\n"),
)

var groupWorkMutants = of("./group",
	one("a refused write of a partition ends no work", "TestARefusedWriteEndsTheWorkOfItsPartitionAtOnce", partitionGo,
		", Gone: a.gone}}", "}}"),
	one("a refused write wakes no member", "TestWorkThatReturnsAfterARefusedWriteBeginsAgain", partitionGo,
		"\t\ta.in.m.returned.put(outcome{of: a, gone: true})\n", ""),
	one("work whose write was refused has returned", "TestWorkThatReturnsAfterARefusedWriteBeginsAgain", workGo,
		"\t\tif o.gone {\n\t\t\tcontinue\n\t\t}\n", ""),
	one("work that returns early is over", "TestWorkThatReturnsEarlyBeginsAgain", workGo,
		"\t\tt.idle = append(t.idle, a)\n", ""),
	one("work that returns early begins as soon each time", "TestWorkThatReturnsEarlyBeginsAgain", workGo,
		"a.again.set(clock, a.pause.Pause(clock))", "a.again.set(clock, lease/50)"),
	one("a pause before work is never forgotten", "TestThePauseBeforeWorkBeginsAgainIsForgottenOnceItRuns", workGo,
		"\t\ta.pause.Reset()\n", ""),
	one("what is released early is claimed at once", "TestWhatHappensWhenWorkReturnsEarlyIsAnOption", decideGo,
		"max(e.suspect.left(f.now), e.earlyReturn.left(f.now))", "e.suspect.left(f.now)"),
	one("idle work begins again", "TestWhatHappensWhenWorkReturnsEarlyIsAnOption", workGo,
		"\tcase options.KeepIdle:\n", "\tcase options.KeepIdle + 100:\n"),
	mutant{"a paused partition is claimed", "TestAPartitionIsPausedAndResumed", []edit{
		{decideGo, "l.target, l.busy = e.target && !e.paused, ", "l.target, l.busy = e.target, "},
		{looksGo, "e.target && !e.paused && e.state == free", "e.target && e.state == free"},
		{movesGo, "e.target && !e.paused && t.acts()", "e.target && t.acts()"},
		{movesGo, "\tcase e.paused:\n", "\tcase false:\n"},
	}},
	one("LetGo stays in force", "TestAPartitionIsLetGoOnce", requestsGo,
		"\tclear(r.let)\n", ""),
	one("a partition whose claim ends during a handover is worked on", "TestAClaimThatEndsDuringAHandoverBeginsNoWork", movesGo,
		"case !t.acts() || t.leaving() || !e.target:", "case !t.acts() || !e.target:"),
	one("a pause is not marked after the release", "TestAPauseIsVisible", requestsGo,
		"if e.paused && e.target && e.state == free && !e.shown {", "if false {"),
	one("a pause is marked again and again", "TestAPauseIsVisible", requestsGo,
		"\t\t\te.shown = e.paused && e.target\n", "\t\t\te.shown = false\n"),
	one("a pause is not marked in a second Run", "TestAPauseIsVisible", inventoryGo,
		"e.target, e.leases, e.shown = false, false, false", "e.target, e.leases = false, false"),
	one("a second Run says nothing of a pause", "TestAPauseIsVisible", inventoryGo,
		"suspicion{}, suspicion{}, false\n", "suspicion{}, suspicion{}, e.paused\n"),
	one("a pause that outlived its member counts", "TestAPauseIsVisible", "internal/table/list.go",
		"m.IsHeld() && m.Token == by.Token {", "true || m.Token == by.Token {"),
	one("a pause is a move", "TestTheCauseSaysWhatTheProgramAskedFor", requestsGo,
		"t.revoke(e, ErrPaused)", "t.revoke(e, ErrMoved)"),
	one("a pause without an end", "TestAPartitionIsPausedAndResumed", requestsGo,
		"delete(r.paused, partition)", "r.paused[partition] = true"),
	one("work that is let go is waited for", "TestAPartitionWhoseWorkHangsIsLetGo", movesGo,
		"e.busy == e.assigned && !e.assigned.let:", "e.busy == e.assigned:"),
)
