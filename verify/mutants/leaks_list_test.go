//go:build mutants

package mutants

import "slices"

const (
	leaks = "TestACallThatFailsLeavesNothingBehind"
	ended = "TestACallThatHasReturnedLeavesNothingBehind"
)

var leaksMutants = slices.Concat(
	of(".",
		one("an end of Run is listened for after the term", ended, "internal/loop/run.go",
			"\t\tforget()\n", "\t\t_ = forget\n"),
		one("a Run that has ended is a candidate for OpenTelemetry", ended, runGo,
			"\te.watch.Close()\n", ""),
		one("a release that fails is work that hangs", "TestAReleaseThatHangsIsNotTakenForWorkThatHangs", leadGo,
			"\tl.calls.outcome = &err\n", "\tl.calls.outcome = &err\n\tif err != nil {\n\t\terr = errHung(l)\n\t}\n"),
		one("a loss is not taken in while a leader leaves", "TestATermThatWasLostIsNotSaidToBeLeaving", courseGo,
			"\tcase termEnded:\n", "\tcase termEnded:\n\t\tif before <= draining {\n\t\t\treturn nil\n\t\t}\n"),
		one("the gap counts from whatever was freed last", "TestAHandoverIsSaidToBeAsFarAsItIs", requestGo,
			"o.Heartbeat.IsZero() && o.Writer == \"\" && !f.free", "o.Heartbeat.IsZero()"),
		one("elected past the deadline", "TestNobodyIsElectedPastItsDeadline", seenGo,
			"func(*view) (has bool) {\n\t\thas, token = l.HasLock()\n\t\treturn has\n", "func(v *view) (has bool) {\n\t\tif has = v.term != nil; has {\n\t\t\ttoken = Token(v.term.Token())\n\t\t}\n\t\treturn has\n"),
		one("an operator's request makes a holder ignore preferences", "TestAPreferenceIsAcceptedAfterAnOperatorsRequest", coolDownGo,
			"c.preference.spurned = asked == table.ByPreference", "c.preference.spurned = asked != \"\""),
		one("followers look as often however long a leader leaves", "TestFollowersOfALeaderThatLeavesForLongLookEverMoreSeldom", electHandoverGo,
			"\t\tif since > lease {\n\t\t\tevery = max(every, since/20)\n\t\t}\n", ""),
		one("a successor that looks as seldom as the others", "TestFollowersOfALeaderThatLeavesForLongLookEverMoreSeldom", electHandoverGo,
			"every = lease / 100", "every = lease / 10"),
		one("a low priority names itself the successor", "TestTheSuccessorOfALeavingLeaderHasTheHighestPriority", electHandoverGo,
			" && c.LeaseRecord.Rank == 0 && ", " && "),
		one("who could not confirm asks all the same", "TestACandidateThatCanNotConfirmDoesNotAsk", electGo,
			"\tc.preference.well = Instant{} // successful polls do not prove that it can keep a term\n", ""),
	),
	of("./internal/elect",
		one("a term that was kept for long is one more that was not kept", "TestATermThatWasKeptForLongBeginsANewRow", pastGo,
			"\t\tp.expired = 0\n", ""),
		one("who claimed without an answer claims again once its own lease has passed", "TestClaimsThatAreNeverAnsweredKeepTheLockFromNobody", stepGo,
			"if c.disown(ctx, seen) {", "if false {"),
		one("a bare claim ends a contest", "TestASuccessBeginsTheRowsAnew", stepGo,
			"return s.Confirmed() && s.FreeIn > 0 }) {\n\t\tc.contests = 0", "return s.FreeIn > 0 }) {\n\t\tc.contests = 0"),
		one("a contest never ends", "TestASuccessBeginsTheRowsAnew", stepGo,
			"return s.Confirmed() && s.FreeIn > 0 }) {\n\t\tc.contests = 0", "return s.Confirmed() && s.FreeIn > 0 }) {\n\t\tc.contests += 0"),
	),
	of("./lock",
		one("who fails to acquire keeps the slot chosen", leaks, waitGo,
			"\t\t\tw.leave()   // before", "\t\t\t// before"),
		one("a lost permit keeps its slot chosen", leaks, seekGo,
			"\t\tcontext.AfterFunc(h.term.Over(), k.leave)\n", ""),
		one("a term that is released is never over for OpenTelemetry", leaks, heldGo,
			"\th.seen.Over(telemetry.ReasonOf(err, telemetry.Released))\n", ""),
		one("an Unlock that fails keeps the turn", leaks, heldGo,
			"\th.by.leave()\n\tif h.by.Own", "\tif err == nil {\n\t\th.by.leave()\n\t}\n\tif h.by.Own"),
		one("the ctx of work that has ended goes on", leaks, doGo,
			"\t\tdeaf()\n\t\tend(nil)\n", "\t\tdeaf()\n"),
		one("a permit that is not agreed on is left to expire", leaks, seekGo,
			"if h.leave() {", "if false {"),
	),
)
