package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/lock"
)

// locker is the lock of a hold. No method but acquire may be called until acquire has returned nil.
type locker interface {
	acquire(ctx context.Context) error // blocks until the lock is held
	token() spindle.Token
	left() time.Duration
	names() []string                              // names of the locks that are held
	release(ctx context.Context, done bool) error // blocks until the lock is released; if done, also records the key as done
	stepDown(ctx context.Context, stop func())    // makes sure that stop is called once the work should return
	key() (string, []table.Write)                 // for work that is done once: its key, and the writes that record the key as done
}

var (
	errBusy = errors.New("the lock is not free")
	errDone = errors.New("the key is already done")

	errNotDone = errors.New("the program did not report the key as done")
)

// plain has the methods that most kinds share.
type plain struct{}

func (plain) stepDown(_ context.Context, stop func()) { stop() }

func (plain) key() (string, []table.Write) { return "", nil }

// leaseKeys returns the keys of the lease rows that a held lock has. The fence needs them.
func leaseKeys(l locker) (keys []string) {
	for _, name := range l.names() {
		keys = append(keys, table.LeaseKey(name, table.Token(l.token())))
	}
	return keys
}

// mutex is a lock or a set of locks.
type mutex struct {
	plain
	all []string
	of  interface {
		Lock(context.Context) error
		TryLock(context.Context) (bool, error)
		Unlock(context.Context) error
		Token() spindle.Token
		Left() time.Duration
		Err() error
	}
	try bool
}

func (m *mutex) acquire(ctx context.Context) error {
	if !m.try {
		return m.of.Lock(ctx)
	}
	ok, err := m.of.TryLock(ctx)
	if err == nil && !ok {
		return errBusy
	}
	return err
}

func (m *mutex) token() spindle.Token { return m.of.Token() }

func (m *mutex) left() time.Duration { return m.of.Left() }

func (m *mutex) names() []string { return m.all }

func (m *mutex) release(ctx context.Context, _ bool) error { return m.of.Unlock(ctx) }

// permit is a slot of a semaphore.
type permit struct {
	plain
	of  *lock.Semaphore
	try bool
	now *lock.Permit
}

func (p *permit) acquire(ctx context.Context) (err error) {
	if !p.try {
		p.now, err = p.of.Acquire(ctx)
		return err
	}
	var ok bool
	p.now, ok, err = p.of.TryAcquire(ctx)
	if err == nil && !ok {
		return errBusy
	}
	return err
}

func (p *permit) token() spindle.Token { return p.now.Token() }

func (p *permit) left() time.Duration { return p.now.Left() }

// names returns the name of the slot, which it takes from the fence.
func (p *permit) names() []string { return p.now.FenceIn(context.Background()).(fence.Fence).Names }

func (p *permit) release(ctx context.Context, _ bool) error { return p.now.Release(ctx) }

// once is work that is done once. Do runs in a goroutine, and the function that it calls waits for the program.
type once struct {
	plain
	name  string
	id    string
	of    *lock.Once
	due   lock.Key
	every time.Duration // the period of the schedule, or 0
	try   bool

	run      lock.Run
	returned chan bool  // receives whether the key is done
	result   chan error // of Do
}

func (o *once) acquire(ctx context.Context) error {
	won := make(chan struct{})
	o.returned, o.result = make(chan bool, 1), make(chan error, 1)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel) // ctx limits only the wait
	go func() {
		defer cancel()
		o.result <- o.do(run, func(now lock.Run) bool {
			stop()
			o.run = now
			close(won)
			return <-o.returned
		})
	}()
	select {
	case <-won:
		return nil
	case err := <-o.result:
		return err
	}
}

// do runs work, unless the key is already done. The result of work says whether to record the key as done.
func (o *once) do(ctx context.Context, work func(lock.Run) bool) error {
	do := o.of.Do
	if o.try {
		do = o.of.TryDo
	}
	ran, err := do(ctx, o.due, func(_ context.Context, run lock.Run) error {
		if !work(run) {
			return errNotDone
		}
		return nil
	})
	switch {
	case err == nil && !ran:
		return errDone
	case errors.Is(err, lock.ErrBusy):
		return fmt.Errorf("%w: %w", errBusy, err)
	case errors.Is(err, errNotDone) && !errors.Is(err, lock.ErrNotHeld):
		return nil
	}
	return err
}

func (o *once) token() spindle.Token { return o.run.Token() }

func (o *once) left() time.Duration { return o.run.Left() }

func (o *once) names() []string { return []string{o.name} }

func (o *once) key() (string, []table.Write) {
	due := table.Due{Key: o.run.Key(), Period: o.every}
	return due.Key, table.Record(o.name, table.Token(o.run.Token()), due, o.id)
}

func (o *once) release(ctx context.Context, done bool) error {
	o.returned <- done
	return await(ctx, o.result)
}

// election is one term in an election.
type election struct {
	plain
	name  string
	new   func(...spindle.Option) *spindle.Lock
	try   bool
	asked func()                   // called once the work should return
	seen  func(leader *leaderJSON) // called with each other leader, and with nil if there is none

	term     spindle.Term
	end      context.CancelFunc // of Run
	returned chan struct{}      // closed when the work has returned
	result   chan error         // of Run
}

func (e *election) acquire(ctx context.Context) error {
	won, taken := make(chan struct{}), make(chan struct{})
	e.returned, e.result = make(chan struct{}), make(chan error, 1)
	l := e.new(
		spindle.WithLeader(func(ctx context.Context, term spindle.Term) { e.term = term; close(won); e.work(ctx) }),
		spindle.WithObserver(e.observe(sync.OnceFunc(func() { close(taken) }))))
	var run context.Context
	run, e.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := l.Run(run, e.result); err != nil {
		e.end()
		return err
	}
	busy := taken
	if !e.try {
		busy = nil
	}
	select {
	case <-won:
		return nil
	case <-busy:
		return e.withdraw(won, errBusy)
	case <-ctx.Done():
		return e.withdraw(won, errors.Join(context.Cause(ctx), l.Health()))
	}
}

// work is the leader function. It returns once the hold releases the lock. If the elector has to step down before that,
// work asks the program to release the lock.
func (e *election) work(ctx context.Context) {
	select {
	case <-e.returned:
		return
	case <-ctx.Done():
	}
	if errors.Is(context.Cause(ctx), spindle.ErrSteppedDown) {
		e.asked()
	}
	<-e.returned
}

func (e *election) observe(busy func()) func(spindle.Event) {
	return func(ev spindle.Event) {
		switch ev.Kind {
		case spindle.LeaderSeen:
			e.seen(leaderOf(ev.Leader))
			busy()
		case spindle.LeaderGone:
			e.seen(nil)
		}
	}
}

// withdraw stops competing and returns why. It returns nil if the lock has been won in the meantime.
func (e *election) withdraw(won <-chan struct{}, why error) error {
	e.end()
	select {
	case <-won:
		return nil
	case err := <-e.result:
		return errors.Join(why, err)
	}
}

func (e *election) token() spindle.Token { return e.term.Token() }

func (e *election) left() time.Duration { return e.term.Left() }

func (e *election) names() []string { return []string{e.name} }

// release lets the leader function return, which releases the lock. It also ends Run, because the elector must not
// compete again.
func (e *election) release(ctx context.Context, _ bool) error {
	close(e.returned)
	e.end()
	return await(ctx, e.result)
}

func (e *election) stepDown(ctx context.Context, _ func()) { _ = e.term.StepDown(ctx) }

func await(ctx context.Context, result <-chan error) error {
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// newLocker returns the locker for the request of a hold.
func newLocker(r *request, h *hold) (locker, error) {
	tableName, options := h.agent.TableName, h.options()
	switch r.kind {
	case semaphores:
		s := lock.NewSemaphore(nil, tableName, r.names[0], r.slots, options)
		return &permit{of: s, try: r.try}, s.Err()
	case onces:
		o := lock.NewOnce(nil, tableName, r.names[0], options)
		return &once{name: r.names[0], id: h.holder, of: o, due: r.due, every: r.every, try: r.try}, o.Err()
	case elections:
		make := func(more ...spindle.Option) *spindle.Lock {
			return spindle.New(nil, tableName, r.names[0], append(append(r.elector(), options), more...)...)
		}
		e := &election{name: r.names[0], new: make, try: r.try, seen: h.sayLeader, asked: h.ask}
		return e, make().Err()
	}
	if len(r.names) == 1 {
		m := lock.New(nil, tableName, r.names[0], options)
		return &mutex{all: r.names, of: m, try: r.try}, m.Err()
	}
	s := lock.All(nil, tableName, r.names, options)
	return &mutex{all: r.names, of: s, try: r.try}, s.Err()
}
