package group

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fence"
	"github.com/spindle-lock/spindle/internal/loop"
	"github.com/spindle-lock/spindle/internal/share"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// looked returns the rows of all partitions as a term in hand sees them.
func (t *term) looked() (rows []table.Observation) {
	var locks []string
	for _, e := range t.m.inventory.All {
		locks = append(locks, e.Lock)
	}
	s, err := t.send.table.LookAtGroup(t.send.ctx, t.m.g.name, table.GroupQuery{Members: true, WithLeases: locks})
	if err != nil {
		panic(err)
	}
	for _, lock := range locks {
		rows = append(rows, s.Partitions[lock])
	}
	return rows
}

// states returns how many partitions are in each state.
func (t *term) states() map[string]int {
	states := map[string]int{}
	for _, e := range t.m.inventory.All {
		states[e.State.String()]++
	}
	return states
}

// Each reply to a commit that claims or frees partitions has one result, whatever the number of its partitions: which of them are held,
// to be polled, or tried again in halves, how soon the member polls, and whether it counts as a failure of the member. A wrong one
// would leave partitions without work, or make a healthy member give up its term.
func TestWhatFollowsFromTheReplyToACommit(t *testing.T) {
	refused := errors.New("not today")
	both := fmt.Errorf("%w: %w", table.ErrChanged, table.ErrAborted)
	const soon, random, later = lease / 90, lease/50 + 1, never // the first pause of a backoff, a random one, and no poll because of it
	for _, c := range []struct {
		frees  bool
		n      int
		err    error
		state  string
		halves []int         // the sizes of the commits that follow
		pause  time.Duration // before these
		poll   time.Duration // at most so long until the next poll
		fails  bool          // counts as a failure
		alone  bool          // of the partitions themselves, so that two of them make the member sick
		said   string
	}{
		{false, 4, nil, "held", nil, 0, later, false, false, ""},
		{false, 1, nil, "held", nil, 0, later, false, false, ""},
		{false, 4, refused, "claimed", []int{2, 2}, 0, later, true, false, "claim: not today"},
		{false, 5, refused, "claimed", []int{2, 3}, 0, later, true, false, "claim: not today"},
		{false, 1, refused, "unresolved", nil, 0, later, true, true, "claim: not today"},
		{false, 4, table.ErrChanged, "unresolved", nil, 0, random, true, true, ""},
		{false, 1, table.ErrChanged, "unresolved", nil, 0, random, true, true, ""},
		{false, 4, table.ErrSuperseded, "unresolved", nil, 0, random, true, true, ""},
		{false, 4, table.ErrAborted, "claimed", []int{2, 2}, lease * 6 / 100, later, true, true, ""},
		{false, 4, both, "claimed", []int{2, 2}, lease * 6 / 100, later, true, true, ""},
		{false, 1, table.ErrAborted, "unresolved", nil, 0, later, true, true, "claim: "},
		{false, 1, both, "unresolved", nil, 0, later, true, true, "claim: "},
		{true, 4, nil, "unresolved", nil, 0, soon, false, false, ""},
		{true, 1, nil, "unresolved", nil, 0, soon, false, false, ""},
		{true, 4, table.ErrChanged, "unresolved", nil, 0, soon, false, false, ""},
		{true, 1, table.ErrSuperseded, "unresolved", nil, 0, soon, false, false, ""},
		{true, 4, refused, "reconciling", []int{2, 2}, 0, later, true, false, "reconcile: not today"},
		{true, 1, refused, "unresolved", nil, 0, later, true, true, "reconcile: not today"},
		{true, 4, table.ErrAborted, "reconciling", []int{2, 2}, lease * 6 / 100, later, true, true, ""},
		{true, 4, both, "reconciling", []int{2, 2}, lease * 6 / 100, later, true, true, ""},
		{true, 1, table.ErrAborted, "unresolved", nil, 0, later, true, true, "reconcile: "},
	} {
		for _, step := range []string{"claim-partitions", "confirm-partitions"} {
			if c.frees && step != "claim-partitions" {
				continue // it is one step
			}
			what := fmt.Sprintf("frees: %v, %d partitions, %s: %v", c.frees, c.n, step, c.err)
			inVirtualTime(t, func(cl *cluster) {
				p := cl.process("a", Numbered(c.n))
				h := cl.inHand(p)
				defer h.letGo()
				v := h.m.inventory
				for _, e := range v.All {
					e.Target = true
				}
				rows := h.looked()
				h.polls.next.off()
				before := h.now()
				said := c.said
				if step == "confirm-partitions" {
					said = strings.Replace(said, "claim", "confirm", 1)
				}
				if c.frees {
					v.Reconcile(rows, len(rows))
				} else {
					v.Claim(rows, len(rows))
				}
				switch {
				case c.frees:
					h.answers(0, c.err)
				case c.err != nil:
					p.link.Refuse(fleet.Refusing(step, c.err))
				}
				if c.err == nil { // until then, everything has failed
					h.conduct.Failed(before, refused, true, v.All...)
					h.moves.slow(true)
					for range 9 {
						h.moves.redo.Pause(h.polls.clock)
					}
				}
				time.Sleep(lease / 10)
				sent := h.now()
				h.moves.add(rows, c.frees, 0)
				h.moves.dispatch()
				require.Equal(cl.t, []int{1, 0}, []int{h.moves.under, len(h.moves.queue)}, what)
				h.reply()
				require.Zero(cl.t, h.moves.under, what)

				assert.Equal(cl.t, map[string]int{c.state: c.n}, h.states(), what)
				var halves []int
				for _, q := range h.moves.queue {
					halves = append(halves, len(q.rows))
					assert.Equal(cl.t, c.frees, q.frees, what)
					assert.InDelta(cl.t, c.pause, q.ready.Left(h.polls.clock), 1, what)
				}
				assert.Equal(cl.t, c.halves, halves, what)
				if poll := h.polls.next.left(h.polls.clock); c.poll == never {
					assert.Equal(cl.t, never, poll, what)
				} else {
					assert.LessOrEqual(cl.t, poll, max(c.poll, lease/3/30), what)
				}
				assert.Equal(cl.t, c.fails, h.conduct.Since != elect.Instant{}, what)
				assert.Equal(cl.t, c.alone && c.n > 1, h.conduct.Sick(), what)
				assert.Equal(cl.t, c.alone && c.n > 1, h.moves.single, what)
				if said == "" {
					assert.NotContains(cl.t, p.log.String(), "still trying", what)
				} else {
					assert.Contains(cl.t, p.log.String(), said, what)
				}
				suspects := c.n == 1 && c.said != ""
				for _, e := range v.All {
					assert.Equal(cl.t, suspects, e.Suspect.Err != nil, what)
				}
				width := lanes
				if c.pause > 0 || h.moves.single {
					width = 1
				}
				if h.moves.paused == (elect.Pause{}) {
					assert.Equal(cl.t, width, h.moves.width(), what)
				}
				switch {
				case c.state == share.Held.String():
					assert.Equal(cl.t, sent, h.conduct.Acked, "%s: Spanner has answered", what)
					assert.Equal(cl.t, c.n, p.has(), what)
					assert.Equal(cl.t, h.now(), h.polls.changed, what)
				default:
					assert.Equal(cl.t, before.Mono, h.conduct.Acked.Mono, what)
					assert.Zero(cl.t, p.has(), what)
				}
			})
		}
	}
}

// now returns the time of a term in hand.
func (t *term) now() elect.Instant { return t.polls.clock.Now() }

// What ends a work is handled for each of the partitions that it happened to, however many reports come at the same time. Otherwise, a
// partition could be held without work, or work that was fenced off could go on.
func TestEachReportOfWorkIsHandled(t *testing.T) {
	refused := errors.New("no such row")
	type kind struct {
		what       string
		must       error
		revoked    bool // it had been told to end
		fenced     bool // its context has ended, and the loop does not know why yet
		let        bool // and its partition was let go, and has been released and claimed again since
		lasted     time.Duration
		state      share.State
		lost, busy bool
		fails      int // how many failures in a row its partition then has
	}
	stalled := fmt.Errorf("%w: no progress", spindle.ErrStalled)
	kinds := []kind{
		{what: "it has returned", state: share.Revoking, fails: 2},
		{what: "it has returned after a lease", lasted: lease, state: share.Revoking, fails: 1},
		{what: "it has returned because its write was refused", fenced: true, state: share.Held, fails: 1},
		{what: "it has stalled", must: stalled, state: share.Revoking, busy: true, fails: 1},
		{what: "its lease row is missing", must: refused, state: share.Revoking, lost: true, busy: true, fails: 1},
		{what: "it was told to end, and has returned", revoked: true, state: share.Revoking, fails: 1},
		{what: "it was told to end, and has returned after a lease", lasted: lease, revoked: true, state: share.Revoking},
		{what: "it was told to end, and stalls", must: stalled, revoked: true, state: share.Revoking, busy: true, fails: 1},
		{what: "it was told to end, and its lease row is missing", must: refused, revoked: true, state: share.Revoking, busy: true, fails: 1},
		{what: "its partition was let go, and it has returned", let: true, state: share.Held, fails: 1},
		{what: "its partition was let go, and it stalls", must: stalled, let: true, state: share.Held, busy: true, fails: 1},
		{what: "its partition was let go, and its lease row is missing", must: refused, let: true, state: share.Held, busy: true, fails: 1},
	}
	for i, first := range kinds {
		for j := range kinds {
			inVirtualTime(t, func(c *cluster) {
				all := []kind{first, kinds[j], kinds[(i+j)%len(kinds)]}
				p := c.process("a", Numbered(len(all)), WithEarlyReturn(Release))
				p.config.Work = nil
				h := c.inHand(p)
				defer h.letGo()
				v := h.m.inventory
				var of []*assignment
				for n, e := range v.All {
					e.Target = true
					e.EarlyReturn.Fail(h.now(), lease, errReturned) // earlier
					v.Hold(e, table.Token(n+1), lease)
					h.beginWork(e)
					a := p.byName[e.Name].acted.Load()
					of, e.Busy = append(of, a), a.hold
					switch {
					case all[n].revoked:
						h.endWork(e, ErrMoved)
					case all[n].fenced:
						a.cancel(spindle.ErrSuperseded)
					case all[n].let:
						h.endWork(e, ErrLetGo)
						v.Hold(e, table.Token(n+9), lease)
					}
				}
				h.moves.releases.off()
				for n, k := range all {
					p.inbox.Put(outcome{of: of[n], lasted: k.lasted, must: k.must})
				}
				h.collect()
				returned := true // all of what was told to end
				stalls := 0
				for n, k := range all {
					e, what := v.All[n], fmt.Sprintf("%s, beside %s and %s", k.what, all[(n+1)%3].what, all[(n+2)%3].what)
					assert.Equal(c.t, k.state, e.State, what)
					assert.Equal(c.t, []bool{k.lost, k.busy}, []bool{e.Assigned.Lost, e.Busy != nil}, what)
					assert.Equal(c.t, k.state != share.Held || k.let || k.fenced, of[n].ctx.Err() != nil, what)
					var once share.Suspicion
					for range k.fails {
						once.Fail(h.now(), lease, nil)
					}
					once.Err = e.EarlyReturn.Err
					assert.Equal(c.t, once, e.EarlyReturn, what)
					if errors.Is(k.must, spindle.ErrStalled) {
						stalls++
					}
					returned = returned && (e.State != share.Revoking || e.Busy == nil)
				}
				switch due := h.moves.releases.left(h.polls.clock); {
				case h.states()["held"] == len(all):
					assert.Equal(c.t, never, due, "there is nothing to release")
				case returned:
					assert.LessOrEqual(c.t, due, time.Duration(0), "all that was told to end has returned")
				case due != never:
					assert.LessOrEqual(c.t, due, lease/50, "what has returned is released soon")
				}
				assert.Equal(c.t, stalls, strings.Count(p.log.String(), "has stalled"))
			})
		}
	}
}

// A member that leaves in a handover keeps a partition whose work has returned early, like its others, until the handover is over.
func TestWorkThatReturnsDuringAHandoverIsNotReleasedEarly(t *testing.T) {
	inVirtualTime(t, func(c *cluster) {
		p := c.process("a", Numbered(2), WithEarlyReturn(Release))
		p.config.Work = nil
		h := c.inHand(p)
		for n, e := range h.m.inventory.All {
			h.m.inventory.Hold(e, table.Token(n+1), lease)
			h.beginWork(e)
			p.inbox.Put(outcome{of: p.byName[e.Name].acted.Load()})
		}
		h.leave.why = spindle.ErrStopped
		h.collect()
		assert.Equal(c.t, map[string]int{"held": 2}, h.states())
		assert.Equal(c.t, 2, p.has())
		h.letGo()
	})
}

// Commits wait in a queue. Whatever happens to the member before its turn, or before its reply, a partition is claimed and worked on
// only if the member still wants it and goes on. A partition that must be freed is freed in any case.
func TestAClaimIsSentAndActedOnOnlyIfItIsStillWanted(t *testing.T) {
	over := errors.New("not now")
	for what, x := range map[string]struct {
		meanwhile func(h *term, e *share.Entry)
		why       error // nil: nothing keeps the member from it
	}{
		"nothing":           {func(*term, *share.Entry) {}, nil},
		"the member leaves": {func(h *term, _ *share.Entry) { h.leave.why = over }, ErrMoved},
		"the work is over":  {func(h *term, _ *share.Entry) { h.lease.CancelWork(over) }, over},
		"the term is over":  {func(h *term, _ *share.Entry) { h.lease.End(over) }, over},
		"it is paused":      {func(h *term, e *share.Entry) { h.m.inventory.Pause(map[string]bool{e.Name: true}) }, ErrPaused},
		"it is another's":   {func(_ *term, e *share.Entry) { e.Target = false }, ErrMoved},
	} {
		for _, frees := range []bool{false, true} {
			for _, sent := range []bool{false, true} {
				what := fmt.Sprintf("%s, frees: %v, sent: %v", what, frees, sent)
				inVirtualTime(t, func(c *cluster) {
					p := c.process("a", Numbered(1))
					h := c.inHand(p)
					defer h.letGo()
					e := h.m.inventory.All[0]
					e.Target = true
					rows := h.looked()
					if frees {
						h.m.inventory.Reconcile(rows, 1)
					} else {
						h.m.inventory.Claim(rows, 1)
					}
					var cause error
					p.config.Work = func(ctx context.Context, _ string, _ fence.Fence, _ *loop.Stall) error {
						<-ctx.Done()
						cause = context.Cause(ctx)
						return nil
					}
					h.moves.add(rows, frees, 0)
					if !sent {
						x.meanwhile(h, e)
					}
					h.moves.dispatch()
					require.Equal(c.t, frees || sent || x.why == nil, h.moves.under == 1, what)
					assert.Empty(c.t, h.moves.queue, what)
					if h.moves.under == 0 {
						assert.Equal(c.t, share.Free, e.State, what)
						return
					}
					if sent {
						x.meanwhile(h, e)
					}
					h.reply()
					switch {
					case frees:
						assert.Equal(c.t, share.Unresolved, e.State, what)
					case x.why == nil:
						assert.Equal(c.t, []any{share.Held, true, 1}, []any{e.State, e.Busy == e.Assigned, p.has()}, what)
						synctest.Wait()
						h.revokeTerm(over)
						synctest.Wait()
						assert.Equal(c.t, over, cause, what)
					default:
						assert.Equal(c.t, []any{share.Revoking, true, 0}, []any{e.State, e.Busy == nil, p.has()}, what)
						assert.Equal(c.t, x.why, h.moves.why(e), what)
						assert.LessOrEqual(c.t, h.moves.releases.left(h.polls.clock), time.Duration(0), "%s: it is released at once", what)
					}
				})
			}
		}
	}
}

// In any sequence of commits, replies and pauses, no more commits run than may, each has its turn as soon as it may, and the loop wakes
// up for it. Smaller ones, which may be halves of failed ones, go first.
func TestTheQueueOfCommits(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	for range 30 {
		inVirtualTime(t, func(c *cluster) {
			p := c.process("a", Numbered(64))
			h := c.inHand(p)
			defer h.letGo()
			m, v := &h.moves, h.m.inventory
			for _, e := range v.All {
				e.Target = true
			}
			rows, answered := h.looked(), make(chan error)
			h.send.table.Store = table.Via(func(ctx context.Context, _ string, _ func(context.Context, table.Store) error) error {
				select {
				case err := <-answered:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			for range 40 {
				switch r.IntN(5) {
				case 0, 1:
					if n := r.IntN(5); n > 0 && n <= len(rows) {
						v.Reconcile(rows[:n], n)
						r.Shuffle(n, func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
						m.add(rows[:n], true, time.Duration(r.IntN(3))*lease/100)
						rows = rows[n:]
					}
				case 2:
					if m.under > 0 {
						err := []error{nil, table.ErrChanged}[r.IntN(2)] // ends the commit, and no other follows from it
						single, paused := m.single, m.paused.Left(h.polls.clock) > 0
						answered <- err
						h.reply()
						require.Equal(c.t, single && err != nil, m.single, "a success ends the time of single commits")
						require.Equal(c.t, err != nil && (single || paused), m.paused.Left(h.polls.clock) > 0, "between single commits that fail is a pause")
					}
				case 3:
					pause := elect.PauseFor(h.polls.clock, lease/50)
					switch r.IntN(3) {
					case 0:
						m.paused = pause
					case 1:
						m.crowded = pause
					case 2:
						m.single = !m.single
					}
				case 4:
					time.Sleep(time.Duration(r.IntN(4)) * lease / 200)
				}
				under, width, waiting := m.under, 4, slices.Clone(m.queue)
				switch {
				case m.paused.Left(h.polls.clock) > 0:
					width = 0
				case m.single || m.crowded.Left(h.polls.clock) > 0:
					width = 1
				}
				for _, q := range waiting {
					require.True(c.t, slices.IsSortedFunc(q.rows, func(a, b table.Observation) int { return strings.Compare(a.Name, b.Name) }), "members that lock rows in different orders abort each other")
				}
				ready := slices.DeleteFunc(waiting, func(q *commit) bool { return q.ready.Left(h.polls.clock) > 0 })
				slices.SortStableFunc(ready, func(a, b *commit) int { return len(a.rows) - len(b.rows) })
				starts := min(len(ready), max(width-under, 0))
				m.dispatch()
				require.Equal(c.t, under+starts, m.under)
				for i, q := range ready {
					if still := slices.Contains(m.queue, q); starts > 0 && len(q.rows) < len(ready[starts-1].rows) {
						require.False(c.t, still, "it is smaller than one that goes first: %d", i)
					}
				}
				switch left := m.left(); {
				case len(m.queue) == 0:
					require.Equal(c.t, never, left)
				case left == never:
					require.GreaterOrEqual(c.t, m.under, max(width, 1), "nothing wakes the loop")
				case m.under < max(width, 1):
					soonest := never
					for _, q := range m.queue {
						soonest = min(soonest, q.ready.Left(h.polls.clock))
					}
					require.Equal(c.t, max(soonest, m.paused.Left(h.polls.clock)), left)
					if r.IntN(3) > 0 {
						continue
					}
					require.Positive(c.t, left, "the loop would not rest")
					n := len(m.queue)
					time.Sleep(left)
					if m.under < m.width() {
						m.dispatch()
						require.Less(c.t, len(m.queue), n, "it was woken for nothing")
					}
				}
			}
		})
	}
}

// A claim may get some of its partitions only. The member works on each that it got, and soon polls the others, which another member may
// have had first. Its metrics and its log count what it got.
func TestAClaimThatGetsSomeOfItsPartitions(t *testing.T) {
	const n = 4
	for lost := range 1<<n - 1 {
		inVirtualTime(t, func(c *cluster) {
			r := fleet.NewReports()
			p := c.process("a", Numbered(n), r.Options())
			h := c.inHand(p)
			h.polls.next.off()
			v, want := h.m.inventory, map[string]share.State{}
			for i, e := range v.All {
				if e.Target, want[e.Name] = true, share.Held; lost>>i&1 > 0 {
					want[e.Name] = share.Unresolved
				}
			}
			p.link.After(func(step string) {
				for i, e := range v.All {
					if step == "claim-partitions" && lost>>i&1 > 0 {
						c.remove(e.Lock)
					}
				}
			})
			rows := h.looked()
			v.Claim(rows, n)
			h.moves.add(rows, false, 0)
			h.moves.dispatch()
			h.reply()
			is := map[string]share.State{}
			for _, e := range v.All {
				has, _ := p.Has(e.Name)
				is[e.Name] = e.State
				assert.Equal(c.t, e.State == share.Held, has, lost)
			}
			assert.Equal(c.t, want, is)
			got := n - bits.OnesCount(uint(lost))
			assert.Equal(c.t, float64(got), r.Metrics(c.t)["group.moves{direction=claimed,lock=orders}"])
			assert.Contains(c.t, p.log.String(), fmt.Sprintf(`msg="partitions claimed" n=%d `, got))
			if poll := h.polls.next.left(h.polls.clock); lost == 0 {
				assert.Equal(c.t, never, poll)
			} else {
				assert.LessOrEqual(c.t, poll, lease/50, lost)
			}
			h.revokeTerm(ErrMoved)
			h.letGo()
		})
	}
}
