package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// held is a term that keeps itself, until it is given back or lost.
type held struct {
	*contender
	term *elect.Term
	lost chan struct{}
	over context.Context    // ends when it is lost, or begins to be given back
	end  context.CancelFunc // of over
	kept chan struct{}      // closed when no heartbeat is sent any more
	left atomic.Bool        // it is given back
}

var errGivenBack = errors.New("given back")

func (s *contender) keep(t *elect.Term) *held {
	h := &held{contender: s, term: t, lost: make(chan struct{}), kept: make(chan struct{})}
	h.over, h.end = context.WithCancel(t.Context())
	context.AfterFunc(t.Context(), func() {
		if cause := context.Cause(t.Context()); !errors.Is(cause, errGivenBack) {
			s.config.Log.Info("lost", "what", s.what, "token", t.Token(), "reason", cause)
			close(h.lost)
		}
	})
	go func() {
		defer close(h.kept)
		if reason := t.Renew(s.config.Heartbeat, h.over.Done()); reason != nil {
			t.End(reason)
		}
	}()
	return h
}

func (h *held) token() spindle.Token {
	if h.left.Load() || !h.term.Held() {
		return 0
	}
	return spindle.Token(h.term.Token())
}

// leave is how giving back begins. It reports true once: to the one who is to give back.
func (h *held) leave() bool {
	if !h.left.CompareAndSwap(false, true) {
		return false
	}
	h.end()
	return true
}

// giveBack frees the locks that were left, within ctx. What fails is left to expire.
func (h *held) giveBack(ctx context.Context) error {
	select {
	case <-h.kept:
	case <-ctx.Done(): // a heartbeat hangs
		go func() { <-h.kept; h.term.End(errGivenBack) }()
		return fmt.Errorf("%w: left to expire", ctx.Err())
	}
	if !h.term.Held() {
		h.term.End(elect.ErrExpired) // unless it has ended for another reason
		return fmt.Errorf("%w: lost before: %w", ErrNotHeld, context.Cause(h.term.Context()))
	}
	err := h.term.Release(ctx, errGivenBack)
	if errors.Is(err, table.ErrSuperseded) {
		return fmt.Errorf("%w: lost before: %w", ErrNotHeld, err)
	}
	return err
}
