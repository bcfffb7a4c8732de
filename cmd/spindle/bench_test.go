//go:build unix

package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/emulator"
	"github.com/spindle-lock/spindle/spindletest"
)

var rowsInTable = flag.Int("rows", 1_000_000, "how many released locks the benchmarks of large tables have")

// BenchmarkLargeTable looks at a table of released locks, and prunes it, by the command.
func BenchmarkLargeTable(b *testing.B) {
	db := spindletest.New(b)
	released := time.Now().Add(-48 * time.Hour)
	for i := 0; i < *rowsInTable; {
		var rows []*spanner.Mutation
		for range min(10_000, *rowsInTable-i) {
			rows = append(rows, spanner.Insert(db.Table, []string{"name", "token"}, []any{fmt.Sprintf("invoice-%07d", i), released}))
			i++
		}
		if _, err := db.Client.Apply(b.Context(), rows); err != nil {
			b.Fatal(err)
		}
	}
	commands(b, db, "ls", "ls --all", "status invoice-0000001", "prune --dry-run", "prune")
}

// BenchmarkLargeGroups looks at a table with three groups of 10,000 partitions, by the command.
func BenchmarkLargeGroups(b *testing.B) {
	db := spindletest.New(b)
	insert := func(name, writer string, heartbeat, token time.Time) *spanner.Mutation {
		return spanner.Insert(db.Table, []string{"name", "heartbeat", "token", "writer"}, []any{name, heartbeat, token, writer})
	}
	joined := time.Now().Truncate(time.Microsecond)
	beat, token := joined.Add(time.Microsecond), table.TokenAt(joined)
	for _, group := range []string{"events", "invoices", "tenants"} {
		member := table.LeaseRef{Name: table.SlotName(group, 0), Token: token}
		rows := []*spanner.Mutation{insert(member.Name, "web-1", beat, joined), insert(member.Key(), `{"lease":"1h","plan":"p"}`, beat, joined)}
		for i := range 10_000 {
			name := table.PartitionName(group, strconv.Itoa(i))
			rows = append(rows, insert(name, member.Key(), beat, joined), insert(table.LeaseKey(name, token), fmt.Sprintf(`{"with":%q,"for":"1h"}`, member.Key()), beat, joined))
		}
		if _, err := db.Client.Apply(b.Context(), rows); err != nil {
			b.Fatal(err)
		}
	}
	commands(b, db, "ls", "ls --group tenants", "members tenants", "status tenants/partition/17")
}

// commands measures each command line.
func commands(b *testing.B, db *spindletest.Database, lines ...string) {
	e, err := emulator.Shared(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv("SPANNER_EMULATOR_HOST", e.Addr())
	b.Setenv("SPINDLE_DB", db.Path)
	b.Setenv("SPINDLE_TIMEOUT", "10m")
	for _, line := range lines {
		b.Run(line, func(b *testing.B) {
			for range b.N {
				c := exec.CommandContext(b.Context(), "spindle", strings.Fields(line)...)
				c.Stderr = os.Stderr
				if err := c.Run(); err != nil && c.ProcessState.ExitCode() != 3 {
					b.Fatal(err)
				}
				b.ReportMetric(float64(c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)/1024, "MiB")
			}
		})
	}
}

// BenchmarkExecKilled: from SIGKILL of the exec that holds the lock to the program of another running, with three
// of them.
func BenchmarkExecKilled(b *testing.B) {
	const lease = 2 * time.Second
	db := spindletest.New(b)
	e, err := emulator.Shared(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Setenv("SPANNER_EMULATOR_HOST", e.Addr())
	b.Setenv("SPINDLE_DB", db.Path)
	type start struct {
		exec *exec.Cmd
		at   time.Time
	}
	started := make(chan start)
	compete := func() {
		c := exec.CommandContext(b.Context(), "spindle", "exec", "--name", "job", "--lease", lease.String(), "--quiet", "sh", "-c", "date +%s%N; exec sleep 1000")
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		go func() {
			var at int64
			if _, err := fmt.Fscan(out, &at); err == nil {
				started <- start{c, time.Unix(0, at)}
			}
		}()
	}
	for range 3 {
		compete()
	}
	holder := <-started
	var took []float64
	for b.Loop() {
		time.Sleep(lease + rand.N(lease/3))
		killed := time.Now()
		_ = holder.exec.Process.Kill()
		next := <-started
		took = append(took, next.at.Sub(killed).Seconds()/lease.Seconds())
		_ = holder.exec.Wait()
		holder = next
		compete()
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "median-leases")
	b.ReportMetric(took[len(took)-1], "worst-leases")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkServeBeside starts spindle serve on a table with a hundred held locks beside many released ones, which it leaves out
// or shows. It measures a scrape, what a page gets when it is opened, and how often the table is read.
func BenchmarkServeBeside(b *testing.B) {
	const released = 100_000
	db := spindletest.New(b)
	now := time.Now().Truncate(time.Microsecond)
	var rows []*spanner.Mutation
	for i := range released + 100 {
		columns, since := []string{"name", "heartbeat", "token", "writer"}, now.Add(-48*time.Hour)
		if name := fmt.Sprintf("invoice-%07d", i); i < released {
			rows = append(rows, spanner.Insert(db.Table, columns, []any{name, nil, since, nil}))
		} else {
			rows = append(rows, spanner.Insert(db.Table, columns, []any{name, now, since, "web-1"}),
				spanner.Insert(db.Table, columns, []any{table.LeaseKey(name, table.TokenAt(since)), now, since, `{"v":1,"lease":"1h0m0s","id":"web-1"}`}))
		}
		if len(rows) >= 10_000 || i == released+99 {
			if _, err := db.Client.Apply(b.Context(), rows); err != nil {
				b.Fatal(err)
			}
			rows = nil
		}
	}
	e, err := emulator.Shared(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, more := range [][]string{nil, {"--released"}} {
		b.Run("serve"+strings.Join(more, ""), func(b *testing.B) {
			c := exec.CommandContext(b.Context(), "spindle", append([]string{"serve", "--listen", "127.0.0.1:0", "--timeout", "1m", "--db", db.Path, "--table", db.Table}, more...)...)
			c.Env = append(os.Environ(), "SPANNER_EMULATOR_HOST="+e.Addr())
			c.Stderr = os.Stderr
			out, err := c.StdoutPipe()
			if err == nil {
				err = c.Start()
			}
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				b.Fatal(err)
			}
			base := strings.TrimSpace(line[strings.LastIndex(line, "http://"):])
			time.Sleep(20 * time.Second) // some looks
			began := time.Now()
			metrics := answer(b, base+"/metrics", false)
			b.ReportMetric(float64(len(metrics))/1024, "KiB/scrape")
			b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/scrape")
			b.ReportMetric(float64(len(answer(b, base+"/events", true)))/1024, "KiB/page-opened")
			for name, unit := range map[string]string{"spindle_table_read_pause_seconds{": "s-pause", "spindle_table_read_duration_seconds_sum": "s-read/20s", "spindle_table_read_duration_seconds_count": "reads/20s"} {
				for l := range strings.Lines(metrics) {
					if strings.HasPrefix(l, name) {
						v, _ := strconv.ParseFloat(strings.Fields(l)[1], 64)
						b.ReportMetric(v, unit)
					}
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// answer is what a server answers: all of it, or what a page gets when it is opened.
func answer(b *testing.B, address string, opened bool) string {
	response, err := http.Get(address)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	if !opened {
		all, err := io.ReadAll(response.Body)
		if err != nil {
			b.Fatal(err)
		}
		return string(all)
	}
	var text strings.Builder
	for lines := bufio.NewReader(response.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		if text.WriteString(line); strings.HasPrefix(line, "event: age") {
			return text.String()
		}
	}
}
