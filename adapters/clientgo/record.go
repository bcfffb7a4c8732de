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

// Get implements resourcelock.Interface. While the elector leads, Get returns immediately. Otherwise the spindle lock
// competes from now on, and Get waits until one of these events:
//   - This process may lead. Get returns a record without a holder, so that the elector acquires the lock.
//   - Another process leads under a token that Get has not reported yet. Get returns a record with the leader's id, and
//     the time of the token as AcquireTime.
//   - ctx ends. Get returns the record of the current leader or, if there is none, an error.
//
// LeaderTransitions is the number of leaders that this Lock has seen.
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

// other returns the current leader if it is another process. It ignores a leader that has the same id as this process,
// because client-go would believe that this process leads.
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

// Update implements resourcelock.Interface. It makes no RPC, except to release the lock. After a successful Update,
// client-go may lead for some time without another Update, so Update succeeds only if the spindle lock will be held for
// longer than that.
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
		return fmt.Errorf("the lease ends in %v because heartbeats are not being acknowledged, but client-go could lead for up to %v; spindle keeps sending heartbeats",
			left.Round(time.Millisecond), needed)
	}
	return nil
}

// fits returns an error if the elector's settings differ from those that l expects. From then on, it returns the same
// error until Accept is called. It compares the LeaseDuration, which the record contains, and the RenewDeadline, which
// limits ctx during a renewal. Only the first of several attempts shows the whole RenewDeadline.
func (l *Lock) fits(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if l.foreign != nil {
		return l.foreign
	}
	if want := seconds(l.timing); r.LeaseDurationSeconds != want {
		return l.refuse(fmt.Errorf("the elector has a LeaseDuration of %d s instead of %d s; pass its settings to Accept, or use the settings from Config", r.LeaseDurationSeconds, want))
	}
	end, limited := ctx.Deadline()
	if left := time.Until(end); limited && l.tenure != nil && left > l.timing.RenewDeadline {
		return l.refuse(fmt.Errorf("the elector has a RenewDeadline of %v instead of %v; pass its settings to Accept, or use the settings from Config", left.Round(time.Millisecond), l.timing.RenewDeadline))
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

// release releases the lock only if client-go has already canceled the ctx of its work. This is certain if the last
// successful Update was less than a RenewDeadline ago, because an elector never gives up by itself before then. An
// elector that gives up by itself calls release first, and cancels the ctx of its work later. In that case, release
// does nothing, and the term is kept for as long as Update has promised.
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
