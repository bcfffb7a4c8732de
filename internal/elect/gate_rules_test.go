package elect

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// visit is one call of enter, and what has become of it.
type visit struct {
	urgency Urgency
	owner   string
	giveUp  context.CancelFunc
	back    bool // whether enter has returned
	place   *place
	err     error
}

// watched is a gate, and what an onlooker knows about it.
type watched struct {
	*testing.T
	*Gate
	*rand.Rand
	waiting []*visit // in the order of their arrival
	inside  []*visit
	counted []func() // claims that do not wait for places
	beating []func()

	places  int    // that were given out
	allowed int    // the limit that the claims so far lead to
	sample  sample // of the claims since it was last considered
	calm    int
}

// saw compares what the gate has just done with its rules.
func (w *watched) saw(what string) {
	synctest.Wait()
	before, given, earliest := w.waiting, []*visit(nil), (*visit)(nil)
	w.waiting = nil
	flying := map[string]int{}
	for _, v := range w.inside {
		flying[v.owner]++
	}
	for _, v := range before {
		if earliest == nil && (v.owner == "" || flying[v.owner] < mostOfOwner) {
			earliest = v
		}
		if !v.back {
			w.waiting = append(w.waiting, v)
			continue
		}
		require.NoError(w, v.err, what)
		given = append(given, v)
	}
	for _, v := range given {
		flying[v.owner]++
		w.inside = append(w.inside, v)
	}
	w.sample.most = max(w.sample.most, len(w.inside)+len(w.counted))
	fourth := false
	for range given {
		fourth = fourth || w.places%4 == 3
		w.places++
	}
	if fourth {
		require.Contains(w, given, earliest, "%s: the fourth place is for the one that has waited longest", what)
	}
	inFlight := len(w.inside) + len(w.counted)
	for _, v := range w.waiting {
		room := w.allowed == 0 || inFlight < w.allowed && len(w.beating) == 0
		may := v.owner == "" || flying[v.owner] < mostOfOwner
		require.False(w, room && may, "%s: a claim waits although there is a place", what)
		for _, other := range given {
			if may && !fourth {
				require.LessOrEqual(w, other.urgency, v.urgency, "%s: a claim was overtaken by a less urgent one", what)
			}
		}
	}
	if len(given) > 0 && w.allowed > 0 {
		require.LessOrEqual(w, inFlight, w.allowed, what)
		require.Empty(w, w.beating, "%s: a claim began beside a heartbeat", what)
	}
	for owner, n := range flying {
		require.True(w, owner == "" || n <= mostOfOwner, what)
	}
	require.Equal(w, w.allowed, w.limit, "%s: the limit", what)
	require.Equal(w, w.allowed > 0, w.Bounded(), what)
}

// consider adds a claim to the sample. It is called before the gate learns of the claim.
func (w *watched) consider(vain bool) {
	s := &w.sample
	if s.ended++; vain {
		s.vain++
	}
	if s.ended < max(8, min(w.allowed, 64)) {
		return
	}
	switch {
	case 8*s.vain > s.ended:
		w.allowed, w.calm = max(1, s.most*(s.ended-s.vain)/s.ended), 0
	case s.vain == 0 && s.waited:
		if w.calm++; w.calm == 16 {
			w.allowed, w.calm = 2*w.allowed, 0
		}
	}
	*s = sample{most: len(w.inside) + len(w.counted), waited: len(w.waiting) > 0}
}

func (w *watched) enter(urgency Urgency, owner string, again bool) {
	if again {
		w.consider(true)
	}
	v := &visit{urgency: urgency, owner: owner}
	var ctx context.Context
	ctx, v.giveUp = context.WithCancel(w.Context())
	go func() {
		v.place, v.err = w.Gate.enter(ctx, SystemClock{}, urgency, owner, again)
		v.back = true
	}()
	w.waiting = append(w.waiting, v)
	w.saw("a claim arrives")
	w.sample.waited = w.sample.waited || slices.Contains(w.waiting, v)
}

// take removes one of several things at random.
func take[E any](random *rand.Rand, from *[]E) (e E, ok bool) {
	if len(*from) == 0 {
		return e, false
	}
	i := random.IntN(len(*from))
	e = (*from)[i]
	*from = slices.Delete(slices.Clone(*from), i, i+1)
	return e, true
}

func (w *watched) leave(answered bool) {
	v, ok := take(w.Rand, &w.inside)
	if !ok {
		return
	}
	if answered {
		w.inside = append(w.inside, v)
		w.consider(false) // while the claim still has its place
		w.inside = w.inside[:len(w.inside)-1]
		v.place.answered()
	}
	v.place.leave() // a second time if it was answered, as Try does
	w.saw("a claim leaves")
}

func (w *watched) giveUp() {
	if v, ok := take(w.Rand, &w.waiting); ok {
		v.giveUp()
		w.saw("a claim gives up")
		require.ErrorIs(w, v.err, context.Canceled)
		require.Nil(w, v.place)
	}
}

// Whatever order claims arrive, give up, are answered or aborted in, a gate gives out exactly the places that its limit allows, the
// limit is the one that follows from the claims so far, and nobody is forgotten. A place that was lost or given to a claim that had
// left would stop all claims of the process sooner or later.
func TestAGateLosesNoPlaceAndNoClaim(t *testing.T) {
	for n := range 8 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &watched{T: t, Gate: &Gate{}, Rand: rand.New(rand.NewPCG(uint64(n), 0))}
				crowded, owners := n%3+1, []string{"", "a", "b"}[:n%2*2+1]
				for range n % 2 * (mostOfOwner + 5) { // more than one owner may have in flight
					w.enter(Patient, "a", false)
				}
				for i := range 650 {
					vain, among := i < 100 && w.IntN(3) == 0, 20
					if i > 100 && i < 600 {
						among = 14 // claims come and are answered, so that the limit rises again
					}
					switch r := w.IntN(among); {
					case r < 6+crowded:
						w.enter(Urgency(w.IntN(3)), owners[w.IntN(len(owners))], vain)
					case r < 14:
						w.leave(true)
					case r < 15:
						w.leave(false)
					case r < 16+crowded/2:
						w.giveUp()
					case r < 18:
						if len(w.counted) < 2 {
							w.counted = append(w.counted, w.Count())
						} else if done, ok := take(w.Rand, &w.counted); ok {
							done()
						}
						w.saw("a group's claim")
					default:
						if len(w.beating) < 1 {
							w.beating = append(w.beating, w.Beat())
						} else if done, ok := take(w.Rand, &w.beating); ok {
							done()
						}
						w.saw("a heartbeat")
					}
				}
				for _, done := range append(w.counted, w.beating...) {
					done()
				}
				w.counted, w.beating = nil, nil
				w.saw("nothing else is in flight")
				for len(w.waiting)+len(w.inside) > 0 {
					w.leave(false)
					w.giveUp()
				}
				require.Zero(t, w.flying)
				require.Zero(t, w.beats)
				require.Empty(t, w.owners)
				require.Empty(t, w.Gate.waiting)
			})
		})
	}
}
