package group

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// Whatever happens to requests, processes, the plan's rows and partitions' lease rows, and whatever the program requests, no two processes work
// on one partition. After the storm, every partition has a process within a few leases, every member is healthy, and no
// member looks more often than it has to.
func FuzzStorm(f *testing.F) {
	for _, seed := range fleet.Part(seeds(60)...) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		inVirtualTime(t, func(c *cluster) {
			s := &storm{cluster: c, garbled: map[string]string{}, dice: rand.New(rand.NewPCG(seed, 1))}
			s.draw()
			for range 1 + s.dice.IntN(4) {
				s.launch()
			}
			for range 5 + s.dice.IntN(40) {
				c.sleep(s.upTo(lease))
				s.strike()
			}
			s.heal()
			s.judge()
		})
	})
}

// storm is a group that is subjected to faults.
type storm struct {
	*cluster
	dice  *rand.Rand
	size  int
	lists []Partitions // the lists of the members
	early bool         // whether work returns early
	slow  bool         // work takes a while to end, and no member loses a term because of the test
	quiet bool         // few terms end, so work that is left undone stays undone

	healed   atomic.Bool
	garbled  map[string]string // the contents of unreadable rows before the damage
	run      []*process
	launched int
}

var stormSteps = []string{"look", "claim-partitions", "confirm-partitions", "release-partitions", "reconcile", "evict", "publish", "heartbeat", "announce", "release", "claim", "confirm", "observe", "weigh"}

func choose[T any](s *storm, of ...T) T { return of[s.dice.IntN(len(of))] }

func (s *storm) upTo(limit time.Duration) time.Duration {
	return time.Duration(s.dice.Int64N(int64(limit)))
}

func (s *storm) draw() {
	s.size = choose(s, 1, 3, 12, 30)
	s.lists = []Partitions{Numbered(s.size)}
	if s.dice.IntN(2) == 0 {
		s.lists = append(s.lists, Numbered(s.size), Numbered(s.size+s.dice.IntN(6)))
	}
	s.early, s.slow, s.quiet = s.dice.IntN(3) == 0, s.dice.IntN(3) == 0, s.dice.IntN(3) == 0
}

// launch starts a process, possibly under the id of an earlier one.
func (s *storm) launch() {
	s.launched++
	id := fmt.Sprint("p", s.launched%7)
	opts := []Option{WithInitialDelay(choose(s, 0, 0, lease/3)), WithWeight(choose(s, 1, 1, 1, 2, 4)),
		WithIdentity(choose(s, 0, 0, lease, 20*lease)), batchesOf(choose(s, 1, 2, 7, 50)), WithEarlyReturn(choose(s, BeginAgain, Release))}
	if s.dice.IntN(2) == 0 {
		opts = append(opts, spindle.WithHandover())
	}
	p := s.process(id, choose(s, s.lists...), opts...)
	p.do = func(ctx context.Context, of Partition) error { return s.work(ctx, p, of) }
	if s.slow {
		p.linger = func(string) {
			if !s.healed.Load() {
				time.Sleep(rand.N(lease / 3))
			}
		}
	}
	p.slow = s.launched%2 == 0
	s.mend(p)
	s.cluster.run(p)
	s.run = append(s.run, p)
}

func (s *storm) work(ctx context.Context, p *process, of Partition) error {
	if s.early && !s.healed.Load() && rand.IntN(2) == 0 {
		short, cancel := context.WithTimeout(ctx, rand.N(lease))
		defer cancel()
		ctx = short
	}
	return p.work(ctx, of)
}

// strike causes one event.
func (s *storm) strike() {
	if len(s.run) == 0 {
		s.launch()
		return
	}
	p, step, name := choose(s, s.run...), choose(s, stormSteps...), fmt.Sprint(s.dice.IntN(s.size))
	kinds := []func(){
		func() { p.link.Lose(nil, memstore.Once(step)) },
		func() { p.link.Lose(memstore.Once(step), nil) },
		func() { p.link.Again(memstore.Once(step)) },
		func() { p.link.Sicken(step, choose(s, memstore.Sicknesses...), s.upTo(lease)) },
		func() { s.mend(s.run...) },
		func() { _ = p.Pause(name) },
		func() { _ = p.Resume(name) },
		func() { _ = p.SetWeight(choose(s, 1, 1, 2, 4)) },
		func() { s.damage() },
		func() { s.garble() },
		func() { s.delay(p, step, s.upTo(lease)) },
	}
	if !s.quiet {
		kinds = append(kinds, func() { s.leave(p) }, func() { s.more() })
	}
	if s.slow {
		step = choose(s, "claim-partitions", "confirm-partitions", "reconcile", "evict", "publish", "claim", "confirm", "observe")
	} else {
		kinds = append(kinds, func() { _ = p.LetGo(name) }, func() { p.link.Cut() }, func() { s.crash(p) })
	}
	choose(s, kinds...)()
}

func (s *storm) more() {
	if len(s.run) < 6 {
		s.launch()
	}
}

func (s *storm) leave(p *process) {
	s.mend(p)
	p.stop()
	<-p.done
	s.run = slices.DeleteFunc(s.run, func(o *process) bool { return o == p })
}

func (s *storm) crash(p *process) {
	p.kill()
	s.run = slices.DeleteFunc(s.run, func(o *process) bool { return o == p })
}

func (s *storm) delay(p *process, step string, d time.Duration) {
	p.link.After(func(of string) {
		if of == step {
			time.Sleep(d)
		}
	})
}

// garble makes the lease row of a partition unreadable until the storm is over.
func (s *storm) garble() {
	for _, name := range slices.Sorted(maps.Keys(s.partitionRows())) {
		if strings.Contains(name, "_") && s.garbled[name] == "" && s.dice.IntN(4) == 0 {
			s.garbled[name] = s.store.Rows()[name].Writer
			s.rewrite(name, choose(s, unreadable...))
			return
		}
	}
}

// damage changes the plan's rows by hand.
func (s *storm) damage() {
	const head, body = "orders/!plan", "orders/body!plan"
	if s.dice.IntN(2) == 0 {
		s.remove(choose(s, head, body))
	} else if _, there := s.store.Rows()[body]; there {
		s.operate(table.Write{Kind: table.Update, Name: body, Set: []table.Cell{{Column: table.ColWriter, Value: "1\n{}"}}})
	}
}

func (s *storm) mend(ps ...*process) {
	for _, p := range ps {
		p.link.Mend()
		p.link.Heal()
		p.link.Again(nil)
		if slowly(p, lease/100); !p.slow {
			p.link.After(nil)
		}
	}
}

// heal ends the storm.
func (s *storm) heal() {
	s.mend(s.run...)
	rows := s.store.Rows()
	for name, said := range s.garbled {
		if _, there := rows[name]; there {
			s.rewrite(name, said)
		}
	}
	for _, p := range s.run {
		for i := range s.size {
			_ = p.Resume(fmt.Sprint(i))
		}
	}
	if len(s.run) == 0 {
		s.launch()
	}
	s.healed.Store(true)
}

// judge checks what must hold after the storm.
func (s *storm) judge() {
	limit := 3 * lease
	if s.early {
		limit = 6 * lease // a partition whose work returned early cools down for three leases
	}
	s.until(limit, "every partition to have a process", s.whole)
	for _, p := range s.run {
		p.link.Counts()
	}
	s.sleep(45 * lease)
	assert.True(s.t, s.whole(), "it stays so")
	look, err := table.Table{Store: s.store}.LookAtGroup(s.t.Context(), "orders", table.GroupQuery{Members: true})
	assert.NoError(s.t, err)
	weights := map[string]int{}
	for _, o := range look.Members {
		if o.LeaseRecord != nil {
			weights[o.Holder()] = o.LeaseRecord.Weight
		}
	}
	for _, p := range s.run {
		assert.Equal(s.t, p.requested.weight, weights[p.id], "the weight of %s is in its row", p.id)
		assert.NoError(s.t, p.Health(), p.id)
		assert.Less(s.t, p.link.Counts()["look"], 45*60, p.id)
	}
}

// whole reports whether each partition has exactly one process.
func (s *storm) whole() bool {
	count := map[string]int{}
	for _, p := range s.run {
		for _, h := range p.Held() {
			count[h.Name()]++
			assert.Equal(s.t, 1, count[h.Name()], "two have %s", h.Name())
		}
	}
	for i := range s.size {
		if count[fmt.Sprint(i)] == 0 {
			return false
		}
	}
	return true
}
