// Package spindlegocron lets the schedulers of github.com/go-co-op/gocron/v2 on several machines run each job once,
// decided by a lock table in Spanner. There are three ways:
//
//   - [Task] is a job that runs once for each time of its schedule. Its ctx ends if its lock is lost, and a failed
//     run is not done.
//   - [NewLocker] is a gocron.Locker to the same end, for existing jobs. gocron does not tell it how a job ends: one
//     that has failed, or that a listener has skipped, is done, and no other machine runs it.
//   - [NewElector] is a gocron.Elector: all jobs run on the machine that leads.
//
// # Schedules
//
// Task and NewLocker take a [lock.Key], which says which fires of different machines are for the same time. For a job that
// fires at times of the day, such as a CronJob or a DailyJob, use lock.Every with the period of these times, and their
// place in the period, in UTC. It goes by Spanner's clock, so clocks of machines may be off by nearly half a period, and
// the job may be shorter than that. A scheduler of another zone (gocron.WithLocation) fires at other times of UTC: each
// full hour in Asia/Kolkata, which is 5:30 ahead, is lock.Every(time.Hour, 30*time.Minute). A schedule halfway between two
// times of its lock.Every may run twice for one time, and not for another: the lock's logger warns of that, and says which
// offset is better.
//
// A DurationJob fires periods after each scheduler's own start. With lock.Every it runs once in each period, on the machine
// that fires first in it. But if machines start half a period off the times of lock.Every, a little jitter decides which of
// two times a fire is for: two runs may be close together, or a period may go without one. So let it start at a time of
// lock.Every, on each machine:
//
//	gocron.WithStartAt(gocron.WithStartDateTimePast(time.Now().Truncate(period)))
//
// A DurationRandomJob, and one with WithIntervalFromCompletion, have no times that machines could agree on: such a job runs
// at most once in each period.
//
// A job that is run by hand (RunNow, WithStartImmediately) runs unless it was done for the time that is nearest.
package spindlegocron
