package run

import (
	"cmp"
	"context"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/wait"
)

// databaseAnswers starts a database that gives the same answer to each request, or none if the answer is nil.
func databaseAnswers(t *testing.T, answer error) {
	databaseServes(t, func(_ any, s grpc.ServerStream) error {
		if answer == nil {
			<-s.Context().Done()
		}
		return answer
	})
}

func databaseServes(t *testing.T, handler grpc.StreamHandler) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(handler))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	t.Setenv("SPANNER_EMULATOR_HOST", l.Addr().String())
}

// answering connects a command's flags to such a database.
func answering(t *testing.T, answer error, args ...string) *reports {
	t.Helper()
	databaseAnswers(t, answer)
	r := &reports{lockCommand: lockCommand{Database: &database.Database{}}}
	own, shared := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	r.Database.Flags(shared)
	r.flags(own, "")
	own.DurationVar(&r.wait, "wait", 0, "")
	own.AddFlagSet(shared)
	require.NoError(t, own.Parse(append([]string{"--db", "projects/p/instances/i/databases/d", "--name", "job"}, args...)))
	return r
}

// Before a command competes, it ends with an error that waiting can't mend, such as a permission that is missing. It waits for the
// answer no longer than its flags allow, and competes then, because the database may come back. A signal ends it without a word. From
// then on, each message says when it was written.
func TestACommandCompetesUnlessItsDatabaseRefusesIt(t *testing.T) {
	refused := status.Error(codes.PermissionDenied, "no")
	for name, r := range map[string]struct {
		answer  error
		args    []string
		stopped bool
		ends    bool
		told    int
	}{
		"it is refused":         {answer: refused, args: []string{"--timeout", "1h"}, ends: true},
		"it is refused a wait":  {answer: refused, args: []string{"--timeout", "1h", "--wait", "1h"}, ends: true},
		"no answer":             {args: []string{"--timeout", "50ms"}, told: 1},
		"no answer, long wait":  {args: []string{"--timeout", "50ms", "--wait", "1h"}, told: 1},
		"no answer, short wait": {args: []string{"--timeout", "1h", "--wait", "50ms"}, told: 1},
		"a signal":              {args: []string{"--timeout", "1h"}, stopped: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := answering(t, r.answer, r.args...)
			db, err := c.open(table.Exec, lease)
			require.NoError(t, err)
			defer db.Close()
			ctx, stop := context.WithTimeout(t.Context(), 15*time.Second) // the client itself gives up later
			defer stop()
			if r.stopped {
				time.AfterFunc(50*time.Millisecond, stop)
			}
			said := commandtest.Complaints(func() {
				err = c.verify(ctx, db.Client())
				_ = terminal.Stderr.Format.Set("text")
				c.complain("later")
			})
			assert.Regexp(t, `^\d{4}-\d\d-\d\d.*later$`, said[len(said)-1])
			said = said[:len(said)-1]
			assert.Equal(t, r.ends, err != nil, "%v", err)
			assert.Equal(t, r.ends || r.told > 0, c.trouble != nil, "%v", c.trouble)
			if assert.Len(t, said, r.told) && r.told > 0 {
				assert.Contains(t, said[0], "can't verify the table; continuing without this check")
			}
		})
	}
}

// An account may be allowed to use the table, and not to read its schema. Doctor calls that account sufficient.
func TestACommandCompetesWithAnAccountThatMayNotReadTheSchema(t *testing.T) {
	c := answering(t, nil, "--timeout", "1h")
	databaseServes(t, func(_ any, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		var request emptypb.Empty
		if err := s.RecvMsg(&request); err != nil {
			return err
		}
		switch path.Base(method) {
		case "CreateSession":
			return s.SendMsg(&spannerpb.Session{Name: c.Path + "/sessions/s", Multiplexed: true})
		case "StreamingRead":
			field := &spannerpb.StructType_Field{Name: "name", Type: &spannerpb.Type{Code: spannerpb.TypeCode_STRING}}
			return s.SendMsg(&spannerpb.PartialResultSet{Last: true, Metadata: &spannerpb.ResultSetMetadata{
				RowType:     &spannerpb.StructType{Fields: []*spannerpb.StructType_Field{field}},
				Transaction: &spannerpb.Transaction{ReadTimestamp: timestamppb.Now()},
			}})
		}
		return status.Error(codes.PermissionDenied, "no")
	})
	db, err := c.open(table.Exec, lease)
	require.NoError(t, err)
	defer db.Close()
	said := commandtest.Complaints(func() { err = c.verify(t.Context(), db.Client()) })
	assert.NoError(t, err)
	if assert.Len(t, said, 1) {
		assert.Contains(t, said[0], "can't verify the table; continuing without this check")
	}
}

// An exec with work to do once reads the last completed key before it competes, for no longer than its flags allow. The database may come
// back, and exec competes then.
func TestTheFirstLookAtTheLastKeyTakesNoLongerThanTheFlagsAllow(t *testing.T) {
	for _, line := range []string{"--timeout 50ms", "--timeout 50ms --wait 1h", "--timeout 1h --wait 50ms"} {
		c := answering(t, nil, strings.Fields(line)...)
		db, err := c.open(table.Exec, time.Hour)
		require.NoError(t, err)
		defer db.Close()
		x := &execution{reports: reports{lockCommand: c.lockCommand, waits: c.waits}, lease: time.Hour, once: once{schedule: table.Named("1")}}
		ctx, stop := context.WithTimeout(t.Context(), 8*time.Second) // an attempt may take ten seconds
		defer stop()
		assert.NoError(t, x.glance(ctx), line)
		assert.NoError(t, ctx.Err(), line)
	}
}

// What others see of a holder is what its flags say, for exec and guard alike, and its log and its watchdog name it as others see it.
func TestOthersSeeWhatTheFlagsOfAHolderSay(t *testing.T) {
	for args, want := range map[string]table.LeaseRecord{
		"":           {},
		"--id me":    {ID: "me"},
		"--value at": {Value: "at"}, "--handover": {AcceptsHandover: true}, "--priority 9": {}, "--priority 2": {Rank: 7},
		"--id me --value at --handover --priority 0": {ID: "me", Value: "at", AcceptsHandover: true, Rank: 9},
	} {
		for _, kind := range []table.LockKind{table.Exec, table.Guard} {
			c := answering(t, status.Error(codes.Unavailable, ""), strings.Fields(args)...)
			db, err := c.open(kind, lease)
			require.NoError(t, err)
			db.Close()
			assert.NotEmpty(t, c.id)
			want.Lease, want.Kind, want.ID = lease, kind, cmp.Or(want.ID, c.id)
			assert.Equal(t, want, c.candidate.LeaseRecord, args)
			assert.Equal(t, want.ID, c.candidate.ID, args)
			assert.Equal(t, want.ID, c.id, args)
			want.ID = ""
		}
	}
}

// What runs under a lock is told of this lock alone: not of the lock under which the command itself runs, nor how to speak to systemd
// in its place. It gets no flags of the command, but those that say where the database is.
func TestWhatRunsUnderALockIsToldOfThisLockAlone(t *testing.T) {
	const others = "NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID SPINDLE_DB SPINDLE_TABLE SPINDLE_LOCK SPINDLE_TOKEN SPINDLE_KEY SPINDLE_SLOT SPINDLE_REASON SPINDLE_HOOK"
	const flags = "SPINDLE_NAME SPINDLE_ID SPINDLE_VALUE SPINDLE_HANDOVER SPINDLE_PRIORITY SPINDLE_ON_LOST SPINDLE_HOOK_TIMEOUT SPINDLE_HEALTH_LISTEN"
	const kept = "SPINDLE_TIMEOUT SPINDLE_LOG_FORMAT SPINDLE_OTHER SPINDLE"
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "SPINDLE") {
			t.Setenv(name, value) // restores it
			require.NoError(t, os.Unsetenv(name))
		}
	}
	for _, name := range strings.Fields(others + " " + flags + " " + kept) {
		t.Setenv(name, "outer")
	}
	c := answering(t, nil)
	for _, watchdog := range []bool{false, true} {
		if watchdog {
			c.own = nil
		}
		for _, token := range []table.Token{0, 7} {
			for _, key := range []string{"", "k"} {
				for slot, number := range map[string]string{"": "", wait.Slot("job", 0): "0", wait.Slot("job", 12): "12"} {
					c.todo.Key, c.slot = key, slot
					want := []string{"SPINDLE_DB=" + c.Path, "SPINDLE_TABLE=locktable", "SPINDLE_LOCK=" + cmp.Or(slot, "job")}
					for _, name := range strings.Fields(kept) {
						want = append(want, name+"=outer")
					}
					if token != 0 {
						want = append(want, "SPINDLE_TOKEN="+token.String())
					}
					if key != "" {
						want = append(want, "SPINDLE_KEY=k")
					}
					if slot != "" {
						want = append(want, "SPINDLE_SLOT="+number)
					}
					got := slices.DeleteFunc(c.environment(token), func(entry string) bool {
						name, _, _ := strings.Cut(entry, "=")
						return watchdog && slices.Contains(strings.Fields(flags), name) || !strings.HasPrefix(entry, "SPINDLE") && !slices.Contains(strings.Fields(others), name)
					})
					assert.ElementsMatch(t, want, got)
				}
			}
		}
	}
	assert.Contains(t, c.environment(0), "PATH="+os.Getenv("PATH"))
}

// A command waits for itself if the only lock that it can acquire is the one under which it runs, and only as long as that is held.
func TestACommandRecognizesTheLockUnderWhichItRuns(t *testing.T) {
	c := &lockCommand{name: "job"}
	t.Setenv(lockVariable, "job")
	t.Setenv(tokenVariable, table.Token(7).String())
	view := func(change func(*elect.LockView)) elect.LockView {
		v := elect.LockView{Observation: table.Observation{Name: "job", Exists: true, Heartbeat: commandtest.At(101), Token: 7, Writer: "a"}, FreeIn: time.Second}
		change(&v)
		return v
	}
	own := view(func(*elect.LockView) {})
	assert.True(t, c.within([]elect.LockView{own}))
	assert.False(t, c.within(nil))
	assert.False(t, c.within([]elect.LockView{own, own}), "another slot may be had")
	for name, change := range map[string]func(*elect.LockView){
		"another lock":     func(v *elect.LockView) { v.Name = "other" },
		"a later term":     func(v *elect.LockView) { v.Token = 8 },
		"it is released":   func(v *elect.LockView) { v.Heartbeat = time.Time{} },
		"it has expired":   func(v *elect.LockView) { v.FreeIn = 0 },
		"it expired early": func(v *elect.LockView) { v.FreeIn = -time.Second },
	} {
		assert.False(t, c.within([]elect.LockView{view(change)}), name)
	}
}
