// Package options passes each option to each kind of lock. It does not compile: see TestAnOptionForOtherKindsDoesNotCompile.
package options

import (
	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/lock"
)

var common = []spindle.CommonOption{
	spindle.WithLease(0), spindle.WithDuration(0), spindle.WithHeartbeat(0), spindle.WithID(""), spindle.WithValue(""),
	spindle.WithLogger(nil), spindle.WithStall(0), spindle.WithMeterProvider(nil), spindle.WithTracerProvider(nil),
}

// Electors.
var _ = spindle.New(nil, "", "",
	spindle.Options(common...),
	spindle.WithLockDelay(0), spindle.WithSharedRequests(), spindle.WithNotifier(nil),
	spindle.WithReclaim(), spindle.WithHandover(), spindle.WithObserver(nil),
	spindle.WithPoll(0), spindle.WithLeader(nil), spindle.WithKeepOnReturn(), spindle.WithPriority(0),
	group.WithWork(nil),       // wrong
	group.WithEarlyReturn(0),  // wrong
	group.WithInitialDelay(0), // wrong
	group.WithWeight(0),       // wrong
	group.WithIdentity(0),     // wrong
)

// Mutexes, sets, semaphores and work that is done once.
var _ = []lock.Option{
	spindle.Options(common...),
	spindle.WithLockDelay(0), spindle.WithSharedRequests(), spindle.WithNotifier(nil),
	spindle.WithReclaim(),      // wrong
	spindle.WithHandover(),     // wrong
	spindle.WithObserver(nil),  // wrong
	spindle.WithPoll(0),        // wrong
	spindle.WithLeader(nil),    // wrong
	spindle.WithKeepOnReturn(), // wrong
	spindle.WithPriority(0),    // wrong
	group.WithWork(nil),        // wrong
	group.WithEarlyReturn(0),   // wrong
	group.WithInitialDelay(0),  // wrong
	group.WithWeight(0),        // wrong
	group.WithIdentity(0),      // wrong
}

// Members of groups.
var _ = group.New(nil, "", "", group.Numbered(1),
	spindle.Options(common...),
	spindle.WithLockDelay(0),     // wrong
	spindle.WithSharedRequests(), // wrong
	spindle.WithNotifier(nil),    // wrong
	spindle.WithReclaim(), spindle.WithHandover(), spindle.WithObserver(nil),
	spindle.WithPoll(0),        // wrong
	spindle.WithLeader(nil),    // wrong
	spindle.WithKeepOnReturn(), // wrong
	spindle.WithPriority(0),    // wrong
	group.WithWork(nil), group.WithEarlyReturn(0), group.WithInitialDelay(0), group.WithWeight(0), group.WithIdentity(0),
)

func _(more []lock.Option) {
	_ = lock.New(nil, "", "", more...)
	_ = lock.All(nil, "", nil, more...)
	_ = lock.NewSemaphore(nil, "", "", 1, more...)
	_ = lock.NewOnce(nil, "", "", more...)
	_ = spindle.Options(more[0])            // wrong
	_ = spindle.New(nil, "", "", func() {}) // wrong
}
