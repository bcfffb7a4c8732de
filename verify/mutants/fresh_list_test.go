//go:build mutants

package mutants

import "slices"

const (
	namesComeBack = "TestTheNameOfAGroupsLockIsReadBack"
	whateverRows  = "TestWhateverRowsAreDeletedByHandTheOthersCount"
	runIsOver     = "TestARunIsOverOnceAllCodeOfTheCallerHasReturned"
	groupNamesGo  = "internal/table/group.go"
)

// freshMutants are bugs that no test noticed when they were first planted.
var freshMutants = slices.Concat(
	of("./internal/table",
		one("the name of a partition is decoded as a query", namesComeBack, groupNamesGo, "url.PathUnescape(is[4])", "url.QueryUnescape(is[4])"),
		one("the name of a group is encoded as a query", namesComeBack, groupNamesGo, "return url.PathEscape(group) + \"/\"", "return url.QueryEscape(group) + \"/\""),
		one("a member without a lock row is not seen", whateverRows, snapshotGo,
			"\t\t_, name := RoleOf(row.Name)\n", "\t\trole, name := RoleOf(row.Name)\n\t\tif role == OfLease {\n\t\t\tcontinue\n\t\t}\n"),
		one("a member without a lease row is not seen", whateverRows, snapshotGo,
			"\t\t_, name := RoleOf(row.Name)\n", "\t\trole, name := RoleOf(row.Name)\n\t\tif role != OfLease {\n\t\t\tcontinue\n\t\t}\n"),
		one("a partition without a lock row is anybody's", whateverRows, "internal/table/rows.go",
			"records := slices.Collect(maps.Values(o.OrphanLeases))", "var records []LeaseRecord"),
	),
	of("./lock",
		one("a lock is held until its release has ended", "TestALockThatIsBeingReleasedIsNotHeld", heldGo, "if h.left.Load() || !h.term.Held() {", "if !h.term.Held() {"),
		one("the first slot that a smaller size does not have is known to it", "TestASmallerSizeCountsOnlyWhileItIsHeld", slotsGo,
			"return chosen < Slot(s.Name, s.common(holders)), nil", "return chosen <= Slot(s.Name, s.common(holders)), nil"),
		one("a done row that can't be read is none", "TestARowThatBecomesUnreadableEndsTheWait", "internal/wait/place.go", "\treturn d, p.at, err\n", "\t_ = err\n\treturn d, p.at, nil\n"),
		one("a permit of the innermost semaphore", "TestEachSemaphoreHasItsOwnPermit", semaphoreGo,
			"if w := s.contender.work(ctx); w != nil {\n\t\treturn w.permit", "if w := working(ctx); w != nil && w.permit != nil {\n\t\treturn w.permit"),
	),
	of(".",
		one("a release that ran out of time leaves nothing to be released", "TestRunSaysIfItsLockIsLeftToExpire", runGo,
			"if errors.Is(err, ErrSuperseded) {\n\t\treturn nil", "if errors.Is(err, ErrSuperseded) || errors.Is(err, context.DeadlineExceeded) {\n\t\treturn nil"),
		one("a leader that changed twice is none", "TestLeaderFollowsALockThatChangesHands", seenGo,
			"\t\tif known := o.Token; seen[0].Token == known || !seen[0].Confirmed() {", "\t\tif known := o.Token; seen[0].Token == known || !seen[0].Confirmed() || known != 0 {"),
		one("a view that comes after a look is missed", "TestAViewThatComesAfterALookIsNotMissed", seenGo, "case <-v.next:", "case <-l.view.Load().next:"),
	),
	of("./group",
		one("a member that was evicted has left its lock to expire", "TestRunSaysIfTheMembersLockIsLeftToExpire", groupTermGo,
			"case err == nil, errors.Is(err, spindle.ErrSuperseded):", "case err == nil:"),
		one("a release that failed is over at the next poll", "TestWhileReleasesFailMostPartitionsAreWorkedOn", movesGo,
			"\t\tt.conduct.Failed(t.polls.clock.Now(), err, false, released...)\n", ""),
	),
	of("./internal/operator",
		one("a batch that is split loses a lock", "TestPruneGoesOnBesideALockThatIsContended", "internal/table/claim.go", "seen[len(seen)/2:]...", "seen[len(seen)/2+1:]..."),
	),
	of("./internal/loop",
		one("Run waits only for the work", runIsOver, "internal/loop/run.go", "\t\t\tif observing != nil {", "\t\t\tif observing != nil && overdue == nil {"),
		one("a pause ends once the lock was seen to be held", "TestAPauseGrowsFromFailureToFailureUntilSomethingIsDone", "internal/loop/pause.go", "left > 0 {\n", "left > 0 && !p.held {\n"),
	),
	of("./internal/batch",
		one("a shared commit goes on without its caller", "TestACallerThatGivesUpWaitsForNobody", "internal/batch/batch.go",
			"\tcase <-ctx.Done():\n\t\treturn ctx.Err()\n", ""),
	),
	of("./internal/telemetry",
		one("an instrument that is refused is used", "TestAProviderThatRefusesInstrumentsCostsNoTerm", "internal/telemetry/instruments.go",
			"\tReport(err)\n\treturn instrument\n", "\tif Report(err); err != nil {\n\t\tvar none I\n\t\treturn none\n\t}\n\treturn instrument\n"),
	),
	of("./internal/fence",
		one("two clients of one database are two databases", "TestACommitUnderSeveralLocksLandsWhileAllAreHeld", "internal/fence/fence.go", "f.Table.DB.DatabaseName()", "f.Table.DB.ClientID()"),
	),
	of(agentPkg,
		one("a leader that has gone is still shown", "TestACandidateIsToldThatTheLeaderHasGone", agentFolder+"kinds.go",
			"\t\t\tcase e.Kind == spindle.LeaderGone:\n\t\t\t\th.lines.add(line{Event: \"leader\"})\n", ""),
	),
	of("./cmd/spindle/internal/model",
		one("not all waiters, given as all", "TestWaitersAreListedForPeople", "cmd/spindle/internal/model/sentence.go",
			"fmt.Sprintf(\"%s waiting, longest %s\", howMany(l, len(l.Waiters)),", "fmt.Sprintf(\"%d waiting, longest %s\", len(l.Waiters),"),
	),
	of("./cmd/spindle/internal/child",
		one("every spindle is a watchdog", "TestTheEndOfAProgramSparesTheWatchdogsOfOthers", childOrphansGo,
			"\treturn name == watchdogName\n", "\treturn len(name) >= 7 && name[:7] == \"spindle\"\n"),
		one("a lock file that was removed is taken", "TestALockFileHasOneHolder", "cmd/spindle/internal/child/lockfile_unix.go", "if err == nil && !stillAt(path, f) {", "if false {"),
	),
)
