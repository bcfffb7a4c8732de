//go:build mutants

package mutants

import "slices"

const (
	tickGo     = "internal/table/tick.go"
	pauseGo    = "internal/loop/pause.go"
	calendarGo = "internal/calendar/calendar.go"
)

var calendarMutants = of("./internal/calendar",
	one("a cron line follows its parser when clocks change", "TestEachDayHasOneKey", calendarGo, "times.Hour&everyHour == everyHour", "true"),
	one("a time that comes twice has its key the second time", "TestTheNearestTimeOfALine", calendarGo, "!l.hourly && wall.Before(shown)", "false"),
	one("a time that does not exist is later than the change", "TestEachDayHasOneKey", calendarGo, "\t\t\treturn from\n", "\t\t\treturn at.Add(end.Sub(at))\n"),
	one("a cron line that never comes due", "TestALineThatIsWrongIsRefusedAndSaysWhy", calendarGo, "times.Next(time.Unix(0, 0).UTC()).IsZero()", "false"),
	one("an hour that comes twice has no keys", "TestTheNearestTimeOfALine", calendarGo, "times.Hour&everyHour == everyHour", "false"),
	one("the time at which clocks are set has no key", "TestTheNearestTimeOfALine", calendarGo, "wallOf(end).Add(-1)", "wallOf(end)"),
)

// onceMutants concern work that is done once, and the mutex that protects it.
var onceMutants = slices.Concat(pauseMutants, calendarMutants, of("./lock",
	one("a release that records nothing", "TestEachTickIsDoneOnceHoweverWrongTheClocksAre", tableReleaseGo,
		"[]string{name}, record(name, token, due, id))", "[]string{name})"),
	one("a record of its own after the release", "TestEachTickIsDoneOnceHoweverWrongTheClocksAre", tableReleaseGo,
		"\treturn t.release(ctx, \"finish\", token, lease, Now, []string{name}, record(name, token, due, id))\n",
		"\tif err := t.release(ctx, \"finish\", token, lease, Now, []string{name}); err != nil {\n\t\treturn err\n\t}\n\treturn t.Store.Commit(ctx, \"finish\", []Write{record(name, token, due, id)})\n"),
	one("a smaller key is said to be done", "TestAKeyThatNeverRanIsNotSaidToBeDone", doneGo,
		`return fmt.Errorf("the work for key %q will not run, and may never have run, because %w: %q", due.Key, ErrPassed, d.Key)`, "return ErrDone"),
	one("a smaller key is run after a larger one", "TestAKeyIsDoneOnceAndASmallerOneIsNotRunAnyMore", doneGo,
		"case due.Key > d.Key,", "case due.Key != d.Key,"),
	one("a warning at each call close to the end of a period", "TestACallCloseToTheEndOfAPeriodIsWarnedOfOnce", onceGo,
		"\t\to.edge.Do(func() {\n", "\t\tnew(sync.Once).Do(func() {\n"),
	one("no warning just before the end of a period", "TestACallCloseToTheEndOfAPeriodIsWarnedOfOnce", tickGo,
		"\tif begin.After(now) {\n", "\tif false {\n"),
	one("no warning of daylight saving time", "TestAScheduleByLocalTimeIsWarnedOfTheSpringThatItMisses", tickGo,
		"late.Add(-shift-m)", "late.Add(-m)"),
	one("a shorter schedule waits for the larger key of the last one", "TestAShorterPeriodTakesEffectAtOnce", doneGo,
		"d.OtherPeriod(due) && d.At", "false && d.At"),
	one("another period is logged each time", "TestAShorterPeriodTakesEffectAtOnce", onceGo,
		"\t\to.moved.Do(func() {\n", "\t\tnew(sync.Once).Do(func() {\n"),
	one("a record without its period", "TestAShorterPeriodTakesEffectAtOnce", doneGo,
		"Period: orNothing(due.Period), ", ""),
	one("a caller that has stopped does not learn whether its key was recorded", "TestADoneKeyIsNoErrorIfOnlyTheLockIsLeftToExpire", onceGo,
		"own.term.Recorded(context.WithoutCancel(ctx), wanted.Key)", "own.term.Recorded(ctx, wanted.Key)"),
	one("a larger key from before the run is taken for a later one", "TestALargerKeyFromBeforeTheRunDoesNotSayThatItWasRecorded", releaseGo,
		" && t.released(ctx):", " && !t.released(ctx):"),
	one("no warning of a wait that begins behind a lost lock", "TestAWaitBehindALostLockSaysWhatIsToBeUnlocked", waitGo,
		"\t\th.wanted()\n", "\t\t_ = h\n"),
	one("no warning of waits from before the loss", "TestAWaitBehindALostLockSaysWhatIsToBeUnlocked", heldGo,
		"\t\tclose(h.lost)\n\t\th.config.Clock.AfterFunc(h.config.Lease, h.overdue)\n", "\t\tclose(h.lost)\n"),
	one("a lost lock that is unlocked is warned of", "TestAWaitThatALossEndsIsNotWarnedOf", heldGo,
		"\t\tclose(h.lost)\n\t\th.config.Clock.AfterFunc(h.config.Lease, h.overdue)\n", "\t\tclose(h.lost)\n\t\th.overdue()\n"),
	one("a ctx that had ended before leaves the lock to expire", "TestALockIsGivenBackThoughCtxHadEndedBefore", heldGo,
		", ctx.Err() != nil && h.work(ctx) == nil:", ":"),
	one("a shutdown that waits for long", "TestUnlockGoesOnUntilItsCtxEnds", heldGo,
		"context.WithTimeout(on, lateGiveBack)", "context.WithTimeout(on, longestGiveBack)"),
	one("failing work is run back to back", "TestFailingWorkIsNotRunBackToBackByThoseWhoWait", pauseGo,
		"\t\tif p.failed(seen[0], last) {\n", "\t\tif p.failed(seen[0], last) && false {\n"),
	one("no pause in the queue of a process", "TestFailingWorkIsNotRunBackToBackByThoseWhoWait", pauseGo,
		"(p.held || s.ReleasedAt().After(p.asked))", "p.held"),
	one("one that comes after the failure waits", "TestFailingWorkIsNotRunBackToBackByThoseWhoWait", pauseGo,
		" && (p.held || s.ReleasedAt().After(p.asked))", ""),
))

var pauseMutants = of("./internal/loop",
	one("pauses that don't grow", "TestAPauseGrowsFromFailureToFailureUntilSomethingIsDone", pauseGo,
		"p.Longest / 8 << min(p.failures, 3)", "p.Longest / 8"),
	one("a pause after what was done", "TestAPauseGrowsFromFailureToFailureUntilSomethingIsDone", pauseGo,
		"given && last.Token == p.recorded", "given"),
	one("a holder that was seen is no failure", "TestAFailureCountsOnceTheLockWasSeenHeld", pauseGo,
		"(p.held || s.ReleasedAt().After(p.asked))", "s.ReleasedAt().After(p.asked)"),
	one("a pause after a holder that was killed", "TestNobodyPausesWithoutAFailure", pauseGo,
		"s.Exists && !s.NotReleased &&", "s.Exists &&"),
)
