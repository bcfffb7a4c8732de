// Package run implements exec and guard, the two commands that run something while they hold a lock. Exec runs a
// program. Guard keeps a service active.
//
//   - lockcommand.go: the flags, messages and environment that both commands share
//   - events.go, machine.go: the events, and the state machine, which decides what the commands do after each event
//   - runner.go, holding.go: the loop, which does what the machine decides, and the terms
//   - waiting.go: how a command waits for a lock or a slot
//   - programs.go, deadlines.go, jobcontrol.go, signals_*.go: exec's program, when it must end, the terminal, and signals
//   - service.go: guard's service
//   - checks.go: health checks, and the limits that exec sets for its program
//   - reports.go, hooks.go: reports to hooks, probes and systemd
//   - exec.go, once.go: the exec command, and its flags --every, --cron and --once
//   - guard.go: the guard command
//   - lockfile.go: the lock file, which ensures that only one guard on a machine manages a service
//   - beside.go: what the watchdogs of exec and guard do
package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/health"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/wait"
)

// A lockCommand is a command that competes for a lock.
type lockCommand struct {
	*database.Database
	name  string
	id    string
	value string
	quiet bool

	handover bool
	priority int

	own *pflag.FlagSet // the flags of the command
	works

	wait    time.Duration // how long to wait for the lock, or 0 for no limit
	trouble error         // why the last poll failed, or nil
}

// works contains the token, the slot and the key that the program works under.
type works struct {
	token table.Token // of the current term, or 0
	slot  string      // the slot that is held or was held last, or ""
	todo  table.Due   // the work to do once; its Key is "" if there is none
}

func (x *lockCommand) flags(f *pflag.FlagSet) {
	x.own = f
	f.StringVar(&x.name, "name", "", "the lock's `name`")
	f.StringVar(&x.id, "id", "", "the `id` that other processes see as the holder (default: host, process id and a UUID)")
	f.StringVar(&x.value, "value", "", "`text`, such as an address, that other processes can read while this process holds the lock")
	f.BoolVar(&x.handover, "handover", false, "announce in advance that this process will give up the lock, so that another one takes over immediately; also accept requests from spindle handover and from candidates with a higher priority")
	f.IntVar(&x.priority, "priority", table.MaxRank, "the priority, from 0 to 9: a candidate with a higher one goes first, and a holder with --handover gives up the lock to it")
	f.BoolVarP(&x.quiet, "quiet", "q", false, "report only problems")
}

// configOn returns the settings that the flags describe. It checks the flags against the library's rules.
func (x *lockCommand) configOn(db *database.Connection, lease time.Duration, notified options.Option) (options.Config, error) {
	opts := []spindle.Option{notified, spindle.WithLease(lease), spindle.WithValue(x.value), spindle.WithPriority(x.priority)}
	if x.handover {
		opts = append(opts, spindle.WithHandover())
	}
	if x.id != "" {
		opts = append(opts, spindle.WithID(x.id))
	}
	c := options.New(opts)
	if x.name == "" {
		return c, x.nameless()
	}
	c.Check(db.Client(), x.Table, x.name)
	if err := c.Err(); err != nil {
		return c, terminal.Misuse("%s", optionCall.ReplaceAllStringFunc(err.Error(), asFlag))
	}
	x.id, c.Store = c.ID, db.Locks().Store
	return c, nil
}

// nameless returns the error for a missing name. The error also points out a --name among the program's arguments.
func (x *lockCommand) nameless() error {
	for i, arg := range x.own.Args() {
		if name, _, _ := strings.Cut(arg, "="); i > 0 && name == "--name" {
			return terminal.Misuse("no lock given: %q was taken for the program, so --name after it is the program's own; put spindle's flags before the program, and give --notify an address as --notify=ADDRESS", x.own.Arg(0))
		}
	}
	return terminal.Misuse("no lock given: set --name or SPINDLE_NAME")
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
	x.trouble = x.Explain(err)
	var schema *ddl.SchemaError
	if errors.As(err, &schema) || table.Refused(err) && !x.readable(limited, db) {
		return x.trouble
	}
	if err != nil {
		x.complain("can't verify the table; continuing without this check: %v", x.trouble)
	}
	return nil
}

// readable reports whether the lock can be read. Some accounts may read and write rows, but may not read the schema.
func (x *lockCommand) readable(ctx context.Context, db *spanner.Client) bool {
	_, err := table.Table{Store: table.Spanner{DB: db, Table: x.Table}}.Observe(ctx, x.name)
	return err == nil
}

// readTimeout returns how long the database may take to answer.
func (x *lockCommand) readTimeout() time.Duration {
	if x.wait > 0 {
		return min(x.Timeout, x.wait)
	}
	return x.Timeout
}

// These variables describe the lock to the program that runs under it. They do not set flags. Otherwise, a spindle
// command that the program runs could use its parent's lock by mistake.
const (
	lockVariable  = "SPINDLE_LOCK"
	tokenVariable = "SPINDLE_TOKEN"
	keyVariable   = "SPINDLE_KEY"
	slotVariable  = "SPINDLE_SLOT" // its number

	reasonVariable = "SPINDLE_REASON" // only for hooks
	hookVariable   = "SPINDLE_HOOK"   // only for hooks: which one
)

// environment returns this process's environment, adapted for a program that runs under the lock. It adds the lock's
// name, table and database, and also the token, the key and the slot's number if there are any. It removes variables
// that set this command's own flags. A watchdog skips this (own is nil), because its parent has already removed them.
func (x *lockCommand) environment(token table.Token) []string {
	taken := map[string]bool{lockVariable: true, tokenVariable: true, keyVariable: true, slotVariable: true, reasonVariable: true, hookVariable: true, "SPINDLE_DB": true, "SPINDLE_TABLE": true}
	for _, name := range health.Variables {
		taken[name] = true
	}
	if x.own != nil {
		x.own.VisitAll(func(f *pflag.Flag) {
			if x.FlagSet.Lookup(f.Name) == nil && terminal.HasVariable(f) {
				taken[terminal.Variable(f)] = true
			}
		})
	}
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return taken[name]
	})
	env = append(env, "SPINDLE_DB="+x.Path, "SPINDLE_TABLE="+x.Table, lockVariable+"="+x.held())
	if token != 0 {
		env = append(env, tokenVariable+"="+token.String())
	}
	if x.todo.Key != "" {
		env = append(env, keyVariable+"="+x.todo.Key)
	}
	if number, err := strconv.Atoi(strings.TrimPrefix(x.slot, wait.SlotQueue(x.name))); err == nil {
		env = append(env, slotVariable+"="+strconv.Itoa(number))
	}
	return env
}

// held returns the name of the lock that is held or was held last.
func (x *lockCommand) held() string { return cmp.Or(x.slot, x.name) }

// within reports whether this command itself runs under the only lock that it can acquire.
func (x *lockCommand) within(usable []elect.LockView) bool {
	if len(usable) != 1 {
		return false
	}
	s := usable[0]
	return os.Getenv(lockVariable) == s.Name && s.Confirmed() && s.FreeIn > 0 && s.Token.String() == os.Getenv(tokenVariable)
}

// shell runs a command with the lock's environment.
func (x *lockCommand) shell(ctx context.Context, command string, token table.Token, as child.Command) error {
	as.Env = x.environment(token)
	err := shell(ctx, command, as)
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

func (x *lockCommand) setToken(t table.Token) { atomic.StoreInt64((*int64)(&x.token), int64(t)) }

// complain logs a problem with the lock.
func (x *lockCommand) complain(format string, args ...any) { x.log(slog.LevelWarn, format, args...) }

// complainOf is like complain. The message begins with the lock's name.
func (x *lockCommand) complainOf(format string, args ...any) {
	x.complain("%s: %s", x.name, fmt.Sprintf(format, args...))
}

// say logs progress, unless --quiet is set.
func (x *lockCommand) say(format string, args ...any) {
	if !x.quiet {
		x.log(slog.LevelInfo, format, args...)
	}
}

// sayOf is like say. The message begins with the lock's name.
func (x *lockCommand) sayOf(format string, args ...any) {
	x.say("%s: %s", x.name, fmt.Sprintf(format, args...))
}

// log logs a message with the lock's attributes, under the keys that the library's log uses.
func (x *lockCommand) log(level slog.Level, format string, args ...any) {
	about := []slog.Attr{slog.String("lock", x.name), slog.String("id", x.id)}
	if token := atomic.LoadInt64((*int64)(&x.token)); token != 0 { // hooks log from goroutines of their own
		about = append(about, slog.Int64("token", token))
	}
	if x.todo.Key != "" {
		about = append(about, slog.String("key", x.todo.Key))
	}
	terminal.Stderr.Log(level, fmt.Sprintf(format, args...), about...)
}
