package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// batch is how many partitions are moved in one commit: some thousand writes of columns, where Spanner allows 80,000,
// and few enough that a look is not late for it.
const batch = 500

// take claims partitions that can be taken, and begins work on them.
func (t *term) take(ctx context.Context, free []table.Observation) {
	for chunk := range slices.Chunk(free, batch) {
		if !t.acts() || t.lookIsDue() {
			return // the next look finds what is left
		}
		t.takeSome(ctx, chunk)
	}
}

func (t *term) takeSome(ctx context.Context, free []table.Observation) {
	var token table.Token
	var names []string
	err := t.insist(ctx, func(ctx context.Context) (err error) {
		token, names, err = t.table.Take(ctx, t.hold, free...)
		return err
	})
	if err != nil {
		t.failed(err, sharesOf(t, free)...)
		return
	}
	promise := table.Promise{Lease: t.config.Lease}
	var kept []string
	err = t.insist(ctx, func(ctx context.Context) (err error) {
		kept, err = t.table.Keep(ctx, t.hold, promise, token, names...)
		return err
	})
	if err != nil {
		t.failed(err, sharesOf(t, free)...)
		return
	}
	t.succeeded()
	for _, name := range kept {
		t.begin(t.byLock[name], token)
	}
	t.metrics.moved(len(kept), "taken")
	t.log.Debug("partitions taken", "n", len(kept), "token", token)
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
	if elect.First(err) || errors.Is(err, table.ErrAborted) {
		t.soon(t.config.Clock.Random(t.config.Lease/50 + 1))
		return
	}
	t.endanger("take", err)
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
	t.failing = elect.Instant{}
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
	for s, h := range t.have {
		switch {
		case !h.told || h.working:
			continue
		case len(holds) == batch:
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
	slices.SortFunc(holds, func(a, b table.Hold) int { return cmp.Compare(a.Name, b.Name) })
	if err := t.try(ctx, func(ctx context.Context) error { return t.table.Give(ctx, holds...) }); err != nil {
		t.problems.Note(fmt.Errorf("give: %w", err))
		t.soon(t.redo.Pause(t.config.Clock))
		return
	}
	for _, h := range holds {
		delete(t.loose, t.byLock[h.Name])
	}
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

// settle frees what the table shows with this member for no reason.
func (t *term) settle(ctx context.Context, seen []table.Observation) {
	for chunk := range slices.Chunk(seen, batch) {
		err := t.try(ctx, func(ctx context.Context) error { return t.table.Settle(ctx, t.hold, chunk...) })
		switch {
		case err == nil:
			t.succeeded()
		case !elect.First(err):
			t.endanger("settle", err)
		}
		t.soon(t.redo.Pause(t.config.Clock)) // to see that they are free
	}
}
