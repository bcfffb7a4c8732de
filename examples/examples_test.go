//go:build unix

package examples_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/spindletest"
)

// patience is how long a program may print nothing, including the time to compile it.
const patience = 5 * time.Minute

// program is a running example.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // closed when the program has exited
	said  []string
}

// goRun starts an example as its documentation describes, in its own process group. Standard output and standard error
// go to the same pipe.
func goRun(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, lines: make(chan string, 1000)}
	p.cmd = exec.Command("go", append([]string{"run"}, args...)...)
	p.cmd.Dir = ".."
	p.cmd.Env = append(append(os.Environ(), "SPANNER_EMULATOR_HOST="), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.cmd.Stderr = p.cmd.Stdout
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		for range p.lines {
		}
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("%v said:\n%s", args, strings.Join(p.said, "\n"))
		}
	})
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	return p
}

// until waits until the program prints a line that matches the pattern. It returns the text that matches the last
// group.
func (p *program) until(pattern string) string {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			require.True(p.t, ok, "the program ended without printing %q", pattern)
			p.said = append(p.said, line)
			if m := regexp.MustCompile(pattern).FindStringSubmatch(line); m != nil {
				return m[len(m)-1]
			}
		case <-timeout:
			require.FailNow(p.t, "the program did not print "+pattern)
		}
	}
}

// next is until for what the program prints from now on.
func (p *program) next(pattern string) string {
	p.t.Helper()
	for {
		select {
		case line, ok := <-p.lines:
			require.True(p.t, ok, "the program ended without printing %q", pattern)
			p.said = append(p.said, line)
		default:
			return p.until(pattern)
		}
	}
}

// end waits until the program exits, and returns its entire output.
func (p *program) end() (string, error) {
	p.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return strings.Join(p.said, "\n"), p.cmd.Wait()
			}
			p.said = append(p.said, line)
		case <-timeout:
			require.FailNow(p.t, "the program did not exit")
		}
	}
}

// interrupt interrupts the program as Ctrl+C does in a terminal.
func (p *program) interrupt() {
	p.t.Helper()
	require.NoError(p.t, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT))
}

func needEmulator(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	t.Parallel()
}

// requireTidy requires that no line is too long for a terminal or has colours, and that all processes whose ids appear
// in the output have exited.
func requireTidy(t *testing.T, out string) {
	t.Helper()
	assert.NotContains(t, out, "\x1b")
	assert.NotContains(t, out, "goroutine ")
	for line := range strings.Lines(out) {
		assert.LessOrEqual(t, len(strings.TrimRight(line, "\n")), 80, line)
	}
	for _, m := range regexp.MustCompile(`(?:process|kill -\w+) (\d+)`).FindAllStringSubmatch(out, -1) {
		requireEnds(t, m[1])
	}
	if m := regexp.MustCompile(`ready at (\S+),`).FindStringSubmatch(out); m != nil {
		require.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", m[1])
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		}, 3*time.Minute, 10*time.Millisecond, "the emulator should have exited")
	}
}

func requireEnds(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return errors.Is(syscall.Kill(n, 0), syscall.ESRCH) },
		3*time.Minute, 10*time.Millisecond, "process %s should have exited", pid)
}

func number(t *testing.T, text, pattern string) float64 {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, m, "no %q in:\n%s", pattern, text)
	n, err := strconv.ParseFloat(m[1], 64)
	require.NoError(t, err)
	return n
}

func TestSimpleShowsACrashAPauseAndAStop(t *testing.T) {
	needEmulator(t)
	out, err := goRun(t, nil, "./examples/simple").end()
	require.NoError(t, err)
	requireTidy(t, out)

	assert.Len(t, regexp.MustCompile(`LEADS, token \d{16}`).FindAllString(out, -1), 4, out)
	assert.Less(t, number(t, out, `Crash .*\((\S+) leases\)`), 2.0)
	silence := number(t, out, `Crash .* (\S+) leases after`)
	assert.GreaterOrEqual(t, silence, 1.0)
	assert.Less(t, silence, 2.0)
	assert.Less(t, number(t, out, `Stop .*\((\S+) leases\)`), 1.0, "it does not wait for the lease")
	assert.Less(t, number(t, out, ` (\S+)s .*the end`), 60.0)
	assert.Regexp(t, `Tokens  \d{16} < \d{16} < \d{16} <\n +\d{16}`, out)
	assert.Regexp(t, `(?s)kill -STOP.*LEADS.*kill -CONT.*but its write is REJECTED`, out)
}

func TestSimpleCompetesOnADatabase(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t)
	simple := func(args ...string) *program {
		return goRun(t, db.Env(), append([]string{"./examples/simple", "-db", db.Path, "-lease", "3s"}, args...)...)
	}
	out, err := simple("-table", "mine").end()
	require.Error(t, err)
	assert.Contains(t, out, "the table is missing")
	assert.Contains(t, out, "run this program with -create")
	assert.NotContains(t, out, "goroutine ")

	first := simple("-table", "mine", "-create", "-id", "first")
	token := first.until(`elected .*token=(\d{16})`)
	second := simple("-table", "mine", "-create", "-id", "second")
	assert.Equal(t, token, second.until(`leader seen .*leader=first .*token=(\d{16})`))
	first.interrupt()
	out, _ = first.end() // go run turns every interrupt into an error
	assert.Contains(t, out, "released")
	assert.Greater(t, second.until(`elected .*token=(\d{16})`), token)
	second.interrupt()
	out, _ = second.end()
	assert.Contains(t, out, "released")
}

func TestQuickstartLeadsAndHandsOver(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t)
	start := func() *program { return goRun(t, append(db.Env(), "SPINDLE_DB="+db.Path), "./examples/quickstart") }
	first := start()
	token := first.until(`leading under token (\d{16})$`)
	second := start()
	first.interrupt()
	out, _ := first.end()
	assert.Contains(t, out, "released")
	assert.Greater(t, second.until(`leading under token (\d{16})$`), token)
	before := len(second.said) // a busy emulator may delay a heartbeat until a warning
	second.interrupt()
	_, _ = second.end()
	assert.NotContains(t, strings.Join(second.said[before:], "\n"), "WARN")
}

// Every replica knows the leader. A leader that is stopped continues to lead and to serve its pages until the other
// replicas know that it is leaving.
func TestSchedulerRedirectsAndHandsOver(t *testing.T) {
	needEmulator(t)
	db := spindletest.New(t)
	start := func() (p *program, url string) {
		p = goRun(t, append(db.Env(), "SPINDLE_DB="+db.Path), "./examples/scheduler", "-listen", "localhost:0")
		return p, p.until(`serving at (\S+)$`)
	}
	const elected, ran = `elected .*token=(\d{16})`, `ran the job for (\S+)$`
	first, firstURL := start()
	token := first.until(elected)
	second, secondURL := start()
	second.until(`leader seen .*token=` + token)
	_, leader := get(t, secondURL+"/leader")
	assert.Equal(t, firstURL+" "+token+"\n", leader)

	assert.Equal(t, []int{http.StatusOK, http.StatusOK}, probe(t, firstURL), "the leader is live and ready")
	assert.Equal(t, []int{http.StatusOK, http.StatusOK}, probe(t, secondURL), "so is its follower, which redirects to it")
	assert.Equal(t, http.StatusOK, code(t, firstURL+"/readyz"))
	assert.Equal(t, http.StatusServiceUnavailable, code(t, secondURL+"/readyz"), "only the leader leads")

	old := time.Now().Add(-2 * time.Hour)
	_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Insert("runs", []string{"second", "token"}, []any{old, 1})})
	require.NoError(t, err)
	job := first.next(ran)
	require.Eventually(t, func() bool {
		_, err := db.Client.Single().ReadRow(t.Context(), "runs", spanner.Key{old}, []string{"token"})
		return spanner.ErrCode(err) == codes.NotFound
	}, time.Minute, 100*time.Millisecond, "the worker of the holder deletes old runs, and only these")
	from, jobs := get(t, secondURL+"/jobs")
	assert.Equal(t, firstURL+"/jobs", from)
	assert.Contains(t, jobs, job+" under token "+token)

	require.NoError(t, syscall.Kill(-first.cmd.Process.Pid, syscall.SIGTERM))
	next := second.until(elected)
	assert.Greater(t, next, token)
	assert.Equal(t, []int{http.StatusOK, http.StatusOK}, probe(t, secondURL), "the next leader")
	out, _ := first.end() // go run turns every signal into an error
	assert.Regexp(t, `(?s)leaving .*released `, out)
	job = second.next(ran)
	from, jobs = get(t, secondURL+"/jobs")
	assert.Equal(t, secondURL+"/jobs", from)
	assert.Contains(t, jobs, job+" under token "+next)
	assert.Contains(t, jobs, " under token "+token)
	before := len(second.said) // a busy emulator may delay a heartbeat until a warning
	second.interrupt()
	_, _ = second.end()
	assert.NotContains(t, strings.Join(second.said[before:], "\n"), "WARN")
}

// get returns a page's body, and its URL after redirects.
func get(t *testing.T, url string) (from, body string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, resp.StatusCode, "%s", text)
	return resp.Request.URL.String(), string(text)
}

// probe returns the status codes of the manifest's readiness and liveness probes.
func probe(t *testing.T, url string) (codes []int) {
	t.Helper()
	manifest, err := os.ReadFile("../deploy/kubernetes/leader.yaml")
	require.NoError(t, err)
	for _, path := range regexp.MustCompile(`(?s)readinessProbe:.*?path: (/\w+).*livenessProbe:.*?path: (/\w+)`).FindStringSubmatch(string(manifest))[1:] {
		codes = append(codes, code(t, url+path))
	}
	return codes
}

func code(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	resp.Body.Close()
	return resp.StatusCode
}

func TestSimpleSaysHowToGetAnEmulator(t *testing.T) {
	needEmulator(t)
	out, err := goRun(t, []string{"SPINDLE_EMULATOR=/no/such/emulator"}, "./examples/simple").end()
	require.Error(t, err)
	assert.Contains(t, out, "set it to the path of emulator_main")
	assert.Contains(t, out, "exit status 1")
	assert.NotContains(t, out, "goroutine ")
}

func TestPartitionsAreConsumedOnceWhateverHappens(t *testing.T) {
	needEmulator(t)
	out, err := goRun(t, nil, "./examples/partitions").end()
	require.NoError(t, err)
	requireTidy(t, out)
	items := number(t, out, `Items +(\d+) were appended`)
	assert.Greater(t, items, 1000.0)
	assert.Equal(t, items, number(t, out, `the table has (\d+) results, one for each item`))
	assert.Positive(t, number(t, out, `Fence .* refused.*: (\d+)`))
	assert.Regexp(t, ` [ACD]*D[ACD]*  \d+\n`, out, "a picture in which the newcomer and two other processes share all partitions")
}

func TestNothingIsLeftOfAnInterruptedExample(t *testing.T) {
	needEmulator(t)
	p := goRun(t, nil, "./examples/simple")
	p.until(`LEADS`)
	p.interrupt()
	out, err := p.end()
	require.Error(t, err)
	assert.Contains(t, out, "Nothing is left running")
	requireTidy(t, out)
}

// A paused child can't notice that its parent has exited.
func TestNothingIsLeftOfAKilledExample(t *testing.T) {
	needEmulator(t)
	p := goRun(t, nil, "./examples/simple")
	child := p.until(`process (\d+)`)
	out, err := exec.Command("ps", "-o", "ppid=", "-p", child).Output()
	require.NoError(t, err)
	p.until(`kill -STOP (\d+)`)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	said, err := p.end()
	require.Error(t, err)
	requireTidy(t, said)
}
