package group

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

const lease = 10 * time.Second

// cluster is a table in memory, and the processes of one group that use it in virtual time.
type cluster struct {
	t     *testing.T
	store *memstore.Store
	all   []*process   // the processes that ran
	rows  atomic.Int64 // the number of rows that they have read

	mu     sync.Mutex
	works  map[string]*process // the process that works on each partition
	begun  map[string]int      // how often work on each partition has begun
	clash  []string
	tokens map[string]spindle.Token
	latest map[string]*process // the process to which each of these tokens belongs
}

// seeds returns the numbers from 0 to n-1.
func seeds(n int) []uint64 {
	all := make([]uint64, n)
	for i := range all {
		all[i] = uint64(i)
	}
	return all
}

func inVirtualTime(t *testing.T, f func(*cluster)) {
	fleet.Bubble(t, func(t *testing.T) {
		c := &cluster{t: t, store: &memstore.Store{}, works: map[string]*process{}, begun: map[string]int{}, tokens: map[string]spindle.Token{}, latest: map[string]*process{}}
		defer c.over() // also if the test has failed
		f(c)
		c.over()
		c.until(10*lease, "every process to end", func() bool {
			return !slices.ContainsFunc(c.all, func(p *process) bool { return p.runs.Going() })
		})
		c.check()
		require.Empty(t, c.clash, "two processes worked on one partition")
	})
}

// over stops all processes.
func (c *cluster) over() {
	for _, p := range c.all {
		p.stop()
		p.link.Mend()
	}
}

// check fails the test if a process's requests or events were not in order, or if its events don't tell what it has.
func (c *cluster) check() {
	c.t.Helper()
	synctest.Wait()
	for _, p := range c.all {
		require.Empty(c.t, append(p.asked.wrong, p.told.wrong...), p.id)
		if p.told.last == 0 {
			continue // the test has an observer of its own
		}
		require.Equal(c.t, p.told.member != 0, p.runs.Going() && p.told.member != 0, "%s: its end is an event", p.id)
		for _, h := range p.Held() {
			require.Equal(c.t, h.Token(), p.told.has[h.Name()], "%s: an event says that it has %s", p.id, h.Name())
		}
	}
}

// counted is a table that counts the rows that are read.
type counted struct {
	table.Store
	rows *atomic.Int64
}

// Read implements table.Store.
func (s counted) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) ([]table.Row, time.Time, error) {
	rows, at, err := s.Store.Read(ctx, step, bound, keys)
	s.rows.Add(int64(len(rows)))
	return rows, at, err
}

// process is a member, with its link to the table and its clock.
type process struct {
	*Group
	id     string
	of     *cluster
	link   *memstore.Link
	clock  *fleet.Clock
	log    *fleet.Log
	stop   context.CancelFunc
	done   chan error
	dead   bool
	slow   bool                   // each of its requests takes time
	linger func(partition string) // called before work returns
	do     func(context.Context, Partition) error
	told   told
	asked  asked
}

// told is what the events of a process have said so far, and which of them were out of order.
type told struct {
	last, member      spindle.Token // of the last term, and of the present one
	has               map[string]spindle.Token
	jeopardy, leaving bool
	wrong             []string
}

func (s *told) hear(e spindle.Event) {
	ok := s.member == e.Token || e.Partition != "" && s.member != 0
	switch e.Kind {
	case spindle.Elected:
		ok = s.member == 0 && e.Token > s.last && e.Deadline.After(e.At)
		*s = told{last: e.Token, member: e.Token, has: map[string]spindle.Token{}, wrong: s.wrong}
	case spindle.Lost:
		ok = ok && len(s.has) == 0 && e.Err != nil
		s.member = 0
	case spindle.Jeopardy:
		ok = ok && !s.jeopardy && e.Err != nil && strings.Contains(e.Err.Error(), `group "orders"`) && !e.Deadline.IsZero()
		s.jeopardy = true
	case spindle.Safe:
		ok = ok && s.jeopardy && !e.Deadline.IsZero()
		s.jeopardy = false
	case spindle.Leaving:
		ok = ok && !s.leaving
		s.leaving = true
	case spindle.PartitionAssigned:
		ok = ok && s.has[e.Partition] == 0 && e.Token > 0
		s.has[e.Partition] = e.Token
	case spindle.PartitionRevoked:
		ok = ok && s.has[e.Partition] == e.Token && e.Err != nil
		delete(s.has, e.Partition)
	}
	if !ok {
		s.wrong = append(s.wrong, fmt.Sprintf("out of order: %v %d %s: %v", e.Kind, e.Token, e.Partition, e.Err))
	}
}

// asked has the requests of a process that are in progress, and those that should not have been sent beside others.
type asked struct {
	mu    sync.Mutex
	under map[string][]context.Context
	wrong []string

	released time.Time // when it last sent a release of partitions
}

// beside says how many requests of a step may be in progress at the same time. Commits that claim or free partitions count
// as one step.
var beside = map[string]int{"look": 1, "publish": 1, "evict": 1, "mark-paused": 1, "weigh": 1, "announce": 1, "move": lanes}

// moves returns the number of commits in progress that claim or free partitions.
func (a *asked) moves() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.goOn("move")
}

// goOn returns the number of requests of a step that are in progress.
func (a *asked) goOn(kind string) int {
	a.under[kind] = slices.DeleteFunc(a.under[kind], func(c context.Context) bool { return c.Err() != nil })
	return len(a.under[kind])
}

// pass sends a request. A request whose ctx has ended is not in progress any more.
func (p *process) pass(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
	a, kind := &p.asked, step
	if step == "claim-partitions" || step == "confirm-partitions" || step == "reconcile" {
		kind = "move"
	}
	a.mu.Lock()
	if most, limited := beside[kind]; limited && a.goOn(kind) >= most {
		a.wrong = append(a.wrong, step+" is sent while others are in progress")
	}
	if step == "release-partitions" {
		a.released = time.Now()
	}
	atOnce := step == "announce" && a.goOn("release-partitions") > 0 && a.released.Equal(time.Now())
	if !p.config.Handover && (atOnce || step == "release-partitions" && a.goOn("announce") > 0) {
		a.wrong = append(a.wrong, "partitions are released before the others know that the member leaves")
	}
	ctx, cancel := context.WithCancel(ctx)
	a.under[kind] = append(a.under[kind], ctx)
	a.mu.Unlock()
	defer cancel()
	return call(ctx, p.link)
}

// seam is an option for the member of the process.
func (p *process) seam() Option {
	return options.Option(func(o *options.Config) {
		o.Store, o.Clock = table.Via(p.pass), p.clock
		spindle.WithObserver(p.told.hear).(options.Option)(o)
	})
}

func (c *cluster) process(id string, partitions Partitions, opts ...Option) *process {
	p := &process{id: id, of: c, link: &memstore.Link{Store: counted{c.store, &c.rows}}, clock: &fleet.Clock{}, log: &fleet.Log{}, asked: asked{under: map[string][]context.Context{}}, done: make(chan error, 1)}
	p.do = p.work
	work := WithWork(func(ctx context.Context, of Partition) error { return p.do(ctx, of) })
	p.Group = New(nil, "locktable", "orders", partitions, append([]Option{p.seam(), spindle.WithID(id), work, WithInitialDelay(0),
		spindle.WithLogger(slog.New(slog.NewTextHandler(p.log, nil)))}, opts...)...)
	return p
}

// lock returns a plain lock in the same table.
func (c *cluster) lock(name, id string) (*spindle.Lock, *memstore.Link) {
	link := &memstore.Link{Store: c.store}
	return spindle.New(nil, "locktable", name, c.seamOf(link), spindle.WithID(id), spindle.WithLogger(slog.New(slog.DiscardHandler))), link
}

// seam is an option for other locks in the same table.
func (c *cluster) seam(process string) spindle.CommonOption {
	link := c.seamOf(&memstore.Link{Store: c.store})
	return spindle.Options(link, options.Option(func(o *options.Config) { o.Process = process }))
}

func (c *cluster) seamOf(link *memstore.Link) spindle.CommonOption {
	return options.Option(func(o *options.Config) { o.Store, o.Clock = link, &fleet.Clock{} })
}

// sleep lets time pass.
func (c *cluster) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (c *cluster) start(id string, partitions Partitions, opts ...Option) *process {
	p := c.process(id, partitions, opts...)
	c.run(p)
	return p
}

// alone starts a member that has all n partitions.
func (c *cluster) alone(n int, opts ...Option) *process {
	c.t.Helper()
	a := c.start("a", Numbered(n), opts...)
	c.until(lease, "a to have all", spreadOver(n, a))
	return a
}

func (c *cluster) run(p *process) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	c.all = append(c.all, p)
	require.NoError(c.t, p.Run(ctx, p.done))
}

// work records which process works on which partition. A process that was killed works on none.
func (p *process) work(ctx context.Context, partition Partition) error {
	c, name := p.of, partition.Name()
	c.mu.Lock()
	if other := c.works[name]; other != nil && !other.dead {
		c.clash = append(c.clash, fmt.Sprintf("%s of %s and %s", name, other.id, p.id))
	}
	if token := partition.Token(); token < c.tokens[name] || token == c.tokens[name] && c.latest[name] != p {
		c.clash = append(c.clash, fmt.Sprintf("the token of %s did not grow", name))
	}
	c.tokens[name], c.latest[name] = partition.Token(), p
	c.works[name] = p
	c.begun[name]++
	c.mu.Unlock()
	<-ctx.Done()
	if p.linger != nil {
		p.linger(name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.works[name] == p {
		delete(c.works, name)
	}
	return nil
}

// kill makes the process silent forever, so that none of its requests reaches the table.
func (p *process) kill() {
	p.of.mu.Lock()
	p.dead = true
	p.of.mu.Unlock()
	p.link.Cut()
	p.stop()
}

// end stops the processes and waits for them.
func (c *cluster) end(ps ...*process) {
	for _, p := range ps {
		p.stop()
	}
	for _, p := range ps {
		<-p.done
	}
	synctest.Wait()
}

// until lets time pass until cond holds, and returns how much time passed.
func (c *cluster) until(limit time.Duration, what string, cond func() bool) time.Duration {
	c.t.Helper()
	start := time.Now()
	for synctest.Wait(); !cond(); synctest.Wait() {
		require.Less(c.t, time.Since(start), limit, "waited in vain for %s", what)
		time.Sleep(lease / 1000)
	}
	return time.Since(start)
}

// has returns the number of partitions that the process has.
func (p *process) has() int { return len(p.Held()) }

// spreadOver returns a function that reports whether the processes share all n partitions evenly.
func spreadOver(n int, ps ...*process) func() bool {
	return func() bool {
		sum := 0
		for _, p := range ps {
			has := p.has()
			if has < n/len(ps) || has > (n+len(ps)-1)/len(ps) {
				return false
			}
			sum += has
		}
		return sum == n
	}
}

func names(ps []Partition) []string {
	var names []string
	for _, p := range ps {
		names = append(names, p.Name())
	}
	return names
}

// otherMember returns writes that add another process to the group, in the given slot and with the given lease record.
func otherMember(slot int, token, heartbeat time.Time, record string) []table.Write {
	name := table.SlotName("orders", slot)
	return []table.Write{
		{Kind: table.Insert, Name: name, Set: []table.Cell{{Column: table.ColHeartbeat, Value: heartbeat}, {Column: table.ColToken, Value: token}, {Column: table.ColWriter, Value: "other"}}},
		{Kind: table.Insert, Name: table.LeaseKey(name, table.TokenAt(token)), Set: []table.Cell{{Column: table.ColWriter, Value: record}}},
	}
}

// partitionRows returns the table's rows without the members' rows.
func (c *cluster) partitionRows() map[string]table.Row {
	rows := c.store.Rows()
	for name := range rows {
		if !strings.Contains(name, "/partition/") {
			delete(rows, name)
		}
	}
	return rows
}

// inHand returns a new term of a process whose loop does not run. A test causes the term's events itself, one after the other.
func (c *cluster) inHand(p *process) *term {
	m := newMember(p.Group, slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})), nil)
	t := newTerm(c.t.Context(), m, m.join(c.t.Context()))
	t.reports = m.voice.watch.Elected(t.lease.Term)
	return t
}

// reply waits for the reply to a request of a term in hand, and handles it.
func (t *term) reply() { (<-t.send.replies)() }

// answers makes all further requests of a term in hand take a while and return err, without any effect.
func (t *term) answers(after time.Duration, err error) {
	t.send.table.Store = table.Via(func(context.Context, string, func(context.Context, table.Store) error) error {
		time.Sleep(after)
		return err
	})
}

// settled makes a term in hand take its steps until it waits for its next regular poll.
func (t *term) settled() *term {
	for t.goOn(); t.due() == 0 || t.polls.pending || t.upkeep.publishing || t.moves.under > 0; t.goOn() {
		select {
		case then := <-t.send.replies:
			then()
		case <-time.After(max(t.due(), 1)):
		}
	}
	return t
}

// letGo drops a term in hand.
func (t *term) letGo() {
	t.send.cancel()
	t.polls.readDeadline.Stop()
	t.lease.End(context.Canceled)
	t.m.running.Wait()
	t.m.letGo()
}

// letGo drops a member that is in no term.
func (m *member) letGo() {
	m.voice.watch.Close()
	m.voice.metrics.close()
}
