//go:build mutants

package mutants

import "slices"

const (
	loopStallGo  = "internal/loop/stall.go"
	leaderStalls = "TestALeaderWhoseWorkStallsDoesNotHoldTheLock"
	workStalls   = "TestWorkThatStallsDoesNotHoldTheLock"
	demanded     = "TestAProgramThatDoesNotFulfilWhatIsDemandedIsEnded"
	programsFile = "cmd/spindle/internal/run/programs.go"
	ownStalls    = "TestAPartitionWhoseWorkStallsStaysWithItsMember"
)

// Work that makes no progress.
var (
	leaderStallMutants = of(".",
		one("work that has stalled is not told", leaderStalls, termGo,
			"\tt.work.cancel(reason)\n\treturn was\n", "\treturn was\n"),
		one("a stalled leader has the lock", leaderStalls, termGo,
			"\tif t.Stalled() != nil {\n\t\treturn -1\n\t}\n", ""),
		one("a stall is said when it is over", leaderStalls, loopStallGo,
			"if slow && !was {", "if slow && !was && false {"),
		one("a stalled lock that is never released", leaderStalls, courseGo,
			"case before == draining, before == hung:", "case before == draining:"),
		one("heartbeats go on for work that hangs", "TestWorkThatHangsKeepsTheLockForOneMoreLease", keepGo,
			"s.stalled != nil && k.clock.Now()", "false && k.clock.Now()"),
		one("heartbeats end at the stall", leaderStalls, keepGo,
			" && k.clock.Now().Since(s.stalledAt) >= k.lease {", " {"),
		one("work that was told to stop is not watched", "TestWorkThatHangsAfterAStepDownStalls", courseGo,
			"if before <= draining && !c.idle {", "if before < draining && !c.idle {"),
		one("a stalled process that waits for its work for ever", "TestAStopOfWorkThatHasStalledEnds", courseGo,
			"if before == draining || before == hung {", "if before == draining {"),
	)
	clockStallMutants = of("./internal/loop",
		one("a process that stands still after a warning stalls", "TestOnlyLongPausesOfTheProcessAreNotCounted", loopStallGo,
			"late > s.Limit/16 {", "late > s.Limit/16 && s.Idle() < s.Limit {"),
		one("a process that stands still before the watcher would look stalls", "TestAPauseIsNotCountedWheneverItComes", loopStallGo,
			"min(next-idle, s.Limit/16)", "next-idle"),
		one("progress right after a pause is in the future", "TestOnlyLongPausesOfTheProcessAreNotCounted", loopStallGo,
			"min(last+int64(late), now.Mono))", "last+int64(late))"),
		mutant{"suspended time counts as a stall", "TestTimeInWhichTheWorkCouldNotRunIsNoStall", []edit{
			{loopStallGo, "s.last.Store(s.Clock.Now().Mono)", "s.last.Store(s.Clock.Now().Wall)"},
			{loopStallGo, "s.Clock.Now().Ran(elect.Instant{Mono: s.last.Load()})", "time.Duration(s.Clock.Now().Wall - s.last.Load())"},
		}},
	)
	doStallMutants = of("./lock",
		one("a stalled Do that succeeds", workStalls, heldGo,
			"\treason := h.term.Stalled()\n", "\tvar reason error\n"),
		one("progress of the inner Do only", workStalls, doGo,
			"\t\t_ = w.stall.Progress()\n", ""),
		one("progress does not reach the third Do", "TestProgressCountsForEachDoAroundIt", doGo,
			"\tfor w = w.within; w != nil; w = w.within {\n\t\t_ = w", "\tif w = w.within; w != nil {\n\t\t_ = w"),
		one("a Do that is told to stop is not watched", "TestWorkThatHangsAfterTheEndOfItsCtxStalls", doGo,
			"defer own.stall.Watch()()\n", "unwatch := own.stall.Watch()\n\t\tdefer unwatch()\n\t\tcontext.AfterFunc(ctx, unwatch)\n"),
	)
	ownStallMutants = of("./group",
		one("a stalled partition moves from its work", ownStalls, workGo,
			"\t\tcase o.must == nil:\n", "\t\tcase true:\n"),
		one("a stalled partition is not told of", ownStalls, workGo,
			"\tm.voice.emitPartition(spindle.Stalled, a, reason)\n", ""),
		one("partitions without a watch", ownStalls, workGo,
			"\t\tstop := a.stall.Watch()\n", "\t\tstop := func() {}\n"),
	)
	demandMutants = of("./cmd/spindle/internal/run",
		one("a program may run for ever", demanded, programsFile,
			"case !n.runBy.IsZero() && !now.Before(n.runBy):", "case false:"),
		one("a program need not make progress", demanded, programsFile,
			"\tn.spare = p.watch(p, h)\n", "\tn.spare = func() {}\n"),
		one("a program's progress does not count", "TestAProgramThatMakesProgressRunsOn", loopStallGo,
			"\t\ts.last.Store(s.Clock.Now().Mono)\n", "\t\ts.last.CompareAndSwap(0, s.Clock.Now().Mono)\n"),
	)
	pingMutants = of("./cmd/spindle/internal/health",
		one("all that a program says is progress", "TestPingsAreThoseOfSystemd", "cmd/spindle/internal/health/pings.go",
			"if slices.Contains(", "if true || slices.Contains("),
	)
	stallMutants = slices.Concat(leaderStallMutants, clockStallMutants, doStallMutants, ownStallMutants, demandMutants, pingMutants)
)
