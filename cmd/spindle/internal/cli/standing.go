package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// standing is what a command that stands for a lock is given.
type standing struct {
	*common
	name  string
	id    string
	value string
	quiet bool
}

func (s *standing) flags(f *pflag.FlagSet) {
	f.StringVar(&s.name, "name", "", "the lock's `name`")
	f.StringVar(&s.id, "id", "", "the `id` that others see as the holder's (default host, process id and a UUID)")
	f.StringVar(&s.value, "value", "", "a `text` that others see while this holds the lock, such as an address")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "say only what goes wrong")
}

// candidate checks the flags, by the rules of the library.
func (s *standing) candidate(db *connection, lease time.Duration) (elect.Candidate, error) {
	opts := []spindle.Option{spindle.WithLease(lease), spindle.WithValue(s.value)}
	if s.id != "" {
		opts = append(opts, spindle.WithID(s.id))
	}
	c := options.New(opts)
	if s.name == "" {
		return elect.Candidate{}, misuse("which lock? Give it a name with --name or in SPINDLE_NAME")
	}
	c.Check(db.client(), s.table, s.name)
	if err := c.Err(); err != nil {
		return elect.Candidate{}, misuse("%w", err)
	}
	return c.Candidate(db.locks(), s.name), nil
}

// verify says at once what waiting does not mend. A database that can't be reached is waited for.
func (s *standing) verify(ctx context.Context, db *spanner.Client) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := ddl.Verify(ctx, db, s.table)
	var schema *ddl.SchemaError
	if err != nil && (errors.As(err, &schema) || elect.Lasting(err)) {
		return s.explain(err)
	}
	if err != nil {
		complain("trying on: %v", s.explain(err))
	}
	return nil
}

// say tells people what happens; complain tells them even if they don't want to hear.
func (s *standing) say(format string, args ...any) {
	if !s.quiet {
		complain(format, args...)
	}
}

func complain(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "spindle: "+format+"\n", args...)
}

// greeter tells of each holder once.
type greeter struct {
	*standing
	seen    table.Token
	trouble string
}

func (g *greeter) see(step elect.Step) {
	switch err := step.Err; {
	case err != nil && spanner.ErrCode(err).String() != g.trouble: // the text differs in times and ids
		g.trouble = spanner.ErrCode(err).String()
		complain("can't compete for %s, trying on: %v", g.name, g.explain(err))
	case err == nil && g.trouble != "":
		g.trouble = ""
		complain("competing for %s again", g.name)
	}
	for _, s := range step.Seen {
		if s.Confirmed() && s.Free > 0 && s.Token != g.seen {
			g.seen = s.Token
			g.say("waiting for %s: held by %s, token %v", g.name, show(s.Writer), spindle.Token(s.Token))
		}
	}
}
