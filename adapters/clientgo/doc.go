// Package clientgo lets client-go's and controller-runtime's leader election use a lock in Spanner instead of a Lease
// in a Kubernetes cluster. A controller can then run in several clusters and be active in only one of them.
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
// Spindle decides which process leads, and docs/locks.md explains why two processes never hold its lock at the same
// time. However, client-go also has timers of its own. After a successful Update, client-go waits for a RetryPeriod and
// calls Update again. If Update keeps failing, client-go continues to lead for a RenewDeadline. To be safe, client-go
// must stop before the lease of the spindle lock ends. Update therefore succeeds only if the time until the spindle
// lock's local deadline is longer than
//
//	RetryPeriod + RenewDeadline + a twentieth of the lease
//
// The twentieth of the lease is a safety margin, because timers can fire late on a busy machine. In addition, Update
// succeeds only during the term in which the elector began to lead. [Lock.Config] returns settings with which Update
// succeeds as long as heartbeats succeed. [Lock.Accept] checks your own settings.
//
// Conversely, spindle must not release its lock while client-go may still lead. This rule applies after a handover
// request (spindle.WithHandover) and after client-go has given up. The lock is therefore kept until client-go must have
// stopped. It is released immediately if client-go has certainly stopped: the elector's ctx was canceled,
// ReleaseOnCancel is set (Config sets it), and the OnStartedLeading function given to Config has returned. The lock is
// also released if no elector acquires it for a lease, or if the leading elector is a whole lease late in renewing it.
//
// If a process is suspended, its timers may fire much later than the safety margin allows. After the process resumes,
// client-go can continue to lead for another RetryPeriod and RenewDeadline. To stop the work earlier, use the ctx that
// Config passes to OnStartedLeading, or a ctx from [Lock.Context]. If the spindle lock was lost, both contexts end at
// most one RetryPeriod after the process resumes. But nothing can stop a process before it runs again, so fence its
// writes to the database with the token of its term. To do so, pass the token from [TokenOf] or [Lock.Token] to
// Lock.Spindle().Apply.
package clientgo
