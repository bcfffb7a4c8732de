package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/demokit"
)

const (
	lease   = time.Second
	workers = 3

	// idle is how long a worker waits when it has nothing to do. It can be short, because HasLock makes no RPC.
	idle = 10 * time.Millisecond
)

// site is a pool of workers that share one lock.
type site struct {
	name string
	db   *spanner.Client
	lock *spindle.Lock
	fail func(error) // called with errors that a worker can't handle

	// stop ends the workers and then releases the lock. The lock is released last, because another site may start as
	// soon as the lock is free. stop can be called more than once.
	stop func() error
}

// newSite returns a site that competes for the lock. The site's workers start processing jobs once the site holds the
// lock. The lock's events are passed to observe.
func newSite(db *spanner.Client, name string, observe func(spindle.Event), fail func(error)) (*site, error) {
	s := &site{name: name, db: db, fail: fail}
	s.lock = spindle.New(db, demokit.Table, "queue",
		spindle.WithID(name),
		spindle.WithLease(lease),
		spindle.WithObserver(observe),
		spindle.WithLogger(slog.New(slog.DiscardHandler)))
	locking, stopLock := context.WithCancel(context.Background())
	released := make(chan error, 1)
	if err := s.lock.Run(locking, released); err != nil {
		stopLock()
		return nil, err
	}
	working, stopWorkers := context.WithCancel(context.Background())
	var pool sync.WaitGroup
	for n := range workers {
		pool.Go(func() { s.work(working, n) })
	}
	s.stop = sync.OnceValue(func() error {
		stopWorkers()
		pool.Wait()
		stopLock()
		return <-released
	})
	return s, nil
}

// work runs one worker until ctx ends.
func (s *site) work(ctx context.Context, n int) {
	for ctx.Err() == nil {
		held, token := s.lock.HasLock()
		if !held {
			time.Sleep(idle)
			continue
		}
		job, err := nextJob(ctx, s.db, n)
		if err == nil {
			// A job that is already processed is worth committing, even if ctx ends.
			err = s.finish(context.WithoutCancel(ctx), token, job, job.process())
		}
		switch {
		case err == nil, ctx.Err() != nil:
		case errors.Is(err, errNoJob), errors.Is(err, spindle.ErrFenced):
			time.Sleep(idle) // if the commit was fenced, the next holder does the job
		default:
			s.fail(err)
			return
		}
	}
}

// finish writes the result of a job. If token was superseded, it returns spindle.ErrFenced. It does not need to check
// whether another site has done the job, because no other site works while the token is valid. ApplyAtLeastOnce needs
// only one RPC but may apply the result twice, which is harmless here.
func (s *site) finish(ctx context.Context, token spindle.Token, j job, result int64) error {
	_, err := s.lock.Apply(ctx, token, []*spanner.Mutation{j.finished(s.name, result)}, spanner.ApplyAtLeastOnce())
	return err
}
