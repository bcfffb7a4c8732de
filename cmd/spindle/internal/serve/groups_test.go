package serve

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
)

// groupRows makes the rows of a group whose last heartbeats were at a time.
type groupRows struct {
	name string
	at   time.Time
}

func (g groupRows) held(name, writer, record string, since, heartbeat time.Time) []table.Row {
	return []table.Row{{Name: name, Heartbeat: heartbeat, Token: since, Writer: writer},
		{Name: table.LeaseKey(name, table.TokenAt(since)), Heartbeat: heartbeat, Token: since, Writer: record}}
}

// member is a member with a lease of 10 s that has been silent for a while, and the key that its partitions name.
func (g groupRows) member(slot int, silent time.Duration) (key string, rows []table.Row) {
	name, since := table.SlotName(g.name, slot), g.at.Add(-time.Hour)
	return table.LeaseKey(name, table.TokenAt(since)), g.held(name, "x", `{"lease":"10s","plan":"p"}`, since, g.at.Add(-silent))
}

// with is a partition of the member with the key.
func (g groupRows) with(partition, key string) []table.Row {
	since := g.at.Add(-time.Minute)
	return g.held(table.PartitionName(g.name, partition), key, `{"with":"`+key+`","for":"10s"}`, since, since.Add(time.Millisecond))
}

// scrape is the answer to Prometheus about the rows, one series a line.
func scrape(t *testing.T, all []table.Row, with func(*Config)) []string {
	t.Helper()
	s := serverOn(&rows{rows: all})
	if with != nil {
		with(&s.Config)
	}
	require.NoError(t, s.Look(t.Context()))
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	lines := slices.Collect(strings.Lines(w.Body.String()))
	return slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "spindle_") })
}

// seriesOf are the series about the lock.
func seriesOf(series []string, lock string) []string {
	return slices.DeleteFunc(slices.Clone(series), func(line string) bool { return !strings.Contains(line, fmt.Sprintf("lock=%q", lock)) })
}

// The metrics count a group's members, its partitions by state, and those without a member. A partition that a live member
// has paused is not one of these. They don't count a lock of
// another program with a name like a partition's.
func TestAGroupIsCounted(t *testing.T) {
	g := groupRows{"a b", time.Now().Add(-time.Second)}
	alive, a := g.member(0, 0)
	silent, b := g.member(1, 20*time.Second)
	all := slices.Concat(a, b, g.with("1", alive), g.with("2", alive), g.with("3", silent), held("a b/partition", "plain", "", g.at, g.at.Add(time.Millisecond)))
	all = append(all,
		table.Row{Name: table.SlotName("a b", 2), Token: g.at},
		table.Row{Name: table.PartitionName("a b", "7"), Token: g.at},
		g.with("8", alive)[1], // without its lock row
		table.Row{Name: table.PartitionName("a b", "9"), Token: g.at, Writer: alive},
		table.Row{Name: table.PartitionName("a b", "10"), Token: g.at, Writer: silent}, // the member that paused it is gone
	)
	var told []string
	for _, line := range scrape(t, all, nil) {
		if after, ok := strings.CutPrefix(line, "spindle_table_group_"); ok {
			told = append(told, strings.NewReplacer(`group="a b",`, "", `table="locktable"`, "", "\n", "").Replace(after))
		}
	}
	assert.Equal(t, []string{"members{} 1",
		`partitions{state="expired",} 1`, `partitions{state="held",} 2`, `partitions{state="leaving",} 0`, `partitions{state="orphaned",} 1`,
		`partitions{state="paused",} 1`, `partitions{state="released",} 2`, `partitions{state="unconfirmed",} 0`, `partitions{state="unreadable",} 0`,
		"partitions_without_holder{} 4"}, told)
}

// A group has as many series with hundreds of partitions as with one: Prometheus should not pay for each of 20,000. Members
// keep their own series, and so does a lock of another program with a partition's name.
func TestPartitionsHaveNoSeriesOfTheirOwn(t *testing.T) {
	g := groupRows{"orders", time.Now().Add(-time.Second)}
	key, member := g.member(0, 0)
	plain := held(table.PartitionName("other", "1"), "plain", "", g.at, g.at.Add(time.Millisecond))
	of := func(partitions int) []table.Row {
		all := slices.Concat(member, plain)
		for i := range partitions {
			all = append(all, g.with(fmt.Sprint(i), key)...)
		}
		return all
	}
	few, many := scrape(t, of(1), nil), scrape(t, of(300), nil)
	assert.Equal(t, len(few), len(many)) // and not Len, which prints them all
	assert.Empty(t, seriesOf(many, table.PartitionName("orders", "0")))
	assert.Len(t, seriesOf(many, table.SlotName("orders", 0)), 8)
	assert.Len(t, seriesOf(many, table.PartitionName("other", "1")), 9)
}

// The page has each partition, whatever the metrics have.
func TestThePageHasEachPartition(t *testing.T) {
	g := groupRows{"orders", time.Now().Add(-time.Second)}
	key, all := g.member(0, 0)
	_, web := onAPage(t, &rows{rows: append(all, g.with("7", key)...)})
	var shown snapshotFrame
	openTab(t, web.URL).next(t, "snapshot", &shown)
	require.Len(t, shown.Locks, 2)
	assert.Equal(t, table.PartitionName("orders", "7"), shown.Locks[1].Name)
}
