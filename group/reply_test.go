package group

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
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
					step = "reconcile"
					v.Reconcile(rows, len(rows))
				} else {
					v.Claim(rows, len(rows))
				}
				if c.err != nil || c.frees {
					p.link.Refuse(fleet.Refusing(step, c.err))
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
				for _, e := range v.All {
					p.byName[e.Name].acted.Store(nil)
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
		let        bool // and its partition was let go, and has been released and claimed again since
		lasted     time.Duration
		state      share.State
		lost, busy bool
		pause      time.Duration // before the partition is claimed again
	}
	stalled := fmt.Errorf("%w: no progress", spindle.ErrStalled)
	kinds := []kind{
		{"it has returned", nil, false, false, 0, share.Revoking, false, false, lease / 5},
		{"it has returned after a lease", nil, false, false, lease, share.Revoking, false, false, lease / 10},
		{"it has stalled", stalled, false, false, 0, share.Revoking, false, true, lease / 10},
		{"its lease row is missing", refused, false, false, 0, share.Revoking, true, true, lease / 10},
		{"it was told to end, and has returned", nil, true, false, 0, share.Revoking, false, false, lease / 10},
		{"it was told to end, and stalls", stalled, true, false, 0, share.Revoking, false, true, lease / 10},
		{"it was told to end, and its lease row is missing", refused, true, false, 0, share.Revoking, false, true, lease / 10},
		{"its partition was let go, and it has returned", nil, false, true, 0, share.Held, false, false, lease / 10},
		{"its partition was let go, and it stalls", stalled, false, true, 0, share.Held, false, true, lease / 10},
		{"its partition was let go, and its lease row is missing", refused, false, true, 0, share.Held, false, true, lease / 10},
	}
	inVirtualTime(t, func(c *cluster) {
		for i, first := range kinds {
			for j := range kinds {
				all := []kind{first, kinds[j], kinds[(i+j)%len(kinds)]}
				p := c.process("a", Numbered(len(all)), WithEarlyReturn(Release))
				p.config.Work = nil
				h := c.inHand(p)
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
				for n, k := range all {
					e, what := v.All[n], fmt.Sprintf("%s, beside %s and %s", k.what, all[(n+1)%3].what, all[(n+2)%3].what)
					assert.Equal(c.t, k.state, e.State, what)
					assert.Equal(c.t, []bool{k.lost, k.busy}, []bool{e.Assigned.Lost, e.Busy != nil}, what)
					assert.Equal(c.t, k.state != share.Held || k.let, of[n].ctx.Err() != nil, what)
					var once share.Suspicion
					for once.Fail(h.now(), lease, nil); k.pause > lease/10; k.pause /= 2 {
						once.Fail(h.now(), lease, nil)
					}
					once.Err = e.EarlyReturn.Err
					assert.Equal(c.t, once, e.EarlyReturn, what)
					returned = returned && (e.State != share.Revoking || e.Busy == nil)
				}
				switch due := h.moves.releases.left(h.polls.clock); {
				case v.All[0].State == share.Held && v.All[1].State == share.Held && v.All[2].State == share.Held:
					assert.Equal(c.t, never, due, "there is nothing to release")
				case returned:
					assert.LessOrEqual(c.t, due, time.Duration(0), "all that was told to end has returned")
				case due != never:
					assert.LessOrEqual(c.t, due, lease/50, "what has returned is released soon")
				}
				assert.Equal(c.t, strings.Count(p.log.String(), "has stalled"), stalls(all[0].must, all[1].must, all[2].must))
				h.letGo()
				for _, e := range p.partitions {
					e.acted.Store(nil)
				}
				c.remove(h.own.Key())
				c.remove(h.own.Name)
			}
		}
	})
}

// stalls returns how many of the errors say that work has stalled.
func stalls(errs ...error) (n int) {
	for _, err := range errs {
		if errors.Is(err, spindle.ErrStalled) {
			n++
		}
	}
	return n
}
