//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"

	"cloud.google.com/go/spanner"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/cli"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/network"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
	"github.com/spindle-lock/spindle/lock"
)

func TestMain(m *testing.M) {
	// The race detector lets each process wait for a second before it ends: those that tests start need not.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=10 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	programs["spindle"] = func() { os.Exit(cli.Main(os.Args[1:])) }
	if isTest := programs[filepath.Base(os.Args[0])] == nil; isTest {
		subprocess.Heed()
	}
	testscript.Main(m, programs)
}

// programs are the programs that tests start, by name. Files for one system add theirs.
var programs = map[string]func(){}

// patience is how long a script waits for anything.
const patience = 5 * time.Minute

// budget is how long a script may take. A process that still runs then prints its goroutines and is killed: a process that
// never ends would hide which script it belongs to.
const budget = 8 * time.Minute

// TestScripts runs the command as at a terminal. Each script has its own database with the lock table, in SPINDLE_DB, and
// besides testscript's commands those below.
func TestScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the emulator: run without -short")
	}
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setUp,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"until":    until,
			"signal":   signalProcess,
			"ended":    ended,
			"network":  setNetwork,
			"before":   before,
			"pause":    pause,
			"code":     code,
			"claim":    claim,
			"harmless": harmless,
			"member":   member,
			"waiter":   waiter,
			"ticket":   ticket,
			"leave":    leave,
			"get":      get,
			"record":   record,
			"newer":    newer,
			"dead":     dead,
			"valid":    valid,
			"complete": complete,
		},
	})
}

// complete completes the last of its words, as a shell does. It does so again if the table has not answered within the second for
// which a shell waits.
func complete(ts *testscript.TestScript, neg bool, words []string) {
	if neg {
		ts.Fatalf("unsupported: ! complete")
	}
	for end := time.Now().Add(patience); ; {
		ts.Check(ts.Exec("spindle", append([]string{"__complete"}, words...)...))
		if !strings.HasPrefix(ts.ReadFile("stdout"), ":") || time.Now().After(end) {
			return
		}
	}
}

type proxyKey struct{}

func setUp(env *testscript.Env) error {
	e, path := newDatabase(env.T().(testing.TB))
	p, err := network.NewLink(e.Addr())
	if err != nil {
		return err
	}
	env.Defer(p.Close)
	env.Values[proxyKey{}] = p
	env.Values[membersKey{}] = members{}
	env.Setenv("SPINDLE_DB", path)
	env.Setenv("SPANNER_EMULATOR_HOST", e.Addr())
	env.Setenv("EMULATOR", e.Addr())
	env.Setenv("DATABASE", path)
	env.Setenv("PROXY", p.Addr())
	unique := strings.TrimPrefix(strings.Split(path, "/")[3], "spindle-")
	env.Setenv("UNIQUE", unique)
	overtime := time.AfterFunc(budget, func() { abort("UNIQUE=" + unique) })
	env.T().(interface{ Cleanup(func()) }).Cleanup(func() { overtime.Stop() })
	env.Defer(func() {
		_ = e.DropDatabase(context.Background(), "projects/mine/instances/of-"+unique+"/databases/locks") // if the script made it
	})
	env.Setenv("SPINDLE_EMULATOR", os.Getenv("SPINDLE_EMULATOR"))
	env.Setenv("GORACE", os.Getenv("GORACE"))
	run := filepath.Join(env.WorkDir, ".run")
	env.Setenv("RUNTIME_DIRECTORY", run)
	return os.Mkdir(run, 0o700)
}

// abort ends all processes that have a variable in their environment; those in Go print their goroutines first.
func abort(variable string) {
	for _, sig := range []syscall.Signal{syscall.SIGABRT, syscall.SIGCONT, syscall.SIGKILL} {
		environments, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range environments {
			b, _ := os.ReadFile(path)
			if n, err := strconv.Atoi(strings.Split(path, "/")[2]); err == nil && slices.Contains(strings.Split(string(b), "\x00"), variable) {
				_ = syscall.Kill(n, sig)
			}
		}
		if sig == syscall.SIGCONT {
			time.Sleep(3 * time.Second) // they print
		}
	}
}

// until waits for a file to match: until REGEXP FILE.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: until REGEXP FILE")
	}
	re := regexp.MustCompile("(?m)" + args[0])
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		b, _ := os.ReadFile(ts.MkAbs(args[1]))
		if re.Match(b) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s does not say %q but %q", args[1], args[0], b)
		}
	}
}

// pid reads a process id from a file, or returns the id of a command in the background.
func pid(ts *testscript.TestScript, name string) int {
	if b, err := os.ReadFile(ts.MkAbs(name)); err == nil {
		n, err := strconv.Atoi(strings.TrimSpace(string(b)))
		ts.Check(err)
		return n
	}
	cmds := ts.BackgroundCmds()
	n, err := strconv.Atoi(name)
	if err != nil || n >= len(cmds) {
		ts.Fatalf("%s is neither a file nor the number of a command in the background", name)
	}
	return cmds[n].Process.Pid
}

// signalProcess sends a signal: signal KILL 0, signal TERM pidfile.
func signalProcess(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
		"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "USR1": syscall.SIGUSR1}
	n := pid(ts, args[1])
	ts.Check(syscall.Kill(n, signals[args[0]]))
	if args[0] == "STOP" {
		ts.Defer(func() { _ = syscall.Kill(n, syscall.SIGCONT) }) // a script that fails waits for what it started
	}
}

// ended waits for a process to end: ended pidfile. With !, it must be alive.
func ended(ts *testscript.TestScript, neg bool, args []string) {
	n := pid(ts, args[0])
	if neg {
		if !alive(n) {
			ts.Fatalf("process %d has ended", n)
		}
		return
	}
	for end := time.Now().Add(patience); alive(n); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("process %d has not ended", n)
		}
	}
}

// alive returns false for a zombie: its parent may be stopped.
func alive(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !bytes.HasPrefix(bytes.TrimSpace(out), []byte("Z"))
}

// setNetwork cuts off what connects to $PROXY, and connects it again: network off, network on.
func setNetwork(ts *testscript.TestScript, neg bool, args []string) {
	link := ts.Value(proxyKey{}).(*network.Link)
	if args[0] == "off" {
		link.BlackHole()
	} else {
		link.Mend()
	}
}

// before wants the last time in one file to be before the first in another, which it waits for; times are in nanoseconds.
func before(ts *testscript.TestScript, neg bool, args []string) {
	at := func(name string, last bool) int64 {
		lines := strings.Fields(ts.ReadFile(name))
		if len(lines) == 0 {
			ts.Fatalf("%s contains no time", name)
		}
		line := lines[0]
		if last {
			line = lines[len(lines)-1]
		}
		n, err := strconv.ParseInt(line, 10, 64)
		ts.Check(err)
		return n
	}
	until(ts, false, []string{".", args[1]})
	a, b := at(args[0], true), at(args[1], false)
	ts.Logf("%s ends %v before %s begins", args[0], time.Duration(b-a), args[1])
	if a >= b {
		ts.Fatalf("%s goes on for %v in %s", args[0], time.Duration(a-b), args[1])
	}
}

// pause lets time pass that is a matter of leases: pause 3s.
func pause(ts *testscript.TestScript, neg bool, args []string) {
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	time.Sleep(d)
}

// code runs a command that must exit with a code: code 75 spindle exec ...
func code(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var e *exec.ExitError
		if !errors.As(err, &e) {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s exits with code %d, not %d", fmt.Sprint(args[1:]), got, want)
	}
}

// claim claims a lock without a command: claim NAME ID VALUE LEASE, with the escapes of Go's strings. With the word released
// after that, it also releases the lock.
func claim(ts *testscript.TestScript, neg bool, args []string) {
	for i, arg := range args {
		var err error
		args[i], err = strconv.Unquote(`"` + arg + `"`)
		ts.Check(err)
	}
	lease, err := time.ParseDuration(args[3])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	db := client(ts, "EMULATOR")
	defer db.Close()
	c := elect.Candidate{
		Table: table.Table{Store: table.Spanner{DB: db, Table: "locktable"}}, Clock: elect.SystemClock{},
		Names: args[:1], ID: args[1], LeaseRecord: table.LeaseRecord{Lease: lease, Value: args[2]},
	}
	for {
		step := c.Try(ctx, elect.All, lease)
		if step.Term != nil {
			if len(args) > 4 && args[4] == "released" {
				ts.Check(step.Term.Release(ctx, nil))
			}
			return
		}
		ts.Check(ctx.Err())
		elect.Sleep(ctx, c.Clock, step.Pause)
	}
}

func client(ts *testscript.TestScript, host string) *spanner.Client {
	db, err := spanner.NewClientWithConfig(context.Background(), ts.Getenv("DATABASE"), spanner.ClientConfig{DisableNativeMetrics: true},
		option.WithEndpoint(ts.Getenv(host)), option.WithoutAuthentication(), option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	ts.Check(err)
	return db
}

// record writes the row that says what was done last under a lock, or deletes it: record NAME TEXT, record NAME.
func record(ts *testscript.TestScript, neg bool, args []string) {
	db := client(ts, "EMULATOR")
	defer db.Close()
	row := args[0] + "!done"
	m := spanner.Delete("locktable", spanner.Key{row})
	if len(args) > 1 {
		m = spanner.InsertOrUpdate("locktable", []string{"name", "writer"}, []any{row, args[1]})
	}
	_, err := db.Apply(context.Background(), []*spanner.Mutation{m})
	ts.Check(err)
}

// newer gives the lease row of a held lock a newer version: newer NAME.
func newer(ts *testscript.TestScript, neg bool, args []string) {
	db := client(ts, "EMULATOR")
	defer db.Close()
	row, err := db.Single().ReadRow(context.Background(), "locktable", spanner.Key{args[0]}, []string{"token"})
	ts.Check(err)
	var token time.Time
	ts.Check(row.Columns(&token))
	_, err = db.Apply(context.Background(), []*spanner.Mutation{spanner.Update("locktable", []string{"name", "writer"},
		[]any{table.LeaseKey(args[0], table.TokenAt(token)), `{"v":2,"lease":[1]}`})})
	ts.Check(err)
}

// dead writes the rows of a lock whose holder was last heard from at a time, or so long ago: dead NAME AGE, dead NAME TIME.
func dead(ts *testscript.TestScript, neg bool, args []string) {
	name := args[0]
	then, err := time.Parse(time.RFC3339, args[1])
	if age, short := time.ParseDuration(args[1]); short == nil {
		then, err = time.Now().Add(-age), nil
	}
	ts.Check(err)
	db := client(ts, "EMULATOR")
	defer db.Close()
	token, heartbeat := then.Add(-time.Hour).Truncate(time.Microsecond), then.Truncate(time.Microsecond)
	row := func(name, writer string) *spanner.Mutation {
		return spanner.Insert("locktable", []string{"name", "heartbeat", "token", "writer"}, []any{name, heartbeat, token, writer})
	}
	_, err = db.Apply(context.Background(), []*spanner.Mutation{row(name, "dead"), row(table.LeaseKey(name, table.TokenAt(token)), `{"lease":"1h"}`)})
	ts.Check(err)
}

// valid wants each line of what was printed last, or of a file, to be what the schema says of a command: valid ls stdout.
func valid(ts *testscript.TestScript, neg bool, args []string) {
	printed := ts.ReadFile(args[1])
	ts.Check(ts.Exec("spindle", "schema", args[0]))
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(ts.ReadFile("stdout")))
	ts.Check(err)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	ts.Check(c.AddResource("schema.json", document))
	schema, err := c.Compile("schema.json")
	ts.Check(err)
	lines := 0
	for line := range strings.Lines(printed) {
		object, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		ts.Check(err)
		if err := schema.Validate(object); err != nil {
			ts.Fatalf("spindle %s printed %s: %v", args[0], line, err)
		}
		lines++
	}
	if lines == 0 {
		ts.Fatalf("spindle %s printed nothing", args[0])
	}
}

type membersKey struct{}

// members has, for each member that a script has started, a function that stops it and waits for it.
type members map[string]func()

// member starts a member of a group, over $PROXY: member GROUP PARTITIONS ID LEASE.
func member(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	lease, err := time.ParseDuration(args[3])
	ts.Check(err)
	db := client(ts, "PROXY")
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	ts.Check(group.New(db, "locktable", args[0], group.Numbered(n), spindle.WithID(args[2]), spindle.WithValue("at "+args[2]), spindle.WithLease(lease),
		group.WithWork(func(ctx context.Context, _ group.Partition) error { <-ctx.Done(); return nil })).Run(ctx, done))
	end := sync.OnceFunc(func() {
		stop()
		<-done
		db.Close()
	})
	ts.Value(membersKey{}).(members)[args[2]] = end
	ts.Defer(end)
}

// waiter waits for a mutex, over $PROXY, in its own process, and then holds it: waiter NAME ID. With a number, it waits for a
// slot of a semaphore of that size: waiter NAME ID 2.
func waiter(ts *testscript.TestScript, neg bool, args []string) {
	db := client(ts, "PROXY")
	ctx, stop := context.WithCancel(context.Background())
	opts := []lock.Option{spindle.WithID(args[1]), spindle.WithLease(10 * time.Second), options.Option(func(c *options.Config) { c.Process = "process of " + args[1] })}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if len(args) == 2 {
			m := lock.New(db, "locktable", args[0], opts...)
			if m.Lock(ctx) == nil {
				<-ctx.Done()
				_ = m.Unlock(context.Background())
			}
		} else if n, err := strconv.Atoi(args[2]); err == nil {
			if p, err := lock.NewSemaphore(db, "locktable", args[0], n, opts...).Acquire(ctx); err == nil {
				<-ctx.Done()
				_ = p.Release(context.Background())
			}
		}
	}()
	end := sync.OnceFunc(func() {
		stop()
		<-done
	})
	ts.Value(membersKey{}).(members)[args[1]] = end
	ts.Defer(db.Close) // later: a waiter that has given up deletes its ticket yet
	ts.Defer(end)
}

// ticket writes the ticket of a process that is gone: ticket NAME ID AGE.
func ticket(ts *testscript.TestScript, neg bool, args []string) {
	age, err := time.ParseDuration(args[2])
	ts.Check(err)
	db := client(ts, "EMULATOR")
	defer db.Close()
	then := time.Now().Add(-age)
	row := table.Ticket{Queue: args[0], Time: table.TokenAt(then), Nonce: "of-" + args[1]}.Row()
	_, err = db.Apply(context.Background(), []*spanner.Mutation{spanner.Insert("locktable", []string{"name", "heartbeat", "writer"},
		[]any{row, then, `{"id":"` + args[1] + `"}`})})
	ts.Check(err)
}

// leave stops a member, or a waiter: leave ID.
func leave(ts *testscript.TestScript, neg bool, args []string) {
	ts.Value(membersKey{}).(members)[args[0]]()
}

// harmless wants a file, or what was printed last, to have nothing that acts on a terminal.
func harmless(ts *testscript.TestScript, neg bool, args []string) {
	text := ts.ReadFile(args[0])
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsGraphic(r) }); i >= 0 {
		ts.Fatalf("%s has %.20q at %d", args[0], text[i:], i)
	}
}

// get asks the server whose address a file has, and leaves the answer in the file body: get 200 FILE /metrics.
func get(ts *testscript.TestScript, neg bool, args []string) {
	base := regexp.MustCompile(`http://[^\s/]+`).FindString(ts.ReadFile(args[1]))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+args[2], nil)
	ts.Check(err)
	if len(args) > 3 {
		request.Host = args[3]
	}
	if request.Host == "OWN" {
		request.Host, err = os.Hostname()
		ts.Check(err)
	}
	response, err := http.DefaultClient.Do(request)
	ts.Check(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("body"), body, 0o644))
	if fmt.Sprint(response.StatusCode) != args[0] {
		ts.Fatalf("%s%s answers %s: %s", base, args[2], response.Status, body)
	}
}
