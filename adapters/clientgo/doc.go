// Package clientgo makes the leader election of client-go and controller-runtime use a lock in Spanner instead of a Lease
// in one Kubernetes cluster. Controllers can therefore run in several clusters, with one of them active.
//
//	lock, err := clientgo.New(db, "locktable", "my-controller")
//	...
//	elector, err := leaderelection.NewLeaderElector(lock.Config(leaderelection.LeaderCallbacks{
//		OnStartedLeading: func(ctx context.Context) { ... },
//		OnStoppedLeading: func() { ... },
//	}))
//	...
//	elector.Run(ctx)
//
// # Why two processes never lead at the same time
//
// Spindle decides which process leads. Package spindle explains why two processes never hold its lock at the same time.
// However, client-go has timers of its own. After a successful Update, client-go waits for a RetryPeriod and calls Update
// again. If Update keeps failing, client-go continues to lead for a RenewDeadline. Therefore, Update succeeds only if the
// local deadline of the spindle lock is further away than
//
//	RetryPeriod + RenewDeadline + a twentieth of the lease
//
// and only during the term in which the elector began to lead. The twentieth of a lease allows for a busy machine, on
// which timers fire late. So if every further Update fails, the elector has stopped leading before the lease ends.
// [Lock.Config] returns settings with which Update succeeds as long as heartbeats do, and [Lock.Accept] checks your own.
//
// Conversely, the spindle lock is not released while client-go may still lead, neither for a handover request
// (spindle.WithHandover) nor when client-go gives up. It is released immediately if the elector's ctx has been canceled,
// ReleaseOnCancel is set (as it is by Config), and the OnStartedLeading function given to Config has returned. It is also
// released if no elector acquires it for a lease, or if the leading elector is a whole lease late in renewing it.
//
// If a process is suspended for longer than that twentieth of a lease, its timers fire later by the same amount, and
// client-go then leads for up to another RenewDeadline. The ctx that Config passes to OnStartedLeading ends with the
// spindle lock, and so does a ctx from [Lock.Context]. Both therefore end within a RetryPeriod after the process resumes.
// But nothing can stop a process before it runs again, so fence its writes to the database with the token of its term:
// use [TokenOf] or [Lock.Token], with Lock.Spindle().Apply.
package clientgo
