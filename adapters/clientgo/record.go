package clientgo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/spindle-lock/spindle"
)

// Identity implements resourcelock.Interface. It returns the id of the spindle lock (spindle.WithID).
func (l *Lock) Identity() string { return l.settings.ID }

// Describe implements resourcelock.Interface. It returns the table and the name.
func (l *Lock) Describe() string { return l.describe }

// RecordEvent implements resourcelock.Interface. It records no events, because spindle logs and measures each term.
func (l *Lock) RecordEvent(event string) {
	if event == "became leader" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tenure; t != nil && time.Until(t.until) < l.slack() {
		t.until = time.Now().Add(l.slack()) // it stopped late, and cancels its work next
	}
	l.tenure = nil // the elector has stopped and may acquire again; its term is kept for the promised time
	l.notify()
}

// Get implements resourcelock.Interface. For an elector that leads, it returns immediately. For any other elector, the
// spindle lock competes from now on, and Get waits until this process may lead, a different leader is seen, or ctx
// ends. If this process may lead, the record has no holder. If a different leader is seen, the record contains that
// leader's id, with the time of its token as AcquireTime. LeaderTransitions is the number of leaders that this Lock has
// seen.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, err := l.get(ctx)
	if err != nil {
		return nil, nil, l.wrap(fmt.Errorf("get: %w", err))
	}
	raw, err := json.Marshal(r)
	return &r, raw, err
}

func (l *Lock) get(ctx context.Context) (resourcelock.LeaderElectionRecord, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tenure != nil {
		return l.standing(l.tenure), nil
	}
	if l.term != nil && !l.term.granted.IsZero() {
		l.term.freed = true // the elector has stopped, and is trying to acquire again
		l.notify()
	}
	defer context.AfterFunc(ctx, func() { l.mu.Lock(); defer l.mu.Unlock(); l.notify() })()
	for ctx.Err() == nil {
		if l.foreign != nil {
			return resourcelock.LeaderElectionRecord{}, l.foreign
		}
		c, err := l.compete(ctx)
		if err != nil {
			return resourcelock.LeaderElectionRecord{}, err
		}
		if t := l.term; t != nil && l.offer(t) == nil {
			return l.nobody(), nil
		}
		if leader, age, ok := l.other(); ok && leader.Token != c.told {
			c.told = leader.Token
			l.leaders++
			return l.recordOf(leader, age), nil
		}
		l.sleep(l.timing.RetryPeriod)
	}
	if leader, age, ok := l.other(); ok {
		return l.recordOf(leader, age), nil // not an error: client-go would log it
	}
	return resourcelock.LeaderElectionRecord{}, context.Cause(ctx)
}

// standing returns the record for an elector that leads.
func (l *Lock) standing(t *term) resourcelock.LeaderElectionRecord {
	if l.held(t) {
		return l.record
	}
	if leader, age, ok := l.other(); ok {
		return l.recordOf(leader, age)
	}
	return l.nobody()
}

func (l *Lock) nobody() resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{LeaderTransitions: l.leaders}
}

// other returns the leader if it is another process. A leader with this process's own id is ignored, because client-go
// would mistake it for this process.
func (l *Lock) other() (leader spindle.Leader, age time.Duration, ok bool) {
	leader, age, ok = l.lock.Seen()
	return leader, age, ok && leader.ID != l.settings.ID && age < leader.Lease
}

func (l *Lock) recordOf(leader spindle.Leader, age time.Duration) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{
		HolderIdentity:       leader.ID,
		LeaseDurationSeconds: int((leader.Lease + time.Second - 1) / time.Second),
		AcquireTime:          metav1.NewTime(leader.Token.Time()),
		RenewTime:            metav1.NewTime(time.Now().Add(-age)),
		LeaderTransitions:    l.leaders,
	}
}

// Create implements resourcelock.Interface. It is the same as Update, because a record always exists.
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

// Update implements resourcelock.Interface. It makes no RPC, except to release the lock. It succeeds only if this
// process will hold the spindle lock for longer than client-go can lead without another Update.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if r.HolderIdentity == "" {
		return l.wrap(l.release(ctx))
	}
	return l.wrap(l.renew(ctx, r))
}

func (l *Lock) renew(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if r.HolderIdentity != l.settings.ID {
		return fmt.Errorf("update: the record is for %q, but this process is %q", r.HolderIdentity, l.settings.ID)
	}
	if err := l.fits(ctx, r); err != nil {
		return err
	}
	t := l.tenure
	if t == nil {
		if t = l.term; t == nil || !t.granted.IsZero() {
			return fmt.Errorf("update: %w", spindle.ErrNotLeader)
		}
	}
	now := time.Now()
	if err := l.offer(t); err != nil {
		if l.tenure == t && l.left(t) <= 0 {
			l.lose(t)
		}
		return fmt.Errorf("update: %w", err)
	}
	t.forget()
	t.granted, t.until, l.tenure, l.record = now, now.Add(l.promise(l.timing)), t, r
	l.notify()
	return nil
}

// offer returns nil if client-go may lead under the term until it would stop by itself.
func (l *Lock) offer(t *term) error {
	if !l.held(t) || t.freed {
		return fmt.Errorf("the term of token %v has ended: %w", t.token, lossOf(t))
	}
	if t.lost.Err() != nil {
		return fmt.Errorf("the lock is about to be given up: %w", context.Cause(t.lost))
	}
	if leader, _, _ := l.lock.Seen(); leader.Leaving && t.granted.IsZero() {
		return errors.New("the lock is about to be given up")
	}
	if left, needed := l.left(t), l.promise(l.timing); left <= needed {
		return fmt.Errorf("only %v of the lease is left because heartbeats are not being acknowledged, but client-go could lead for up to %v more; heartbeats continue",
			left.Round(time.Millisecond), needed)
	}
	return nil
}

// fits permanently rejects an elector whose settings differ from those that were checked. An elector's RenewDeadline is
// visible only in the ctx of a renewal, and only in the first of several attempts.
func (l *Lock) fits(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if l.foreign != nil {
		return l.foreign
	}
	if want := seconds(l.timing); r.LeaseDurationSeconds != want {
		return l.refuse(fmt.Errorf("the elector has a LeaseDuration of %d s instead of %d s; pass its settings to Accept, or use those from Config", r.LeaseDurationSeconds, want))
	}
	end, limited := ctx.Deadline()
	if left := time.Until(end); limited && l.tenure != nil && left > l.timing.RenewDeadline {
		return l.refuse(fmt.Errorf("the elector has a RenewDeadline of %v instead of %v; pass its settings to Accept, or use those from Config", left.Round(time.Millisecond), l.timing.RenewDeadline))
	}
	return nil
}

func (l *Lock) refuse(err error) error {
	l.foreign = err
	if l.latest != nil && l.tenure == nil {
		l.retire(l.latest)
	}
	return err
}

// release releases the lock if it is certain that client-go's ctx has ended. An elector gives up by itself no earlier
// than a RenewDeadline after its last successful Update. At that point its work's ctx has not ended yet, so the term is
// kept for the promised time.
func (l *Lock) release(ctx context.Context) error {
	l.mu.Lock()
	t := l.tenure
	if t == nil || time.Since(t.granted) >= l.timing.RenewDeadline {
		l.mu.Unlock()
		return nil
	}
	t.freed = true
	l.notify()
	l.mu.Unlock()
	if err := t.wait(ctx); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}
