//go:build unix

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/emulator"
	"github.com/spindle-lock/spindle/internal/table"
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
		member := table.Hold{Name: table.SlotName(group, 0), Token: token}
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

// commands measures each of them.
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
