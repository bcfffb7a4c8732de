// Package run implements exec and guard, the two commands that run something while they hold a lock. Exec runs a
// program. Guard keeps a service active.
//
//   - lockcommand.go: the flags, messages and environment that both commands share
//   - events.go, machine.go: the events, and the state machine, which decides what both do after each of them
//   - runner.go, holding.go: the loop, which does what the machine decides, and the terms
//   - programs.go, deadlines.go, jobcontrol.go, signals_*.go: exec's program, when it must end, the terminal, and signals
//   - service.go: guard's service
//   - reports.go, hooks.go: reports to hooks, probes and systemd
//   - exec.go, once.go: the exec command, and its flags --every and --once
//   - guard.go: the guard command
//   - lockfile.go: the lock file, which ensures that only one guard on a machine manages a service
//   - beside.go: the auxiliary processes of exec and guard, such as their watchdogs
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/health"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// A lockCommand is a command that competes for a lock.
type lockCommand struct {
	*connect.Database
	name  string
	id    string
	value string
	quiet bool

	handover bool
	priority int

	own   *pflag.FlagSet // the flags of the command
	token table.Token    // of the current term, or 0
	key   string         // of the work to do once, or ""

	wait    time.Duration // how long to wait for the lock, or 0 for no limit
	trouble error         // why the last poll failed, or nil
}

func (x *lockCommand) flags(f *pflag.FlagSet) {
	x.own = f
	f.StringVar(&x.name, "name", "", "the lock's `name`")
	f.StringVar(&x.id, "id", "", "the `id` that other processes see as the holder (default: host, process id and a UUID)")
	f.StringVar(&x.value, "value", "", "a `text` that other processes can read while this process holds the lock, such as its address")
	f.BoolVar(&x.handover, "handover", false, "announce in advance that this process will give up the lock, so that another one takes over immediately; also accept requests from spindle handover")
	f.IntVar(&x.priority, "priority", table.MaxRank, "the priority, from 0 to 9; a holder with --handover gives up the lock to a candidate with a higher priority")
	f.BoolVarP(&x.quiet, "quiet", "q", false, "report only problems")
}

// open opens the database, and returns it with the candidate that the flags describe.
func (x *lockCommand) open(kind table.LockKind, lease time.Duration) (*connect.Connection, elect.Candidate, error) {
	db, err := x.Open(spindle.ClientOptions(lease)...)
	if err != nil {
		return nil, elect.Candidate{}, err
	}
	c, err := x.newCandidate(db, lease)
	if err != nil {
		db.Close()
	}
	c.LeaseRecord.Kind = kind
	return db, c, err
}

// newCandidate returns the candidate that the flags describe. It checks the flags by the library's rules.
func (x *lockCommand) newCandidate(db *connect.Connection, lease time.Duration) (elect.Candidate, error) {
	opts := []spindle.Option{spindle.WithLease(lease), spindle.WithValue(x.value), spindle.WithPriority(x.priority)}
	if x.handover {
		opts = append(opts, spindle.WithHandover())
	}
	if x.id != "" {
		opts = append(opts, spindle.WithID(x.id))
	}
	c := options.New(opts)
	if x.name == "" {
		return elect.Candidate{}, exit.Misuse("no lock given: set --name or SPINDLE_NAME")
	}
	c.Check(db.Client(), x.Table, x.name)
	if err := c.Err(); err != nil {
		return elect.Candidate{}, exit.Misuse("%s", optionCall.ReplaceAllStringFunc(err.Error(), asFlag))
	}
	x.id = c.ID
	return c.Candidate(db.Locks(), x.name), nil
}

// optionCall matches an option in the library's errors, such as WithLease(10ms).
var optionCall = regexp.MustCompile(`With(Lease|ID|Value|Priority)\(([^)]*)\)`)

func asFlag(call string) string {
	given := optionCall.FindStringSubmatch(call)
	return "--" + strings.ToLower(given[1]) + " " + given[2]
}

// verify checks the table. It returns an error only for problems that waiting can't fix. Other errors are only logged,
// because a database that is down now may come back. verify also makes all later messages include the time.
func (x *lockCommand) verify(ctx context.Context, db *spanner.Client) error {
	terminal.Stderr.Time()
	limited, cancel := context.WithTimeout(ctx, x.readTimeout())
	defer cancel()
	err := ddl.Verify(limited, db, x.Table)
	if ctx.Err() != nil {
		return nil
	}
	x.trouble = err
	var schema *ddl.SchemaError
	if err != nil && (errors.As(err, &schema) || table.Refused(err)) {
		return x.Explain(err)
	}
	if err != nil {
		x.complain("can't verify the table yet, will try again: %v", x.Explain(err))
	}
	return nil
}

// readTimeout returns how long the database may take to answer.
func (x *lockCommand) readTimeout() time.Duration {
	if x.wait > 0 {
		return min(x.Timeout, x.wait)
	}
	return x.Timeout
}

// These variables describe the lock to the program that runs under it. No flag is ever set from them. Otherwise, if the
// program ran a spindle command, that command would use its parent's lock by mistake.
const (
	lockVariable  = "SPINDLE_LOCK"
	tokenVariable = "SPINDLE_TOKEN"
	keyVariable   = "SPINDLE_KEY"

	reasonVariable = "SPINDLE_REASON" // only for hooks
)

// environment returns this process's environment, changed for a program that runs under the lock. The lock's name,
// table and database are added, and also the token unless it is 0. Variables that set this command's own flags are
// removed.
func (x *lockCommand) environment(token table.Token) []string {
	if x.own == nil {
		return os.Environ() // in a watchdog, whose parent has already removed the variables
	}
	taken := map[string]bool{lockVariable: true, tokenVariable: true, keyVariable: true, reasonVariable: true, "SPINDLE_DB": true, "SPINDLE_TABLE": true}
	for _, name := range health.Variables {
		taken[name] = true
	}
	x.own.VisitAll(func(f *pflag.Flag) {
		if x.FlagSet.Lookup(f.Name) == nil && flags.HasVariable(f) {
			taken[flags.Variable(f)] = true
		}
	})
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return taken[name]
	})
	env = append(env, "SPINDLE_DB="+x.Path, "SPINDLE_TABLE="+x.Table, lockVariable+"="+x.name)
	if token != 0 {
		env = append(env, tokenVariable+"="+token.String())
	}
	if x.key != "" {
		env = append(env, keyVariable+"="+x.key)
	}
	return env
}

// within reports whether this command itself runs under the term that step has seen.
func (x *lockCommand) within(step elect.Step) bool {
	return os.Getenv(lockVariable) == x.name && slices.ContainsFunc(step.Seen, func(s elect.LockView) bool {
		return s.Confirmed() && s.FreeIn > 0 && s.Token.String() == os.Getenv(tokenVariable)
	})
}

// complain logs a problem with the lock.
func (c *lockCommand) complain(format string, args ...any) {
	terminal.Stderr.Log(slog.LevelWarn, fmt.Sprintf(format, args...), c.about()...)
}

// say logs progress, unless --quiet is set.
func (c *lockCommand) say(format string, args ...any) {
	if !c.quiet {
		terminal.Stderr.Log(slog.LevelInfo, fmt.Sprintf(format, args...), c.about()...)
	}
}

// relieve logs the end of a problem that complain has logged, even with --quiet.
func (c *lockCommand) relieve(format string, args ...any) {
	terminal.Stderr.Log(slog.LevelInfo, fmt.Sprintf(format, args...), c.about()...)
}

// about returns the lock's attributes, under the keys that the library's log uses.
func (c *lockCommand) about() []slog.Attr {
	about := []slog.Attr{slog.String("lock", c.name), slog.String("id", c.id)}
	if c.token != 0 {
		about = append(about, slog.Int64("token", int64(c.token)))
	}
	if c.key != "" {
		about = append(about, slog.String("key", c.key))
	}
	return about
}
