// Package spindlegocron lets schedulers of github.com/go-co-op/gocron/v2 on several machines run each job only once. A
// lock table in Spanner decides which machine runs a job. There are three ways to use the package:
//
//   - [Task] returns the task of a job that runs once for each scheduled time. The job's ctx ends if its lock is lost,
//     and a run that fails does not count as done.
//   - [NewLocker] returns a gocron.Locker, with which existing jobs run once for each scheduled time. Because gocron
//     does not tell a locker how a job ended, a job also counts as done if it failed or if a listener skipped it. No
//     other machine then runs it.
//   - [NewElector] returns a gocron.Elector, with which all jobs run only on the leading machine.
//
// # Schedules
//
// Task and NewLocker take a [lock.Key], which identifies the scheduled time of a run, so that all machines agree on it.
// For a job that runs at certain times of the day, such as a CronJob or a DailyJob, use lock.Cron with a cron line for
// these times and the scheduler's time zone (gocron.WithLocation). For a job that runs at regular intervals, use
// lock.Every.
//
// The periods of a DurationJob begin when its own scheduler starts. With lock.Every, the job then runs once in each
// period, on the first machine that starts it. However, if machines start the job about halfway between two
// scheduled times of lock.Every, two runs may be close together, or a period may pass without a run. To prevent this,
// make the job start at one of these scheduled times on each machine:
//
//	gocron.WithStartAt(gocron.WithStartDateTimePast(time.Now().Truncate(period)))
//
// A DurationRandomJob, or a job with WithIntervalFromCompletion, has no times that the machines could agree on. Such a
// job runs at most once in each period of lock.Every.
//
// A job that is started outside its schedule (RunNow, WithStartImmediately) runs unless it has already been done for
// the nearest scheduled time.
package spindlegocron
