// Package spindlecron lets jobs of github.com/robfig/cron/v3 that are scheduled on several machines run only once. A lock
// table in Spanner decides which machine runs a job. [Job] creates a job that runs once for each time of its schedule,
// [Once] wraps an existing job to the same effect, and [OnlyLeader] wraps jobs so that they run on the leading machine.
//
// Job and Once take a [lock.Key], which identifies the scheduled time that a run is for, so that all machines agree on it.
// Use lock.Every with the period between the times of the schedule and their offset within the period, in UTC:
//
//	@hourly, 0 * * * *       lock.Every(time.Hour)
//	*/5 * * * *              lock.Every(5*time.Minute)
//	0 3 * * *, 0 3 * * MON   lock.Every(24*time.Hour, 3*time.Hour)
//	30 9,17 * * *            lock.Every(8*time.Hour, 90*time.Minute)
//
// A Cron in a different time zone (cron.WithLocation, CRON_TZ) fires at different UTC times. These are examples for
// Asia/Kolkata, which is 5:30 ahead of UTC:
//
//	@hourly, 0 * * * *       lock.Every(time.Hour, 30*time.Minute)
//	0 3 * * *                lock.Every(24*time.Hour, 21*time.Hour+30*time.Minute)
//
// A schedule halfway between two times of its lock.Every may run twice for one time and not at all for the next. The
// lock's logger warns about such a schedule, and suggests a better offset.
//
// Because lock.Every uses Spanner's clock, a machine's clock may be wrong by almost half a period, even if the job itself
// takes less time than that. With a period of one day, the schedule may even be off by hours, for example because of a
// time zone or daylight saving time.
//
// cron.Every, and @every in a spec, count periods from the time at which each machine started, which lock.Every can't
// know. With them, the job still runs once in each period, on the first machine that starts it in that period. However,
// if the machines start halfway between two times of lock.Every, two runs may be close together, or a period may have
// none. So write */5 * * * * instead of @every 5m.
//
// Give each job its own lock.Once, with the same name on all machines.
package spindlecron
