//go:build mutants

package mutants

import "slices"

const decideGo = "internal/share/decide.go"

// The decision about partitions, row by row of the table.
var groupDecideMutants = slices.Concat(of("./internal/share", slices.Concat(freeRows, heldRows, unresolvedRows)...), decisionMutants)

func row(name, old, new string) mutant {
	return one(name, "TestTheTableOfTheDecision", decideGo, old, new)
}

var freeRows = []mutant{
	row("free: rows that name this term are nobody's", "\tcase x.read && x.own:\n", "\tcase false:\n"),
	row("free: claimed without a plan", "case !f.Planned || !e.Wanted() || e.Busy", "case !e.Wanted() || e.Busy"),
	row("free: claimed though it is another's to have", "case !f.Planned || !e.Wanted() || e.Busy", "case !f.Planned || e.Busy"),
	row("free: claimed while its work goes on", "!e.Wanted() || e.Busy != nil || !f.Acting", "!e.Wanted() || !f.Acting"),
	row("free: claimed after the term", "!f.Acting || f.Leaving:", "f.Leaving:"),
	row("free: claimed by a member that leaves", "!f.Acting || f.Leaving:", "!f.Acting:"),
	row("free: claimed before its back-off is over", "\tcase backoff > 0:\n\t\treturn Free, backoff\n", "\tcase false:\n\t\treturn Free, backoff\n"),
	row("free: what was left out is read at once", "\t\treturn Free, backoff\n\tcase x.later:", "\t\treturn Free, backoff\n\tcase false:"),
	row("free: claimed unread", "\tcase !x.read:\n\t\treturn Free, 0\n", "\tcase false:\n\t\treturn Free, 0\n"),
	row("free: another's is not awaited", "\tcase x.unreadable != nil, x.wait == never:\n", "\tcase x.unreadable != nil:\n"),
	row("free: claimed too soon", "\tcase x.wait > 0:\n", "\tcase false:\n"),
}

var heldRows = []mutant{
	row("held: kept after the term", "if !f.Acting || f.Planned &&", "if f.Planned &&"),
	row("held: revoked without a plan", "f.Planned && !e.Wanted() && !f.Leaving && room {", "!e.Wanted() && !f.Leaving && room {"),
	row("held: revoked though it is to be had", "f.Planned && !e.Wanted() && !f.Leaving && room {", "f.Planned && !f.Leaving && room {"),
	row("held: revoked one by one by a member that leaves", "f.Planned && !e.Wanted() && !f.Leaving && room {", "f.Planned && !e.Wanted() && room {"),
	row("held: revoked with many others", "f.Planned && !e.Wanted() && !f.Leaving && room {", "f.Planned && !e.Wanted() && !f.Leaving {"),
}

var unresolvedRows = []mutant{
	row("unresolved: wanted by a member that leaves", "wanted := f.Planned && e.Wanted() && !f.Leaving\n", "wanted := f.Planned && e.Wanted()\n"),
	row("unresolved: cleared unread", "\tcase !x.read:\n\t\treturn Unresolved, 0\n", "\tcase false:\n\t\treturn Unresolved, 0\n"),
	row("unresolved: cleared though it can't be read", "\tcase x.unreadable != nil:\n\t\treturn Unresolved", "\tcase false:\n\t\treturn Unresolved"),
	row("unresolved: never cleared", "\tcase !x.own:\n", "\tcase false:\n"),
	row("unresolved: claimed while its work goes on", "case wanted && (e.Busy != nil || !f.Acting):", "case wanted && !f.Acting:"),
	row("unresolved: claimed after the term", "case wanted && (e.Busy != nil || !f.Acting):", "case wanted && e.Busy != nil:"),
	row("unresolved: tried before its back-off is over", "\tcase backoff > 0:\n\t\treturn Unresolved, backoff\n", "\tcase false:\n\t\treturn Unresolved, backoff\n"),
	row("unresolved: freed though it is to be had", "\tcase wanted && x.wait == 0:\n", "\tcase false:\n"),
	row("unresolved: claimed though it is another's too", "\tcase wanted && x.wait == 0:\n", "\tcase wanted:\n"),
	row("unresolved: freed without a plan", "\tcase f.Planned || f.Leaving:\n", "\tcase true:\n"),
}

var decisionMutants = append(of("./group",
	one("room for any number that move", "TestManyPartitionsMoveSomeAtATime", decideGo, "\t\t\troom--\n", ""),
	one("what can't be read is not said", "TestARowThatCanNotBeReadCostsItsPartitionAlone", decideGo, "\t\t\te.Suspect.illegible(f.Now, x.unreadable)\n", "")),
	of("./internal/share",
		one("held: kept without its lease row", "TestADecisionIsOfAllPartitions", sharePollGo, "read && !exists {", "false && read && !exists {"),
		one("the last look that any asks for", "TestADecisionIsOfAllPartitions", decideGo, "d.Next = min(d.Next, next)", "d.Next = max(d.Next, next)"),
		one("a suspect that another holder has stays one", "TestHowLongAPartitionIsSuspect", decideGo,
			"if taken || e.done() || ", "if e.done() || "),
		one("what was not read is ignored", "TestADecisionIsOfAllPartitions", decideGo, "\t\t\td.Again = true\n", ""),
		one("what others have is not awaited", "TestADecisionIsOfAllPartitions", decideGo, "\t\t\td.Awaits = true\n", ""),
		one("a plain lock is no other holder", "TestADecisionIsOfAllPartitions", decideGo,
			"(x.wait == never || x.wait > 0 && x.row.Confirmed())", "x.wait == never"),
		one("a suspect is claimed with others", "TestASuspectIsClaimedAlone", inventoryGo,
			"\t\tif e.Suspect.failed() {\n\t\t\tcommits", "\t\tif false {\n\t\t\tcommits"),
		one("a suspect is tried as often as ever", "TestASuspectIsTriedLessAndLessOften", suspectsGo, "s.pause = min(max(2*s.pause, lease/10), 3*lease)", "s.pause = lease / 10"),
	)...,
)
