package cli

import (
	"fmt"
	"os"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// complain tells people on the standard error what went wrong.
func complain(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "spindle: "+format+"\n", args...)
}

// say tells people what happens, unless they asked for quiet.
func (c *competitor) say(format string, args ...any) {
	if !c.quiet {
		complain(format, args...)
	}
}

// A narrator tells what the looks at a lock find: each holder and each kind of trouble once.
type narrator struct {
	*competitor
	seen    table.Token
	trouble string
}

func (n *narrator) tell(step elect.Step) {
	switch err := step.Err; {
	case err != nil && spanner.ErrCode(err).String() != n.trouble: // the text differs in times and ids
		n.trouble = spanner.ErrCode(err).String()
		complain("can't compete for %s, will try again: %v", n.name, n.explain(err))
	case err == nil && n.trouble != "":
		n.trouble = ""
		complain("competing for %s again", n.name)
	}
	for _, s := range step.Seen {
		if s.Confirmed() && s.Free > 0 && s.Token != n.seen {
			n.seen = s.Token
			n.say("waiting for %s: held by %s, token %v", n.name, show(s.Writer), s.Token)
		}
	}
}
