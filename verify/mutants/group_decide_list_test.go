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
	row("free: claimed without a plan", "case !l.Planned || !l.target || l.busy", "case !l.target || l.busy"),
	row("free: claimed though it is another's to have", "case !l.Planned || !l.target || l.busy", "case !l.Planned || l.busy"),
	row("free: claimed while its work goes on", "!l.target || l.busy || !l.Acting", "!l.target || !l.Acting"),
	row("free: claimed after the term", "l.busy || !l.Acting || l.Leaving:", "l.busy || l.Leaving:"),
	row("free: claimed by a member that leaves", "l.busy || !l.Acting || l.Leaving:", "l.busy || !l.Acting:"),
	row("free: claimed before its back-off is over", "\tcase l.backoff > 0:\n\t\treturn toLeave, l.backoff\n\tcase x.later:", "\tcase false:\n\t\treturn toLeave, l.backoff\n\tcase x.later:"),
	row("free: what was left out is read at once", "\t\treturn toLeave, l.backoff\n\tcase x.later:", "\t\treturn toLeave, l.backoff\n\tcase false:"),
	row("free: claimed unread", "\tcase !x.read:\n\t\treturn toLeave, 0\n\tcase x.unreadable:\n\t\treturn toNote, awaited\n\tcase x.wait", "\tcase false:\n\t\treturn toLeave, 0\n\tcase x.unreadable:\n\t\treturn toNote, awaited\n\tcase x.wait"),
	row("free: what can't be read is not said", "\tcase x.unreadable:\n\t\treturn toNote, awaited\n\tcase x.wait", "\tcase false:\n\t\treturn toNote, awaited\n\tcase x.wait"),
	row("free: another's is not awaited", "\tcase x.wait == never:\n", "\tcase false:\n"),
	row("free: claimed too soon", "\tcase x.wait > 0:\n", "\tcase false:\n"),
}

var heldRows = []mutant{
	row("held: kept after the term", "\t\tcase !l.Acting:\n", "\t\tcase false:\n"),
	row("held: revoked without a plan", "case l.Planned && !l.target && !l.Leaving && l.room:", "case !l.target && !l.Leaving && l.room:"),
	row("held: revoked though it is to be had", "case l.Planned && !l.target && !l.Leaving && l.room:", "case l.Planned && !l.Leaving && l.room:"),
	row("held: revoked one by one by a member that leaves", "case l.Planned && !l.target && !l.Leaving && l.room:", "case l.Planned && !l.target && l.room:"),
	row("held: revoked with many others", "case l.Planned && !l.target && !l.Leaving && l.room:", "case l.Planned && !l.target && !l.Leaving:"),
}

var unresolvedRows = []mutant{
	row("unresolved: wanted by a member that leaves", "wanted := l.Planned && l.target && !l.Leaving\n", "wanted := l.Planned && l.target\n"),
	row("unresolved: cleared unread", "\tcase !x.read:\n\t\treturn toLeave, 0\n\tcase x.unreadable:\n\t\treturn toNote, awaited\n\tcase !x.own", "\tcase false:\n\t\treturn toLeave, 0\n\tcase x.unreadable:\n\t\treturn toNote, awaited\n\tcase !x.own"),
	row("unresolved: cleared though it can't be read", "\tcase x.unreadable:\n\t\treturn toNote, awaited\n\tcase !x.own", "\tcase false:\n\t\treturn toNote, awaited\n\tcase !x.own"),
	row("unresolved: never cleared", "\tcase !x.own:\n", "\tcase false:\n"),
	row("unresolved: claimed while its work goes on", "case wanted && (l.busy || !l.Acting):", "case wanted && !l.Acting:"),
	row("unresolved: claimed after the term", "case wanted && (l.busy || !l.Acting):", "case wanted && l.busy:"),
	row("unresolved: tried before its back-off is over", "\tcase l.backoff > 0:\n\t\treturn toLeave, l.backoff\n\tcase wanted", "\tcase false:\n\t\treturn toLeave, l.backoff\n\tcase wanted"),
	row("unresolved: freed though it is to be had", "\tcase wanted && x.wait == 0:\n", "\tcase false:\n"),
	row("unresolved: claimed though it is another's too", "\tcase wanted && x.wait == 0:\n", "\tcase wanted:\n"),
	row("unresolved: freed without a plan", "\tcase l.Planned || l.Leaving:\n", "\tcase true:\n"),
}

var decisionMutants = append(of("./group",
	one("room for any number that move", "TestManyPartitionsMoveSomeAtATime", decideGo, "\t\t\troom--\n", "")),
	of("./internal/share",
		one("held: kept without its lease row", "TestADecisionIsOfAllPartitions", sharePollGo, "read && !exists {", "false && read && !exists {"),
		one("the last look that any asks for", "TestADecisionIsOfAllPartitions", decideGo, "d.Next = min(d.Next, next)", "d.Next = max(d.Next, next)"),
		one("what was not read is ignored", "TestADecisionIsOfAllPartitions", decideGo, "\t\t\td.Again = true\n", ""),
		one("what others have is not awaited", "TestADecisionIsOfAllPartitions", decideGo, "\t\t\td.Awaits = true\n", ""),
		one("a plain lock is no other holder", "TestADecisionIsOfAllPartitions", decideGo,
			"(x.wait == never || x.wait > 0 && x.row.Confirmed())", "x.wait == never"),
		one("a suspect is tried as often as ever", "TestASuspectIsTriedLessAndLessOften", suspectsGo, "s.pause = min(max(2*s.pause, lease/10), 3*lease)", "s.pause = lease / 10"),
	)...,
)
