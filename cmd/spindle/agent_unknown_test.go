//go:build linux

package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/testkit/network"
)

// twoAgents starts two agents. The first one's requests go through a link that can break.
func twoAgents(t *testing.T, path, host string) (cut, other *recipes) {
	link, err := network.NewLink(host)
	require.NoError(t, err)
	t.Cleanup(link.Close)
	cut = &recipes{site: &site{TB: t, dir: t.TempDir(), path: path, host: host, link: link}}
	other = &recipes{site: &site{TB: t, dir: t.TempDir(), path: path, host: host}}
	for _, r := range []*recipes{cut, other} {
		r.startAgent()
		t.Cleanup(func() { kill(r.agent) })
		r.eventually("the agent listens", func() bool { return r.ask(http.MethodGet, "/livez", &struct{}{}) == nil })
	}
	return cut, other
}

// job starts a program that works under a lock.
func (r *recipes) job(name, parameters string, env ...string) *worker {
	w := &worker{log: filepath.Join(r.dir, fmt.Sprint("worker-", len(r.workers))), quiet: true, env: env}
	r.request = "/v1/locks?name=" + name + parameters
	r.start(w)
	r.workers = append(r.workers, w)
	r.Cleanup(func() { kill(w.command) })
	return w
}

// If the reply to a release is lost, the agent says that the outcome is unknown. In fact the lock is free, and the next
// program has it long before its lease would have expired.
func TestTheReplyToAReleaseIsLost(t *testing.T) {
	t.Parallel()
	e, path := newDatabase(t)
	a, b := twoAgents(t, path, e.Addr())
	first := a.job("job", "&lease=4s")
	token := a.holder("job", 0)
	next := b.job("job", "&lease=4s")
	b.eventually("the next program waits", func() bool { return b.state("job") == "waiting" })
	a.link.From.BlackHole()
	require.NoError(t, first.command.Process.Signal(syscall.SIGSTOP)) // its work has returned
	require.Eventually(t, func() bool { return allStopped(first.command.Process.Pid) }, patience, time.Millisecond)
	var answer struct{ State, Detail string }
	require.NoError(t, a.ask(http.MethodPost, "/v1/holds/"+a.holds("job")[0].Hold+"/release", &answer))
	assert.Equal(t, "unknown", answer.State)
	assert.NotEmpty(t, answer.Detail)
	assert.Greater(t, b.holder("job", token), token)
	a.link.Cut()
	a.link.Mend()
	kill(next.command)
	a.job("job", "&lease=4s")
	a.eventually("the agent gets locks again", func() bool { return a.token("job") > token })
	worksInTurns(t, a, b)
}

// allStopped reports whether all threads of a process are stopped. On a busy machine, a thread may run on for some milliseconds after the
// signal was sent.
func allStopped(pid int) bool {
	out, err := exec.Command("ps", "-L", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !slices.ContainsFunc(strings.Fields(string(out)), func(stat string) bool { return !strings.HasPrefix(stat, "T") })
}

// worksInTurns ends the programs and checks that no two of them worked at a time.
func worksInTurns(t *testing.T, all ...*recipes) {
	worked := map[int64][]int64{}
	for _, r := range all {
		for _, w := range r.workers {
			kill(w.command)
			works(t, w.log, worked)
		}
	}
	takesTurns(t, worked)
}

// A program says that its key is done, and is killed at once. If it has read the answer, its key is done. Otherwise the
// key is done or the next program runs it, and in either case immediately.
func TestAProgramIsKilledWhenItHasSaidDone(t *testing.T) {
	t.Parallel()
	e, path := newDatabase(t)
	_, r := twoAgents(t, path, e.Addr())
	recorded := map[string]int{}
	const each = 10
	for _, order := range []string{"done", "say done"} {
		for i := range each {
			name := fmt.Sprintf("%s-%d", strings.ReplaceAll(order, " ", "-"), i)
			w := &worker{log: filepath.Join(r.dir, name), quiet: true}
			r.request = "/v1/once?key=k&lease=1m&name=" + name
			r.start(w)
			<-w.held // the program knows its hold, which the agent shows before
			w.order(order)
			_ = w.command.Wait()
			r.eventually("its hold is over", func() bool { return r.state(name) == "" })
			answer := ""
			r.eventually("the agent can tell", func() bool {
				answer = r.tries("/v1/once?key=k&lease=1m&wait=0&name=" + name)
				return answer != "503 Service Unavailable"
			})
			switch answer {
			case "409 Conflict": // done
				recorded[order]++
			case "200 OK":
			default:
				assert.Fail(t, answer)
			}
		}
	}
	assert.Equal(t, each, recorded["done"], "keys that are done after an answer")
	t.Logf("recorded of %d each: %v", each, recorded)
}

// tries returns the status of a request whose connection it closes at once.
func (r *recipes) tries(path string) string {
	conn, err := net.Dial("unix", r.socket())
	require.NoError(r, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.0\r\n\r\n", path)
	require.NoError(r, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(r, err)
	return answer.Status
}
