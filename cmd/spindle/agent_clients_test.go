//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// The programs that clients/README.md shows are the files beside it, which the next tests run.
func TestTheRecipesForClientsAreTheFiles(t *testing.T) {
	const clients = "../../clients"
	page, err := os.ReadFile(filepath.Join(clients, "README.md"))
	require.NoError(t, err)
	var blocks []string
	for _, block := range regexp.MustCompile("(?s)\n```(\\w+)\n(.*?)```\n").FindAllSubmatch(page, -1) {
		blocks = append(blocks, string(block[1])+"\n"+string(block[2]))
	}
	for language, files := range map[string]string{"sh": "sh/*", "java": "java/*"} {
		paths, err := filepath.Glob(filepath.Join(clients, files))
		require.NoError(t, err)
		require.NotEmpty(t, paths, files)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.True(t, slices.Contains(blocks, language+"\n"+string(text)), "clients/README.md does not show %s as it is", path)
		}
	}
	out, err := exec.Command("sh", "-n", filepath.Join(clients, "sh/hold.sh")).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Programs that use the recipes for curl and for Java hold locks of an agent: none while another one does, until they end, and
// not for longer, however they end.
func TestTheRecipesForClientsHoldLocks(t *testing.T) {
	t.Parallel()
	e, db := newDatabase(t)
	classes := compileJava(t)
	_, err := exec.LookPath("curl")
	require.NoError(t, err, "curl is missing: apt-get install curl")
	start := func(t *testing.T) *recipes {
		r := &recipes{site: &site{TB: t, dir: t.TempDir(), path: db, host: e.Addr()}, classes: classes}
		r.startAgent()
		t.Cleanup(func() {
			kill(r.agent)
			if text, _ := os.ReadFile(filepath.Join(r.dir, "log")); t.Failed() {
				t.Logf("%s", text)
			}
		})
		r.eventually("the agent listens", func() bool { return r.ask(http.MethodGet, "/livez", &struct{}{}) == nil })
		return r
	}
	one := start(t)
	for name, test := range map[string]func(*recipes){
		"each excludes the other":         (*recipes).exclude,
		"hold.sh says how it went":        (*recipes).codes,
		"hold.sh passes on a stop":        (*recipes).stop,
		"its process group gets a signal": (*recipes).stopGroup,
		"hold.sh is ended as it starts":   (*recipes).endStarting,
		"a process of Java is killed":     (*recipes).killJava,
		"a thread of Java is interrupted": (*recipes).interruptJava,
		"hold.sh is killed":               (*recipes).killShell,
		"both of its shells are killed":   (*recipes).killShells,
		"and all that it started":         (*recipes).killAll,
		"hold.sh is ended while it waits": (*recipes).endWaiting,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&recipes{site: &site{TB: t, dir: one.dir, path: db, host: e.Addr()}, classes: classes})
		})
	}
	t.Run("Java compares clocks", func(t *testing.T) {
		t.Parallel()
		one.clocks(t)
	})
	t.Run("their agent is killed", func(t *testing.T) {
		t.Parallel()
		start(t).killAgent()
	})
}

// Java and hold.sh say what became of a lock as clients/endings.json does, and ask again when an agent that has too many holds
// says so; the agents that answer 200 do. hold.sh has no clock, so it is only tried in time, and it does not tell a loss from what is unknown.
func TestTheRecipesForClientsEndAsTheTableSays(t *testing.T) {
	t.Parallel()
	classes := compileJava(t)
	text, err := os.ReadFile("../../clients/endings.json")
	require.NoError(t, err)
	var table struct {
		Release map[string]map[string]string `json:"release"`
	}
	require.NoError(t, json.Unmarshal(text, &table))
	for answer, ending := range table.Release {
		if strings.HasPrefix(answer, "404") && answer != "404 none" { // recipes do not ask /v1/release
			continue
		}
		status, _ := strconv.Atoi(strings.Fields(answer)[0])                   // 0: no answer
		for _, work := range fleet.Some(slices.Sorted(maps.Keys(ending))...) { // each starts a Java machine
			is := ending[work]
			t.Run("Java, "+answer+", "+work, func(t *testing.T) {
				agent := &fakeAgent{status: status, busy: status == http.StatusOK}
				if work != "late" {
					agent.lease = patience // even a busy machine is in time
				}
				java := agent.serves(t, classes).example("job")
				java.says("held under token 7\n")
				if work == "late" {
					time.Sleep(fakeLease) // what passes is the time of the lock
				}
				require.NoError(t, java.input.Close())
				java.ends(map[string]int{"released": 0, "lost": 1, "unknown": 1}[is])
				assert.Equal(t, is == "lost", strings.Contains(java.String(), "Held$Lost"), java.String())
			})
		}
		t.Run("hold.sh, "+answer, func(t *testing.T) {
			shell := (&fakeAgent{status: status, busy: status == http.StatusOK}).serves(t, classes).hold("locks?name=job&wait=1m", "echo", "works")
			shell.ends(map[string]int{"released": 0, "lost": 76, "unknown": 76}[ending["in time"]])
			assert.Contains(t, shell.String(), "works")
		})
	}
	t.Run("hold.sh waits no longer than it may", func(t *testing.T) {
		for _, wait := range []string{"0", "100ms", "1.5s"} {
			shell := (&fakeAgent{status: 200, busy: true}).serves(t, classes).hold("locks?wait="+wait+"&name=job", "echo", "works")
			shell.ends(75)
			assert.Contains(t, shell.String(), "too-many")
		}
	})
}

// recipes runs programs that hold locks of an agent.
type recipes struct {
	*site
	classes string
}

func (r *recipes) exclude() {
	shell := r.hold("locks?name=both&lease=6s", "cat")
	token := r.holder("both", 0)
	java := r.example("both")
	r.eventually("the program in Java waits", func() bool { return len(r.holds("both")) == 2 })
	shell.write("works\n")
	shell.says("works\n")
	assert.Empty(r, java.String(), "it holds the lock at the same time")
	require.NoError(r, shell.input.Close())
	shell.ends(0)
	next := r.holder("both", token)
	java.says(fmt.Sprintf("held under token %d\n", next))
	busy := r.hold("locks?name=both&lease=6s&wait=0", "echo", "runs")
	busy.ends(75)
	assert.Contains(r, busy.String(), "busy")
	java.write("step\n")
	java.says("did step\n")
	require.NoError(r, java.input.Close())
	java.ends(0)
	free := r.hold("locks?name=both&lease=6s&wait=0", "echo", "runs")
	free.ends(0)
	free.says("runs\n")
}

func (r *recipes) codes() {
	r.hold("locks?name=code", "sh", "-c", "exit 7").ends(7)
	refused := r.hold("locks?name=code&nmae=x", "true")
	refused.ends(75)
	assert.Contains(r, refused.String(), "unknown-parameter")
	noAgent := &recipes{site: &site{TB: r.TB, dir: r.TempDir()}}
	noAgent.hold("locks?name=code", "true").ends(75)
	lost := r.hold("locks?name=code&lease=6s", "sh", "-c", "trap 'echo asked' TERM; echo works; while :; do sleep 0.05; done")
	lost.says("works\n")
	token := r.holder("code", 0)
	c := exec.Command("spindle", "release", "code", "--token", fmt.Sprint(token), "--yes")
	c.Env = append(os.Environ(), "SPINDLE_DB="+r.path, "SPANNER_EMULATOR_HOST="+r.host)
	out, err := c.CombinedOutput()
	require.NoError(r, err, "%s", out)
	lost.ends(76)
	assert.NotContains(r, lost.String(), "asked", "it is asked to end, while another program may hold the lock")
}

func (r *recipes) stop() {
	p := r.hold("locks?name=stop&lease=6s", "sh", "-c", "trap 'echo stops; read go; exit 3' TERM; echo works; while :; do sleep 0.05; done")
	p.says("works\n")
	require.NoError(r, r.ask(http.MethodPost, "/v1/holds/"+r.holds("stop")[0].Hold+"/stepdown", &struct{}{}))
	p.says("stops\n")
	assert.NotZero(r, r.token("stop"), "released before the command has ended")
	p.write("go\n")
	p.ends(3)
	p = r.hold("locks?name=stop&lease=6s&wait=0", "sh", "-c", "trap 'exit 4' TERM; echo works; while :; do sleep 0.05; done")
	p.says("works\n")
	require.NoError(r, p.Process.Signal(syscall.SIGTERM))
	p.ends(4)
	assert.Empty(r, r.holds("stop"))
}

// A signal to the whole group, as timeout and systemd send it, is for the command alone: the lock is held until the command has ended,
// however long it takes.
func (r *recipes) stopGroup() {
	p := r.hold("locks?name=group&lease=6s", "sh", "-c", "trap 'echo stops; read go; exit 3' TERM; echo works; while :; do sleep 0.05; done")
	p.says("works\n")
	require.NoError(r, syscall.Kill(-p.Process.Pid, syscall.SIGTERM))
	p.says("stops\n")
	time.Sleep(2 * time.Second)
	assert.NotZero(r, r.token("group"), "released before the command has ended")
	p.write("go\n")
	p.ends(3)
	assert.Empty(r, r.holds("group"))
}

// A signal that comes as soon as the command runs is for the command, too, which would otherwise work on without the lock.
func (r *recipes) endStarting() {
	for range 5 {
		// A builtin runs without exec, so that it is ahead of hold.sh. In it, $$ is hold.sh itself.
		r.hold("locks?name=start&wait=0", "eval", "trap 'exit 4' TERM; kill -TERM $$; while :; do sleep 0.05; done").ends(4)
		assert.Empty(r, r.holds("start"))
	}
}

func (r *recipes) killJava() {
	java := r.example("java")
	r.holder("java", 0)
	kill(java.Cmd)
	r.soon("the lock is free", func() bool { return len(r.holds("java")) == 0 })
	r.hold("locks?name=java&wait=0", "true").ends(0)
}

func (r *recipes) interruptJava() {
	source := filepath.Join(r.TempDir(), "Interrupted.java")
	require.NoError(r, os.WriteFile(source, []byte(`
public class Interrupted {
    public static void main(String[] args) throws Exception {
        try (Held held = Held.lock(args[0], java.time.Duration.ofSeconds(30))) {
            Thread.currentThread().interrupt();
        }
        System.out.println("interrupted: " + Thread.currentThread().isInterrupted());
        Thread.interrupted();
        Thread.sleep(1_000_000);
    }
}
`), 0o600))
	r.program("java", "-XX:TieredStopAtLevel=1", "-cp", r.classes, source, "interrupted").says("interrupted: true\n")
	assert.Empty(r, r.holds("interrupted"))
}

func (r *recipes) killAll() {
	p := r.hold("locks?name=all", "cat")
	r.holder("all", 0)
	require.NoError(r, syscall.Kill(-p.Process.Pid, syscall.SIGKILL))
	r.soon("the lock is free", func() bool { return len(r.holds("all")) == 0 })
}

func (r *recipes) killShell() { r.killAbove("one", "$PPID") }

func (r *recipes) killShells() {
	r.killAbove("two", "$PPID $(cd /proc; for p in $(cat $PPID/task/$PPID/children); do grep -q hold.sh $p/comm && echo $p; done)")
}

// killAbove kills processes of hold.sh, but not curl and the command, which works on under the lock.
func (r *recipes) killAbove(name, processes string) {
	p := r.hold("locks?name="+name+"&lease=4s", "sh", "-c", "sleep 0.1; kill -9 "+processes+"; echo killed; exec cat")
	p.says("killed\n")
	require.Error(r, p.Wait())
	time.Sleep(6 * time.Second) // longer than the lease
	assert.NotZero(r, r.token(name), "the lock is lost, and the command works")
	p.write("works\n")
	p.says("works\n")
	require.NoError(r, p.input.Close())
	r.eventually("the lock is free", func() bool { return len(r.holds(name)) == 0 })
	r.hold("locks?name="+name+"&wait=0", "true").ends(0)
}

func (r *recipes) endWaiting() {
	first := r.hold("locks?name=wait", "cat")
	r.holder("wait", 0)
	// With a slow rm, the signal arrives when the request has been sent, but the script has not yet read its first line.
	bin := r.TempDir()
	require.NoError(r, os.WriteFile(filepath.Join(bin, "rm"), []byte("#!/bin/sh\nsleep 0.5\nexec /bin/rm \"$@\"\n"), 0o755))
	second := r.program("env", "PATH="+bin+":"+os.Getenv("PATH"), holdScript(r), "locks?name=wait", "echo", "runs")
	r.eventually("it waits", func() bool { return len(r.holds("wait")) == 2 })
	require.NoError(r, second.Process.Signal(syscall.SIGTERM))
	second.ends(143)
	r.soon("it waits no more", func() bool { return len(r.holds("wait")) == 1 })
	require.NoError(r, first.input.Close())
	first.ends(0)
	assert.Empty(r, second.String())
}

func (r *recipes) killAgent() {
	shell := r.hold("locks?name=a&lease=6s", "cat")
	java := r.example("b")
	r.holder("a", 0)
	r.holder("b", 0)
	java.write("step\n")
	java.says("did step\n")
	kill(r.agent)
	shell.ends(76)
	java.write("more\n") // until the lease ends
	java.says("did more\n")
}

// The class for Java counts from its own question if the agent has other clocks. It acts until the time that was promised last,
// and not longer, whatever became of the agent.
func (r *recipes) clocks(t *testing.T) {
	for name, by := range map[string]*fakeAgent{
		"the same":                            {},
		"the same, of an agent that has died": {dies: true},
		"as on another machine, behind":       {shift: -3_600_000},
		"as on another machine, ahead":        {shift: 3_600_000},
		"ahead, and the lock is lost already": {shift: 3_600_000, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for end := time.Now().Add(2 * patience); time.Now().Before(end); {
				f := &fakeAgent{status: http.StatusGone, shift: by.shift, lost: by.lost, dies: by.dies}
				asked := f.letsAct(t, r.classes)
				if by.shift != 0 {
					assert.True(t, asked, "it does not ask an agent that has other clocks")
				}
				if asked == (by.shift != 0) {
					return
				}
			}
			assert.Fail(t, "it asks although the clocks are the same") // and not only because this machine is busy
		})
	}
}

// fakeLease is how long the lock of a fakeAgent is held.
const fakeLease = 4 * time.Second

// fakeAgent gives a lock, and answers its release.
type fakeAgent struct {
	status int           // the answer to a release; 0: there is none
	busy   bool          // it first answers that there are too many holds
	shift  int64         // of its clocks, in milliseconds
	lost   bool          // the lock is, when the program asks how long it holds it
	dies   bool          // when it has given the lock: the stream ends
	lease  time.Duration // 0: fakeLease

	asks, releases atomic.Int64 // the requests to know how long, and to release
	end            atomic.Int64 // when the lock is lost
}

func (f *fakeAgent) serves(t *testing.T, classes string) *recipes {
	r := &recipes{site: &site{TB: t, dir: t.TempDir()}, classes: classes}
	listener, err := net.Listen("unix", r.socket())
	require.NoError(t, err)
	mux := http.NewServeMux()
	var wait time.Duration
	var refused time.Time // the next request reads what is written before
	mux.HandleFunc("POST /v1/locks", func(w http.ResponseWriter, q *http.Request) {
		left, _ := time.ParseDuration(q.FormValue("wait"))
		if f.busy && refused.IsZero() {
			wait, refused = left, time.Now()
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"code":"too-many"}`+"\n")
			return
		}
		if f.busy {
			assert.GreaterOrEqual(t, time.Since(refused), 2*time.Second, "it asks again when the agent said")
			assert.True(t, 0 < left && left <= wait-2*time.Second, "%v are left of a wait of %v", left, wait)
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		promised := cmp.Or(f.lease, fakeLease).Milliseconds()
		now := map[string]int64{"monotonic_ms": clockMillis(unix.CLOCK_MONOTONIC) + f.shift, "unix_ms": time.Now().UnixMilli() + f.shift}
		until := map[string]int64{"monotonic_ms": now["monotonic_ms"] + promised, "unix_ms": now["unix_ms"] + promised}
		f.end.Store(bootMillis() + promised)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"+
			jsonLine(map[string]any{"event": "hello", "hold": "x", "now": now})+
			jsonLine(map[string]any{"event": "held", "names": []string{`"token":5`}, "token": 7, "until": until}))
		if f.dies {
			_ = conn.Close()
		}
	})
	mux.HandleFunc("GET /v1/holds/x", func(w http.ResponseWriter, _ *http.Request) {
		f.asks.Add(1)
		if f.lost {
			f.end.Store(bootMillis())
		}
		_, _ = io.WriteString(w, jsonLine(map[string]any{"hold": "x", "left_ms": max(f.end.Load()-bootMillis(), 0)}))
	})
	mux.HandleFunc("POST /v1/holds/x/release", func(w http.ResponseWriter, _ *http.Request) {
		if f.releases.Add(1); f.status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(f.status)
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { _ = s.Close() })
	return r
}

// letsAct lets a program in Java act for as long as it may, and reports whether that has asked how long.
func (f *fakeAgent) letsAct(t *testing.T, classes string) bool {
	java := f.serves(t, classes).example("job")
	java.says("held under token 7\n")
	if f.asks.Load() > 0 && f.shift == 0 {
		kill(java.Cmd)
		return true
	}
	if !f.lost {
		java.write("step\n")
		java.says("did step\n")
		time.Sleep(time.Duration(f.end.Load()-bootMillis()+1) * time.Millisecond)
	}
	java.write("late\n")
	java.ends(1)
	assert.Contains(t, java.String(), "Held$Lost")
	assert.NotContains(t, java.String(), "did late")
	assert.NotZero(t, f.releases.Load(), "a lost lock is released too: the agent may still keep it from others")
	return f.asks.Load() > 0
}

func jsonLine(v map[string]any) string {
	b, _ := json.Marshal(v)
	return string(b) + "\n"
}

// compileJava returns the folder of the classes of the recipe for Java.
func compileJava(t *testing.T) string {
	dir := t.TempDir()
	sources, err := filepath.Glob("../../clients/java/*.java")
	require.NoError(t, err)
	out, err := exec.Command("javac", append([]string{"-Xlint:all", "-Werror", "--release", "17", "-d", dir}, sources...)...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		require.Fail(t, "javac is missing: apt-get install default-jdk-headless (Java 17 or later)")
	}
	require.NoError(t, err, "%s", out)
	return dir
}

// program is one that a user starts.
type program struct {
	*recipes
	*exec.Cmd
	input  io.WriteCloser
	output string
}

// hold runs hold.sh.
func (r *recipes) hold(args ...string) *program {
	return r.program(append([]string{holdScript(r)}, args...)...)
}

func holdScript(r *recipes) string {
	script, err := filepath.Abs("../../clients/sh/hold.sh")
	require.NoError(r, err)
	return script
}

// example runs the example for Java.
func (r *recipes) example(name string) *program {
	// A JVM that compiles little starts sooner.
	return r.program("java", "-XX:TieredStopAtLevel=1", "-cp", r.classes, "Example", name)
}

// program starts a program in a process group of its own, which ends with the test.
func (r *recipes) program(args ...string) *program {
	p := &program{recipes: r, Cmd: exec.Command(args[0], args[1:]...)}
	in, input, err := os.Pipe() // one that Wait does not close: others may read it
	require.NoError(r, err)
	defer in.Close()
	out, err := os.CreateTemp(r.dir, "output") // a file, so that Wait does not wait for others that write
	require.NoError(r, err)
	defer out.Close()
	p.input, p.output = input, out.Name()
	p.Stdin, p.Stdout, p.Stderr = in, out, out
	p.Env = append(os.Environ(), "SPINDLE_AGENT="+r.socket())
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(r, p.Start())
	r.Cleanup(func() {
		_ = input.Close()
		_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
		_ = p.Wait()
		if r.Failed() {
			r.Logf("%v: %s", args, p)
		}
	})
	return p
}

// String returns what it has printed.
func (p *program) String() string {
	text, err := os.ReadFile(p.output)
	require.NoError(p.recipes, err)
	return string(text)
}

func (p *program) write(text string) {
	_, err := io.WriteString(p.input, text)
	require.NoError(p.recipes, err)
}

func (p *program) says(text string) {
	p.eventually(fmt.Sprintf("%v prints %q", p.Args, text), func() bool { return strings.Contains(p.String(), text) })
}

// ends waits for its exit code.
func (p *program) ends(code int) {
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	select {
	case <-ended:
		assert.Equal(p.recipes, code, p.ProcessState.ExitCode(), "%v: %s", p.Args, p)
	case <-time.After(patience):
		require.Fail(p.recipes, "it does not end", "%v", p.Args)
	}
}

func (r *recipes) eventually(what string, condition func() bool) {
	require.Eventually(r, condition, patience, 10*time.Millisecond, what)
}

// soon is before the usual lease expires.
func (r *recipes) soon(what string, condition func() bool) {
	require.Eventually(r, condition, 5*time.Second, 10*time.Millisecond, what)
}

type heldBy struct {
	Hold, State string
	Names       []string
	Token       int64
}

// holds returns the agent's holds of a lock.
func (r *recipes) holds(name string) []heldBy {
	var all struct{ Holds []heldBy }
	require.NoError(r, r.ask(http.MethodGet, "/v1/holds", &all))
	return slices.DeleteFunc(all.Holds, func(h heldBy) bool { return h.Names[0] != name })
}

// token returns the token under which a lock is held, or 0.
func (r *recipes) token(name string) int64 {
	for _, h := range r.holds(name) {
		if h.State == "held" || h.State == "stopping" {
			return h.Token
		}
	}
	return 0
}

// holder waits for a holder with a larger token.
func (r *recipes) holder(name string, after int64) (token int64) {
	r.eventually(name+" is held", func() bool { token = r.token(name); return token > after })
	return token
}

func (r *recipes) ask(method, path string, into any) error {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", r.socket())
		},
	}}
	request, err := http.NewRequestWithContext(r.Context(), method, "http://agent"+path, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		return errors.New(answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
