// Package compete has the commands that compete for a lock, exec and guard: their flags, and what connects the state machines
// of packages execcmd and guard to processes, hooks and messages.
//
//   - lockcommand.go: what both have in common; messages.go: what both say
//   - reports.go: what they report to hooks, probes and systemd
//   - exec.go, once.go: exec, and work that it does once
//   - guard.go: guard; watchdog.go: its watchdog
//   - alone.go, folder.go: one guard of a service on a machine, by a lock file
//   - beside.go, watchdogaction.go, detached.go: the processes beside exec and guard, and what they do
package compete

import (
	"context"
	"errors"
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
	"github.com/spindle-lock/spindle/cmd/spindle/internal/systemd"
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
	token table.Token    // of its term, or 0
	key   string         // of what is to be done once, if anything

	wait    time.Duration // for the lock; 0: forever
	trouble error         // what went wrong with the last look
}

func (x *lockCommand) flags(f *pflag.FlagSet) {
	x.own = f
	f.StringVar(&x.name, "name", "", "the lock's `name`")
	f.StringVar(&x.id, "id", "", "the `id` that others see as the holder's (default: host, process id and a UUID)")
	f.StringVar(&x.value, "value", "", "a `text` that others see while this process holds the lock, such as an address")
	f.BoolVar(&x.handover, "handover", false, "announce a stop in advance, so that another takes over at once, and accept spindle handover")
	f.IntVar(&x.priority, "priority", table.MaxRank, "0 to 9: a holder with --handover yields to higher priorities")
	f.BoolVarP(&x.quiet, "quiet", "q", false, "only report problems")
}

// newCandidate checks the flags by the library's rules.
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
		return elect.Candidate{}, exit.Misuse("no lock given: name it with --name or SPINDLE_NAME")
	}
	c.Check(db.Client(), x.Table, x.name)
	if err := c.Err(); err != nil {
		return elect.Candidate{}, exit.Misuse("%s", optionCall.ReplaceAllStringFunc(err.Error(), asFlag))
	}
	x.id = c.ID
	return c.Candidate(db.Locks(), x.name), nil
}

// optionCall is how the library quotes an option: WithLease(10ms).
var optionCall = regexp.MustCompile(`With(Lease|ID|Value|Priority)\(([^)]*)\)`)

func asFlag(call string) string {
	given := optionCall.FindStringSubmatch(call)
	return "--" + strings.ToLower(given[1]) + " " + given[2]
}

// verify returns errors that waiting can't fix. If the database can't be reached now, it may be later. From here on,
// messages have the time, as in a log.
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
	if err != nil && (errors.As(err, &schema) || elect.Lasting(err)) {
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

// These variables tell a program under a lock about the lock. No command takes its flags from them: a spindle that the
// program runs would take its parent's lock for its own.
const (
	lockVariable  = "SPINDLE_LOCK"
	tokenVariable = "SPINDLE_TOKEN"
	keyVariable   = "SPINDLE_KEY"

	reasonVariable = "SPINDLE_REASON" // to hooks
)

// environment returns the environment of a program under the lock: this process's, the lock's name, table and database, and
// the token if there is one. It leaves out variables that set the flags of this command alone.
func (x *lockCommand) environment(token table.Token) []string {
	if x.own == nil {
		return os.Environ() // in a watchdog: its parent has removed them
	}
	taken := map[string]bool{lockVariable: true, tokenVariable: true, keyVariable: true, reasonVariable: true, "SPINDLE_DB": true, "SPINDLE_TABLE": true}
	for _, name := range systemd.Variables {
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

// within reports whether this command runs under the very term that was seen.
func (x *lockCommand) within(step elect.Step) bool {
	return os.Getenv(lockVariable) == x.name && slices.ContainsFunc(step.Seen, func(s elect.LockView) bool {
		return s.Confirmed() && s.FreeIn > 0 && s.Token.String() == os.Getenv(tokenVariable)
	})
}
