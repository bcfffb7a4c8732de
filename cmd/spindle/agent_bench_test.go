//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkAgentKilled kills the program that holds a lock, alone or together with its agent, and measures how long it
// takes until a program of another agent holds the lock.
func BenchmarkAgentKilled(b *testing.B) {
	for _, too := range []string{"program", "program and agent"} {
		b.Run(strings.ReplaceAll(too, " ", "-"), func(b *testing.B) {
			e, path := newDatabase(b)
			const lease = 2 * time.Second
			var sites []*site
			for i := range 2 {
				s := &site{TB: b, dir: b.TempDir(), path: path, host: e.Addr(), request: "/v1/locks?name=job&lease=" + lease.String()}
				s.startAgent()
				w := &worker{log: filepath.Join(s.dir, fmt.Sprint("worker-", i)), quiet: true}
				s.start(w)
				s.workers = append(s.workers, w)
				sites = append(sites, s)
				b.Cleanup(func() { kill(w.command); kill(s.agent) })
			}
			next := holders(sites)
			now := next(b)
			var gaps, released []float64
			for b.Loop() {
				time.Sleep(lease + rand.N(lease)) // at any time between two heartbeats
				log := filepath.Join(now.dir, "log")
				before := len(lines(b, log))
				began := time.Now()
				if too != "program" {
					_ = now.agent.Process.Kill()
				}
				require.NoError(b, now.command.Process.Signal(syscall.SIGKILL))
				was := now
				now = next(b)
				require.NotNil(b, now.worker, "no program holds the lock")
				gaps = append(gaps, time.Since(began).Seconds()/lease.Seconds())
				for _, line := range lines(b, log)[before:] {
					stamp, text, _ := strings.Cut(line, " ")
					if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil && strings.Contains(text, "released") {
						released = append(released, float64(at.Sub(began).Microseconds())/1000)
					}
				}
				_ = was.command.Wait()
				if too != "program" {
					_ = was.agent.Wait()
					was.startAgent()
				}
				was.start(was.worker)
			}
			slices.Sort(gaps)
			b.ReportMetric(gaps[len(gaps)/2], "median-leases")
			b.ReportMetric(gaps[len(gaps)-1], "worst-leases")
			if len(released) > 0 {
				slices.Sort(released)
				b.ReportMetric(released[len(released)/2], "ms-to-release")
				b.ReportMetric(released[len(released)-1], "ms-to-release-worst")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func lines(b *testing.B, path string) []string {
	text, err := os.ReadFile(path)
	require.NoError(b, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
