package clientgo

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/spindle-lock/spindle"
)

// vacate is called when the elector has stopped. The term is kept for as long as the last Update allowed the elector to
// lead. The elector may acquire the lock again.
func (s *seat) vacate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenure; t != nil && time.Until(t.until) < s.limits.slack() {
		t.until = time.Now().Add(s.limits.slack()) // the elector stopped late, and is about to cancel its work
	}
	s.tenure = nil
	s.notify()
}

func (s *seat) get(ctx context.Context) (resourcelock.LeaderElectionRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tenure != nil {
		return s.standing(s.tenure), nil
	}
	if s.term != nil && !s.term.granted.IsZero() {
		s.term.freed = true // the elector has stopped, and is trying to acquire again
		s.notify()
	}
	defer context.AfterFunc(ctx, func() { s.mu.Lock(); defer s.mu.Unlock(); s.notify() })()
	for ctx.Err() == nil {
		if s.foreign != nil {
			return resourcelock.LeaderElectionRecord{}, s.foreign
		}
		c, err := s.compete(ctx)
		if err != nil {
			return resourcelock.LeaderElectionRecord{}, err
		}
		if t := s.term; t != nil && s.offer(t) == nil {
			return resourcelock.LeaderElectionRecord{LeaderTransitions: s.leaders}, nil
		}
		if leader, age, ok := s.other(); ok && leader.Token != c.told {
			c.told = leader.Token
			if s.counted != c.told {
				s.counted = c.told
				s.leaders++
			}
			return recordOf(leader, age, s.leaders), nil
		}
		s.sleep(s.timing.RetryPeriod)
	}
	if leader, age, ok := s.other(); ok {
		return recordOf(leader, age, s.leaders), nil // not an error: client-go would log it
	}
	return resourcelock.LeaderElectionRecord{}, context.Cause(ctx)
}

// standing returns the record for an elector that leads.
func (s *seat) standing(t *term) resourcelock.LeaderElectionRecord {
	if s.held(t) {
		return s.record
	}
	if leader, age, ok := s.other(); ok {
		return recordOf(leader, age, s.leaders)
	}
	return resourcelock.LeaderElectionRecord{LeaderTransitions: s.leaders}
}

// other returns the current leader if it is another process. It ignores a leader with this process's id, because
// client-go would believe that this process leads.
func (s *seat) other() (leader spindle.Leader, age time.Duration, ok bool) {
	leader, age, ok = s.lock.Seen()
	return leader, age, ok && leader.ID != s.limits.ID && age < leader.Lease
}

func recordOf(leader spindle.Leader, age time.Duration, transitions int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{
		HolderIdentity:       leader.ID,
		LeaseDurationSeconds: int((leader.Lease + time.Second - 1) / time.Second),
		AcquireTime:          metav1.NewTime(leader.Token.Time()),
		RenewTime:            metav1.NewTime(time.Now().Add(-age)),
		LeaderTransitions:    transitions,
	}
}

func (s *seat) renew(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if r.HolderIdentity != s.limits.ID {
		return fmt.Errorf("update: the record is for %q, but this process is %q", r.HolderIdentity, s.limits.ID)
	}
	if err := s.fits(ctx, r); err != nil {
		return err
	}
	t := s.tenure
	if t == nil {
		if t = s.term; t == nil || !t.granted.IsZero() {
			return fmt.Errorf("update: %w", spindle.ErrNotLeader)
		}
	}
	now := time.Now()
	if err := s.offer(t); err != nil {
		if s.tenure == t && s.left(t) <= 0 {
			s.lose(t)
		}
		return fmt.Errorf("update: %w", err)
	}
	t.forget()
	t.granted, t.until, s.tenure, s.record = now, now.Add(s.limits.promise(s.timing)), t, r
	s.notify()
	return nil
}

// offer returns nil if client-go may acquire or renew the term. The term must last for longer than client-go would lead
// without another Update.
func (s *seat) offer(t *term) error {
	if !s.held(t) || t.freed {
		return fmt.Errorf("the term of token %v has ended: %w", t.token, lossOf(t))
	}
	if t.lost.Err() != nil {
		return fmt.Errorf("the lock is about to be given up: %w", context.Cause(t.lost))
	}
	if leader, _, _ := s.lock.Seen(); leader.Leaving && t.granted.IsZero() {
		return errors.New("the lock is about to be given up")
	}
	if left, needed := s.left(t), s.limits.promise(s.timing); left <= needed {
		return fmt.Errorf("the lease ends in %v because heartbeats are not being acknowledged, but client-go could lead for up to %v; spindle keeps sending heartbeats",
			left.Round(time.Millisecond), needed)
	}
	return nil
}

// fits returns an error if the elector's settings are not the expected ones. After that, it returns the same error
// until Accept succeeds. The record contains the LeaseDuration. The RenewDeadline limits ctx during a renewal, so fits
// can only see that it is too long: a retry has less time left than the first attempt.
func (s *seat) fits(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	end, limited := ctx.Deadline()
	left := time.Until(end)
	const advice = "pass its settings to Accept, or use the settings from Config"
	switch want := seconds(s.timing); {
	case s.foreign != nil:
		return s.foreign
	case r.LeaseDurationSeconds != want:
		s.foreign = fmt.Errorf("the elector has a LeaseDuration of %d s instead of %d s; %s", r.LeaseDurationSeconds, want, advice)
	case limited && s.tenure != nil && left > s.timing.RenewDeadline:
		s.foreign = fmt.Errorf("the elector has a RenewDeadline of %v instead of %v; %s", left.Round(time.Millisecond), s.timing.RenewDeadline, advice)
	default:
		return nil
	}
	if s.latest != nil && s.tenure == nil {
		s.retire(s.latest)
	}
	return s.foreign
}

// release releases the lock only if client-go has already canceled the ctx of its work. This is certain if the last
// successful Update was less than a RenewDeadline ago, because an elector never gives up by itself that early. An
// elector that gives up by itself calls release first, and cancels the ctx of its work later. For such an elector,
// release does nothing, and the term is kept for as long as the last Update allowed the elector to lead.
func (s *seat) release(ctx context.Context) error {
	s.mu.Lock()
	t := s.tenure
	if t == nil || time.Since(t.granted) >= s.timing.RenewDeadline {
		s.mu.Unlock()
		return nil
	}
	t.freed = true
	s.notify()
	s.mu.Unlock()
	if err := t.wait(ctx); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}
