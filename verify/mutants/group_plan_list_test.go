//go:build mutants

package mutants

import "slices"

const (
	planGo       = "internal/plan/plan.go"
	planAssignGo = "internal/plan/assign.go"
	planListGo   = "internal/plan/list.go"
	planNextGo   = "internal/plan/next.go"
	planTextGo   = "internal/plan/text.go"
)

// How members agree on the assignment of partitions.
var groupPlanMutants = slices.Concat(planningMutants, nextPlanMutants, planTextMutants)

var planningMutants = of("./group",
	one("no trial", "TestAMemberWhoseClaimsNeverSucceedLeavesItsShareToOthers", planningGo,
		"Trial: o.LeaseRecord.Trial}", "Trial: false}"),
	one("a plan of a newer version is replaced", "TestAPlanOfANewerVersionIsLeftAlone", planningGo,
		"\t\tp.Newer = err\n", "\t\t_ = err\n"),
	one("a newer plan that was deleted is remembered", "TestAPlanOfANewerVersionIsLeftAlone", planningGo,
		"\tp.Head, p.known, p.Newer, p.Stale = s.Plan, nil, nil, false\n", "\tif p.Head, p.known, p.Stale = s.Plan, nil, false; s.Plan != 0 {\n\t\tp.Newer = nil\n\t}\n"),
	one("a garbled plan is never replaced", "TestAPlanThatIsDeletedOrGarbledIsPublishedAgain", planningGo,
		"\tcase errors.Is(err, ErrNewer):\n", "\tcase errors.Is(err, ErrNewer), err != nil:\n"),
	one("a plan is published without comparing", "TestOfTwoThatPublishAPlanTheFirstCounts", snapshotGo,
		"if TokenAt(rows.byName[planHead(group)].Token) != seen {", "if false {"),
	one("a body of another token than the head's", "TestABodyThatDoesNotGoWithTheHeadIsNoPlan", snapshotGo,
		"TokenAt(body.Token) == s.Plan {", "true {"),
	one("an identity that is not kept", "TestAProcessThatComesBackHasItsOwnAgain", planningGo,
		"if o.LeaseRecord.Keep > 0 {", "if false {"),
	one("all weigh the same", "TestAChangeOfWeightMovesOnlyWhatMust", planningGo,
		"Weight: cmp.Or(o.LeaseRecord.Weight, 1)", "Weight: 1"),
)

var nextPlanMutants = of("./internal/plan",
	one("the age of heartbeats counts", "TestWhoCounts", planningGo,
		"if !Present(o) || s.Unreadable[name] != nil {", "if !Present(o) || !Lives(o) || s.Unreadable[name] != nil {"),
	one("a remainder for a member on trial", "TestEveryReachablePlanKeepsTheRules", planAssignGo,
		"\t\tif a.members[i].Trial {\n\t\t\tr++\n\t\t}\n", ""),
	one("only the first byte of a character counts", "TestNamesOfAnyScriptAreToldApart", planListGo,
		"for i := range len(s) {", "for i := range s {"),
	one("members on trial are limited only once", "TestAnyCrowdComesToRest", planAssignGo,
		"n != len(in) && !trial; {", "n == 0 && !trial; {"),
	one("what a member has is not kept", "TestLargerPlansKeepTheRules", planAssignGo,
		"if e.owner != none && a.bit(a.members[e.owner].List)", "if e.owner != none && 0*a.bit(a.members[e.owner].List)"),
	one("the remainder moves", "TestLargerPlansKeepTheRules", planAssignGo,
		"if a.load[i]+kept[i] <= quota[i] {", "if false {"),
	one("weights are ignored", "TestLargerPlansKeepTheRules", planAssignGo,
		"\t\tsum += a.members[i].Weight\n", "\t\ta.members[i].Weight = 1\n\t\tsum++\n"),
	one("a trial has its whole share", "TestAMemberOnTrialHasOnePartition", planAssignGo,
		"\t\t\tquota[i] = 1\n\t\t\ttotal--\n", "\t\t\tquota[i] = share(of, m.Weight, sum)\n\t\t\ttotal -= quota[i]\n"),
	one("a trial gets nothing if there are more members than partitions", "TestAMemberOnTrialIsNotASpareAsLongAsAnotherHasTwo", planAssignGo,
		"if !m.Trial || share(of, m.Weight, sum) == 0 {\n\t\t\t\treturn false\n\t\t\t}\n\t\t\tquota[i] = 1\n\t\t\ttotal--\n", "if !m.Trial {\n\t\t\t\treturn false\n\t\t\t}\n\t\t\tquota[i] = min(share(of, m.Weight, sum), 1)\n\t\t\ttotal -= quota[i]\n"),
	one("a member that has more than its share takes part", "TestTheOthersShareWhatIsLeft", planAssignGo,
		"{ return a.load[i] > quota[i] })", "{ return a.load[i] > 1000*quota[i] })"),
	one("a member that is back gets any", "TestAMemberThatIsBackHasItsOwn", planAssignGo,
		"if home == none || room[home] <= 0 {", "if true || room[home] <= 0 {"),
	one("others give up any for a member that is back", "TestAMemberThatIsBackHasItsOwn", planAssignGo,
		"\t\tcase home != none && room[home] > 0:\n", "\t\tcase home != none && room[home] > 1000:\n"),
	one("a stranger inherits nothing", "TestPartitionsAreInherited", planNextGo,
		"if h.member != none && was[q.members[h.member].ID] {", "if h.member != none {"),
	one("a plan for members of another list is written for its own", "TestAPlanForMembersOfAnotherListIsForThem", planNextGo,
		"if len(q.lists) == 1 && q.lists[0] == l.digest {", "if len(q.lists) == 1 {"),
	one("a member that moves inherits a stranger's partitions", "TestAMemberHasItsOwnWhereverItIs", planNextGo,
		"\t\twas[m.ID] = m.ID != \"\"\n", "\t\t_ = m\n"),
	one("a lockHistory without an end", "TestAMemoryExpires", planNextGo,
		"if until > now.UnixMilli() {", "if until > 0 {"),
	one("a lockHistory begins anew with each plan", "TestAMemoryExpires", planNextGo,
		"was[id], s.until[id] = true, until", "was[id], s.until[id] = true, max(until, now.Add(time.Minute).UnixMilli())"),
	one("the order of members matters", "TestTheOrderOfMembersDoesNotMatter", planGo,
		"return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(b.Token, a.Token))", "return 0"),
	one("another order in the same version", "TestThePlanIsTheSameInEveryBuildOfItsVersion", planNextGo,
		"mix(uint64(m.Slot+1)*golden)", "mix(uint64(m.Slot)*golden)"),
	one("a digest by the order of the names", "TestAListIsTheSameInAnyOrder", planListGo,
		"sorted := slices.Sorted(slices.Values(names))", "sorted := slices.Clone(names)"),
	one("another term in a slot is not published", "TestWhatIsPublished", planGo,
		"return slices.Equal(p.members, q.members) &&",
		"return slices.EqualFunc(p.members, q.members, func(a, b Member) bool { a.Token = b.Token; return a == b }) &&"),
	one("names that nobody has stay in the plan", "TestNamesOfNobodyAreDropped", planNextGo,
		"\t\tif e.lists != 0 {\n\t\t\tq.entries", "\t\tif e.lists |= 1; true {\n\t\t\tq.entries"),
	one("a plan of another list is followed", "TestAPlanOfAnotherList", planNextGo,
		"case p.opaque && q.bit(p.whole) != 0:", "case false:"),
)

var planTextMutants = of("./internal/plan",
	one("hashes that are left out are those of any list", "TestAPlanOfAnotherList", planTextGo,
		"\t\tp.opaque = p.whole != l.digest\n", "\t\tp.opaque = false\n"),
	one("a newer version is garbage", "TestANewerVersionIsTold", planTextGo,
		"\t\treturn nil, ErrNewer\n", "\t\treturn nil, errors.New(\"newer\")\n"),
	one("any number is a member", "TestADamagedTextIsAnError", planTextGo,
		"check(err == nil && v <= uint64(most))\n\t\treturn int(min(v, uint64(most)))", "check(err == nil && v <= uint64(most)+1)\n\t\treturn int(v)"),
	one("what comes after the entries is ignored", "TestADamagedTextIsAnError", planTextGo,
		"if r.Len() > 0 {", "if false {"),
	one("hashes are always written", "TestATextIsSmall", planTextGo,
		"Hashes: p.whole == \"\"}", "Hashes: true}"),
)
