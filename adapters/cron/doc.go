// Package spindlecron is for jobs of github.com/robfig/cron/v3 that several machines schedule, but that must run only
// once. A lock table in Spanner decides which machine runs a job. [Job] creates a job that runs once for each time of
// its schedule, [Once] does the same for an existing job, and [OnlyLeader] runs jobs only on the leading machine.
//
// Job and Once take a [lock.Key], which identifies the scheduled time of a run. Use lock.Cron with the job's cron line
// and the Cron's time zone. All machines must have the same line, time zone and time zone data. Otherwise, they
// get different keys:
//
//	c := cron.New(cron.WithLocation(berlin))
//	c.AddJob("0 3 * * *", spindlecron.Job(ctx, logger, once, lock.Cron("0 3 * * *", berlin), report))
//
// When clocks are set forward, package cron skips a job whose time does not exist on that day. When clocks are set
// back, the same time can occur twice. Package cron then starts the job twice. The second start does nothing, unless
// the cron line names every hour (see lock.Cron).
//
// cron.Every, and @every in a spec, count their periods from the time at which the Cron was started on each machine.
// The lock does not know that time. Use lock.Every with the same period. The job then runs once in each period, on the
// first machine that starts it. However, if machines start the job about halfway between two times of lock.Every, two
// runs may be close together, or a period may pass without a run. To prevent this, write */5 * * * * instead of
// @every 5m.
//
// Give each job its own lock.Once, with the same name on all machines.
package spindlecron
