package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// Rows that are deleted or garbled at any time never make two members act on a partition, and never keep other members
// from joining. The groups have members with different leases and lists, which join, leave and are cut off, and whose
// transactions are aborted. After the damage has ended, and the unreadable rows have been corrected, every partition
// has work again.
func FuzzDamagedRows(f *testing.F) {
	for _, seed := range fleet.Part(seeds(20)...) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		inVirtualTime(t, func(c *cluster) {
			d := &damage{cluster: c, dice: rand.New(rand.NewPCG(seed, 0)), leases: map[*process]time.Duration{}, said: map[string]string{}, hurt: map[string]time.Time{}}
			d.draw()
			d.begin()
			for range 6 + d.dice.IntN(10) {
				d.sleep(d.upTo(d.longest))
				d.strike()
			}
			d.join()
			d.mend()
			d.await(20*d.longest+lease, "every partition to be worked on", d.whole)
			d.sleep(4 * d.longest)
			assert.True(t, d.whole(), "it stays so")
			d.cluster.end(d.run...)
		})
	})
}

// damage is a group whose rows are damaged.
type damage struct {
	*cluster
	dice    *rand.Rand
	lists   [2][]string
	newer   float64         // the fraction of processes that have the second list
	drawn   []time.Duration // the leases to draw from
	longest time.Duration
	kinds   []string // the kinds of damage
	abort   float64  // the probability that a transaction is aborted

	run    []*process // the running processes
	leases map[*process]time.Duration
	said   map[string]string    // the contents of the unreadable rows before the damage
	hurt   map[string]time.Time // the last time at which a row of each lock was deleted
}

func pick[T any](d *damage, of ...T) T { return of[d.dice.IntN(len(of))] }

func (d *damage) upTo(limit time.Duration) time.Duration {
	return time.Duration(d.dice.Int64N(int64(limit)))
}

// draw chooses what will happen. A member that does not find a lease record uses its own lease. So if leases differ,
// only rows of one kind are deleted.
func (d *damage) draw() {
	for i := range 2 + d.dice.IntN(20) {
		d.lists[0] = append(d.lists[0], fmt.Sprint(i))
		if d.dice.IntN(4) > 0 {
			d.lists[1] = append(d.lists[1], fmt.Sprint(i))
		}
	}
	d.lists[1] = append(d.lists[1], "new")
	d.newer, d.abort = pick(d, 0, 0.5), pick(d, 0, 0.1, 0.4)
	d.longest, d.drawn = lease, []time.Duration{lease}
	d.kinds = []string{"partition's lease garbled", "member's lease garbled"}
	deleted := []string{"partition", "partition's lease", "member", "member's lease"}
	if d.dice.IntN(3) == 0 {
		d.kinds = append(d.kinds, deleted...)
		return
	}
	d.longest, d.drawn = 3*lease, []time.Duration{lease, 2 * lease, 3 * lease}
	only := pick(d, deleted...)
	d.kinds = append(d.kinds, only, only)
}

// begin starts the first processes, and waits until they share their partitions.
func (d *damage) begin() {
	d.launch(d.longest)
	for range 1 + d.dice.IntN(3) {
		d.launch(pick(d, d.drawn...))
	}
	d.await(20*d.longest, "every partition to be worked on at first", d.whole)
	d.sleep(3*d.longest + d.upTo(d.longest))
}

// launch starts a process whose steps take time and can be aborted.
func (d *damage) launch(leases time.Duration) *process {
	list := 0
	if d.dice.Float64() < d.newer {
		list = 1
	}
	opts := []Option{spindle.WithLease(leases), batchesOf(pick(d, 1, 2, 5, 50))}
	if d.dice.IntN(2) == 0 {
		opts = append(opts, spindle.WithReclaim())
	}
	if d.dice.IntN(3) == 0 {
		opts = append(opts, spindle.WithHandover())
	}
	p := d.process(fmt.Sprint("p", len(d.all)), Named(d.lists[list]...), opts...)
	p.link.Refuse(func(step string) error {
		if slices.Contains([]string{"claim", "confirm", "evict", "claim-partitions", "confirm-partitions", "reconcile"}, step) && rand.Float64() < d.abort {
			return table.ErrAborted
		}
		return nil
	})
	p.link.After(func(string) { time.Sleep(rand.N(lease / 500)) })
	d.cluster.run(p)
	d.run, d.leases[p] = append(d.run, p), leases
	return p
}

// whole reports whether every partition in the list of some process has work and a valid token.
func (d *damage) whole() bool {
	all, rows := map[string]bool{}, d.store.Rows()
	for _, p := range d.run {
		for _, s := range p.partitions {
			all[s.name] = true
		}
	}
	for _, p := range d.run {
		for _, h := range p.Held() {
			if _, valid := rows[p.leaseRow(h.Name())]; valid {
				delete(all, h.Name())
			}
		}
	}
	return len(all) == 0
}

// await is like until, but with longer steps.
func (d *damage) await(limit time.Duration, what string, cond func() bool) {
	d.t.Helper()
	for start := time.Now(); !cond(); d.sleep(lease / 20) {
		require.Less(d.t, time.Since(start), limit, "waited in vain for %s", what)
	}
}

// strike damages rows, or makes processes join, leave or be cut off.
func (d *damage) strike() {
	switch kind := pick(d, append(d.kinds, "a process")...); {
	case kind != "a process":
		d.damage(kind)
	case d.dice.IntN(2) == 0:
		d.cut(pick(d, d.run...))
	case len(d.run) < 4:
		d.launch(d.longest) // it has not seen the other members' leases
	default:
		p := pick(d, d.run...)
		d.run = slices.DeleteFunc(d.run, func(o *process) bool { return o == p })
		p.stop()
	}
}

// damage changes some rows of one member or of its partitions, and sometimes cuts this member off.
func (d *damage) damage(kind string) {
	rows, p := d.store.Rows(), pick(d, d.run...)
	found := d.victims(kind, p, rows)
	if len(found) == 0 {
		return
	}
	if d.dice.IntN(4) > 0 {
		d.cut(p)
	}
	d.dice.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	found = found[:1+d.dice.IntN(len(found))]
	for _, key := range found {
		if strings.HasSuffix(kind, "garbled") {
			d.said[key] = rows[key].Writer
			d.rewrite(key, pick(d, unreadable...))
			continue
		}
		lock, _, _ := strings.Cut(key, "_")
		d.hurt[lock] = time.Now()
		d.remove(key)
	}
	d.t.Log(time.Now().Format("04:05.000"), kind, p.id, found)
}

// cut makes a process silent for a while.
func (d *damage) cut(p *process) {
	d.t.Log(time.Now().Format("04:05.000"), "cut", p.id)
	p.link.Cut()
	time.AfterFunc(d.upTo(3*d.leases[p]), p.link.Mend)
}

// victims returns the rows of the given kind that belong to a process or to its partitions.
func (d *damage) victims(kind string, p *process, rows map[string]table.Row) (found []string) {
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		lock, _, isLease := strings.Cut(key, "_")
		row, part := rows[lock], "member"
		owner := row.Writer
		if with, is := table.MemberOf(row.Writer); is {
			part, owner = "partition", rows[with.Name].Writer
		}
		_, leased := rows[table.LeaseKey(lock, table.TokenAt(row.Token))]
		is := leased && owner == p.id && isLease == strings.Contains(kind, "'s lease") && strings.HasPrefix(kind, part)
		if is && time.Since(d.hurt[lock]) > 2*d.longest && !(strings.HasSuffix(kind, "garbled") && d.said[key] != "") {
			found = append(found, key)
		}
	}
	if kind == "member's lease" && !d.known(rows) {
		return nil
	}
	return found
}

// known reports whether every process has seen each member's lease. A process that has not seen it uses its own lease
// if the lease row is missing.
func (d *damage) known(rows map[string]table.Row) bool {
	members := 0
	for key, row := range rows {
		part, is := table.PartOf(key)
		if !is || part.Partition != "" || row.Heartbeat.IsZero() {
			continue
		}
		if members++; time.Since(row.Token) < d.longest || time.Since(row.Heartbeat) > d.longest/2 {
			return false
		}
	}
	return members == len(d.run)
}

// join starts one more process, which must be able to join even if other members' rows can't be read.
func (d *damage) join() {
	p := d.launch(d.longest)
	d.await(3*d.longest, "a newcomer to join", func() bool { return strings.Contains(p.log.String(), "msg=joined") })
}

// mend ends the damage.
func (d *damage) mend() {
	for _, p := range d.run {
		p.link.Refuse(nil)
	}
	rows := d.store.Rows()
	for key, said := range d.said {
		if _, there := rows[key]; there {
			d.rewrite(key, said)
		}
	}
	d.sleep(3 * d.longest) // let the processes that are cut off come back
}
