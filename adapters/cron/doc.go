// Package spindlecron lets the jobs of github.com/robfig/cron/v3 on several machines run once, decided by a lock table in
// Spanner: [Job] is a job that runs once for each time of its schedule, [Once] a wrapper that does so with a job as it
// is, and [OnlyLeader] one that runs jobs on the machine that leads.
//
// Job and Once take a [lock.Key], which says which starts of different machines are for the same time. Use lock.Every with
// the period of the schedule's times, and their place in the period, in UTC:
//
//	@hourly, 0 * * * *       lock.Every(time.Hour)
//	*/5 * * * *              lock.Every(5*time.Minute)
//	0 3 * * *, 0 3 * * MON   lock.Every(24*time.Hour, 3*time.Hour)
//	30 9,17 * * *            lock.Every(8*time.Hour, 90*time.Minute)
//
// A Cron of another zone (cron.WithLocation, CRON_TZ) fires at other times of UTC. In Asia/Kolkata, which is 5:30 ahead:
//
//	@hourly, 0 * * * *       lock.Every(time.Hour, 30*time.Minute)
//	0 3 * * *                lock.Every(24*time.Hour, 21*time.Hour+30*time.Minute)
//
// A schedule halfway between two times of its lock.Every may run twice for one time, and not for another: the lock's logger
// warns of that, and says which offset is better.
//
// lock.Every goes by Spanner's clock, so clocks of machines may be off by nearly half a period, and the job may be shorter
// than that. With a period of a day, a time zone or daylight saving time may be off by hours too.
//
// cron.Every, and @every in a spec, count periods from each machine's own start: lock.Every can't know these times. With
// them the job still runs once in each period, on the first machine in it. But if machines start half a period off the
// times of lock.Every, two runs may be close together, or a period may go without one. Write */5 * * * * for @every 5m.
//
// Give each job its own lock.Once, with the same name on all machines.
package spindlecron
