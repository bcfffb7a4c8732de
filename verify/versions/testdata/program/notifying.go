//go:build notifications

package main

import (
	"sync"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/lock"
)

var notifier = sync.OnceValue(func() *spindle.Notifier {
	n, err := spindle.ListenNotifications("127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return n
})

func newMutex(db *spanner.Client, table, name string, opts ...lock.Option) *lock.Mutex {
	return lock.New(db, table, name, append(opts, spindle.WithNotifier(notifier()))...)
}

func newLock(db *spanner.Client, table, name string, opts ...spindle.Option) *spindle.Lock {
	return spindle.New(db, table, name, append(opts, spindle.WithNotifier(notifier()))...)
}
