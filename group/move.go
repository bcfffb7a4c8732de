package group

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// take claims partitions that can be taken, and begins work on them. It returns how many it has taken.
func (t *term) take(ctx context.Context, free []table.Observation) (taken int) {
	tried := false
	for chunk := range slices.Chunk(free, t.config.Batch) {
		if !t.acts() {
			break
		}
		if tried && t.lookIsDue() {
			t.soon(0) // it finds what is left
			break
		}
		tried = true
		taken += t.takeSome(ctx, chunk)
	}
	return taken
}

func (t *term) takeSome(ctx context.Context, free []table.Observation) int {
	var token table.Token
	var names []string
	err := t.insist(ctx, func(ctx context.Context) (err error) {
		token, names, err = t.table.Take(ctx, t.hold, free...)
		return err
	})
	if err != nil {
		t.failed(err, sharesOf(t, free)...)
		return 0
	}
	promise := table.Promise{Lease: t.config.Lease}
	var kept []string
	err = t.insist(ctx, func(ctx context.Context) (err error) {
		kept, err = t.table.Keep(ctx, t.hold, promise, token, names...)
		return err
	})
	if err != nil {
		t.failed(err, sharesOf(t, free)...)
		return 0
	}
	t.succeeded()
	t.changed = t.config.Clock.Now()
	for _, name := range kept {
		t.begin(t.byLock[name], token)
	}
	if len(kept) < len(free) { // another was first at the rest
		t.soon(t.config.Clock.Random(t.config.Lease/50 + 1))
	}
	t.metrics.moved(len(kept), "taken")
	t.log.Debug("partitions taken", "n", len(kept), "token", token)
	return len(kept)
}

// insist takes a step again that Spanner aborts, for a twentieth of a lease: other members take other partitions at the
// same time. What was observed of these is compared each time. A new look takes longer than another try.
func (t *term) insist(ctx context.Context, step func(context.Context) error) error {
	began := t.config.Clock.Now()
	for {
		err := t.try(ctx, step)
		if !errors.Is(err, table.ErrAborted) || t.config.Clock.Now().Since(began) >= t.config.Lease/20 {
			return err
		}
		elect.Sleep(ctx, t.config.Clock, t.config.Clock.Random(t.config.Lease/200+1))
	}
}

// failed takes in that partitions were not taken. Unless another was just first, the table may show them with this member.
func (t *term) failed(err error, shares ...*share) {
	for _, s := range shares {
		t.loose[s] = true
	}
	now, aborted := t.config.Clock.Now(), errors.Is(err, table.ErrAborted) // others take too: that is no reason to leave
	if aborted && t.crowded == (elect.Instant{}) {
		t.crowded = now
	}
	switch {
	case aborted && now.Since(t.crowded) < t.config.Lease, !aborted && elect.First(err):
		t.soon(t.config.Clock.Random(t.config.Lease/50 + 1))
		return
	case !aborted:
		t.endanger("take", err)
	}
	t.soon(t.redo.Pause(t.config.Clock))
}

// endanger takes in that something failed which only this member can do, while it is there.
func (t *term) endanger(step string, err error) {
	t.problems.Note(fmt.Errorf("%s: %w", step, err))
	if t.failing == (elect.Instant{}) {
		t.failing = t.config.Clock.Now()
	}
}

// succeeded takes in that something did not fail.
func (t *term) succeeded() {
	t.failing, t.crowded = elect.Instant{}, elect.Instant{}
	t.redo.Reset()
}

func sharesOf(t *term, seen []table.Observation) []*share {
	shares := make([]*share, len(seen))
	for i, o := range seen {
		shares[i] = t.byLock[o.Name]
	}
	return shares
}

// begin begins to act on a partition. If the term has ended meanwhile, nothing acts: what the reply says is over.
func (t *term) begin(s *share, token table.Token) {
	delete(t.loose, s)
	t.traces[s] = &trace{feared: t.config.Lease} // what was seen before is over
	h := &holding{share: s, in: t, token: token}
	h.ctx, h.cancel = context.WithCancelCause(t.lease.Context())
	t.have[s] = h
	if !t.acts() {
		h.tell(context.Cause(h.ctx))
		return
	}
	s.held.Store(h)
	if t.config.Work == nil {
		return
	}
	h.working, s.busy = true, h
	p := h.partition()
	go func() {
		defer t.returned.put(h)
		t.config.Work(h.ctx, p.name, p.fence)
	}()
}

// give frees partitions whose work was told and has returned, some at a time: by then a look may be due, or all work
// of a member that leaves may have returned. Nothing acts on their tokens again, whether the table shows that they
// were given or not.
func (t *term) give(ctx context.Context) {
	t.giving.off()
	var holds []table.Hold
	for _, s := range t.shares {
		h := t.have[s]
		switch {
		case h == nil || !h.told || h.working:
			continue
		case len(holds) == t.config.Batch:
			t.giving.set(t.config.Clock, 0)
			continue
		case !h.lost:
			holds = append(holds, table.Hold{Name: s.lock, Token: h.token})
		}
		delete(t.have, s)
		t.loose[s] = true
	}
	if holds == nil {
		return
	}
	if t.leaving() {
		t.mark(ctx)
	}
	began := t.config.Clock.Now()
	if err := t.try(ctx, func(ctx context.Context) error { return t.table.Give(ctx, holds...) }); err != nil {
		t.problems.Note(fmt.Errorf("give: %w", err))
		t.telling.off() // until the next look
		t.soon(t.redo.Pause(t.config.Clock))
		return
	}
	for _, h := range holds {
		delete(t.loose, t.byLock[h.Name])
	}
	t.pause(t.config.Clock.Now().Since(began))
	t.metrics.moved(len(holds), "given")
	t.log.Debug("partitions given", "n", len(holds))
}

// mark announces that the member leaves, or the others would leave what it gives to it. What fails is a hint that they
// don't get.
func (t *term) mark(ctx context.Context) {
	if !t.marked {
		t.marked = true
		_ = t.try(ctx, func(ctx context.Context) error { return t.table.Announce(ctx, t.hold.Token, t.hold.Name) })
	}
}

// settle frees what the table shows with this member for no reason, until a look is due.
func (t *term) settle(ctx context.Context, seen []table.Observation) {
	for chunk := range slices.Chunk(seen, t.config.Batch) {
		err := t.try(ctx, func(ctx context.Context) error { return t.table.Settle(ctx, t.hold, chunk...) })
		switch {
		case err == nil:
			t.succeeded()
		case !elect.First(err):
			t.endanger("settle", err)
		}
		t.soon(t.redo.Pause(t.config.Clock)) // to see that they are free
		if t.lookIsDue() {
			return
		}
	}
}
