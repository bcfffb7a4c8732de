// Package spindlegocron lets schedulers of github.com/go-co-op/gocron/v2 on several machines run each job only once. A
// lock table in Spanner decides which machine runs it. There are three ways to do this:
//
//   - [Task] creates a job that runs once for each time of its schedule. The job's ctx ends if its lock is lost, and a
//     run that fails does not count as done.
//   - [NewLocker] returns a gocron.Locker, which does the same for existing jobs. Because gocron does not report the
//     outcome of a job to its locker, a job that has failed, or that a listener has skipped, counts as done, and no
//     other machine runs it.
//   - [NewElector] returns a gocron.Elector, with which all jobs run on the leading machine.
//
// # Schedules
//
// Task and NewLocker take a [lock.Key], which identifies the scheduled time that a run is for, so that all machines agree
// on it. For a job that runs at certain times of the day, such as a CronJob or a DailyJob, use lock.Every with the period
// between these times and their offset within the period, in UTC. Because lock.Every uses Spanner's clock, a machine's
// clock may be wrong by almost half a period, even if the job itself takes less time than that.
//
// A scheduler in a different time zone (gocron.WithLocation) fires at different UTC times. For example, Asia/Kolkata is
// 5:30 ahead of UTC, so the full hours there are lock.Every(time.Hour, 30*time.Minute). A schedule halfway between two
// times of its lock.Every may run twice for one time and not at all for the next. The lock's logger warns about such a
// schedule, and suggests a better offset.
//
// The periods of a DurationJob begin when its own scheduler starts. With lock.Every, the job runs once in each period, on
// the machine that fires first in that period. However, if the machines start halfway between two times of lock.Every, a
// little jitter decides which of the two times a run counts for. Two runs may then be close together, or a period may
// have none. To prevent this, make the job start at a time of lock.Every on each machine:
//
//	gocron.WithStartAt(gocron.WithStartDateTimePast(time.Now().Truncate(period)))
//
// A DurationRandomJob, or a job with WithIntervalFromCompletion, has no times that the machines could agree on. Such a
// job runs at most once in each period.
//
// A job that is started outside its schedule (RunNow, WithStartImmediately) runs unless it has already been done for the
// nearest scheduled time.
package spindlegocron
