// Program competes for a lock, like a process of a real service. The tests build it with this version of the library
// and with the previous one. Without the build tag notifications, it uses only the API that both versions have.
//
//	program elect|handover|mutex DATABASE TABLE LOCK ID LEASE    competes, and obeys the orders that it reads
//	program create DATABASE TABLE                                creates the lock table
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/lock"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx := context.Background()
	if args[0] == "create" {
		return ddl.Create(ctx, args[1], args[2])
	}
	lease, err := time.ParseDuration(args[5])
	if err != nil {
		return err
	}
	db, err := spanner.NewClientWithConfig(ctx, args[1], spanner.ClientConfig{DisableNativeMetrics: true}, spindle.ClientOptions(lease)...)
	if err != nil {
		return err
	}
	id, leased, logs := spindle.WithID(args[4]), spindle.WithLease(lease), spindle.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if args[0] == "mutex" {
		waiter{db, newMutex(db, args[2], args[3], id, leased, logs), spindle.New(db, args[2], args[3])}.obey(ctx)
		return nil
	}
	opts := []spindle.Option{id, leased, logs}
	if args[0] == "handover" {
		opts = append(opts, spindle.WithHandover())
	}
	return candidate{newLock(db, args[2], args[3], opts...)}.run(ctx)
}

var out sync.Mutex

// say prints a line. The tests compare the first word.
func say(what string, details ...any) {
	out.Lock()
	defer out.Unlock()
	fmt.Println(append([]any{what}, details...)...)
}

// orders reads lines from standard input, and calls obey for each. Once the parent has ended, this process exits.
func orders(obey func(what string, a, b int64)) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var what string
		var a, b int64
		_, _ = fmt.Sscan(lines.Text(), &what, &a, &b) // not every order has two numbers
		obey(what, a, b)
	}
	os.Exit(1)
}

// report prints the intervals during which the process believed that it held the lock. An interval begins when the
// given function first returns true, and ends at the start of its last call that returns true. While an interval lasts,
// report prints it repeatedly. Only the last line about an interval counts.
func report(has func() (bool, spindle.Token)) {
	const every = 20 * time.Millisecond // a kill can shorten the reported interval by this much
	var token spindle.Token
	var from, to, last time.Time
	flush := func() {
		if token != 0 && to.After(last) {
			say("held", token, from.UnixNano(), to.UnixNano())
			last = to
		}
	}
	for range time.Tick(time.Millisecond) {
		before := time.Now()
		holds, now := has()
		switch {
		case holds && now == token:
			if to = before; to.Sub(last) > every {
				flush()
			}
		case holds:
			flush()
			token, from, to = now, time.Now(), time.Time{}
			say("elected", token)
		case token != 0:
			flush()
			say("lost", token)
			token = 0
		}
	}
}

// A candidate competes for leadership.
type candidate struct{ lock *spindle.Lock }

func (c candidate) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	if err := c.lock.Run(ctx, done); err != nil {
		return err
	}
	go report(c.lock.HasLock)
	go orders(func(what string, a, b int64) {
		switch what {
		case "write": // under token a
			_, err := c.lock.Apply(ctx, spindle.Token(a), write(b))
			answer(err, "wrote", b)
		case "stop":
			stop()
		}
	})
	err := <-done
	answer(err, "stopped")
	return err
}

func write(value int64) []*spanner.Mutation {
	return []*spanner.Mutation{spanner.InsertOrUpdate("register", []string{"id", "value"}, []any{int64(1), value})}
}

func answer(err error, what string, details ...any) {
	switch {
	case err == nil:
		say(what, details...)
	case errors.Is(err, spindle.ErrFenced):
		say("fenced", err)
	default:
		say("failed", err)
	}
}

// A waiter takes turns at a mutex.
type waiter struct {
	db    *spanner.Client
	mutex *lock.Mutex
	fence *spindle.Lock // on the same name; it does not compete
}

func (w waiter) obey(ctx context.Context) {
	go report(func() (bool, spindle.Token) {
		token := w.mutex.Token()
		return token != 0, token
	})
	orders(func(what string, a, b int64) {
		switch what {
		case "lock":
			err := w.mutex.Lock(ctx)
			answer(err, "locked", w.mutex.Token())
		case "unlock":
			answer(w.mutex.Unlock(ctx), "unlocked")
		case "write": // under token a
			_, err := w.fence.Apply(ctx, spindle.Token(a), write(b))
			answer(err, "wrote", b)
		case "turns":
			answer(w.turns(ctx, a), "took", a)
		}
	})
}

// turns increments a number in the database n times, each time under the mutex. All waiters increment the same number.
func (w waiter) turns(ctx context.Context, n int64) error {
	for range n {
		if err := w.mutex.Lock(ctx); err != nil {
			return err
		}
		row, err := w.db.Single().ReadRow(ctx, "register", spanner.Key{int64(1)}, []string{"value"})
		if err != nil {
			return err
		}
		var value int64
		if err := row.Columns(&value); err != nil {
			return err
		}
		if _, err := w.mutex.Apply(ctx, write(value+1)); err != nil {
			return err
		}
		if err := w.mutex.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}
