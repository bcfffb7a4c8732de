package agent

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// releaseOf releases locks that a hold of another agent holds under token. The proof must match the id of that hold.
func (a *Agent) releaseOf(ctx context.Context, token table.Token, proof string, names []string) writer {
	for _, name := range names {
		if err := table.CheckName(name); err != nil {
			return wrong(http.StatusBadRequest, "bad-parameter", "%v", err)
		}
	}
	seen, err := a.Locks.LookAtLeases(ctx, a.clock.Now().Time(), names...)
	if err != nil {
		return wrong(http.StatusServiceUnavailable, "unavailable", "%v", err)
	}
	for _, o := range seen {
		switch {
		case o.Token != token || !o.Confirmed() || o.LeaseRecord == nil:
			return wrong(http.StatusGone, "lost", "%.64q is no longer held under token %v", o.Name, token)
		case !strings.HasSuffix(o.LeaseRecord.ID, "/"+proof):
			return wrong(http.StatusNotFound, "no-such-hold", "%.64q belongs to another hold", o.Name)
		}
	}
	err = a.Locks.Release(ctx, token, names...)
	switch {
	case errors.Is(err, table.ErrSuperseded):
		return wrong(http.StatusGone, "lost", "%v", err)
	case err != nil:
		return result{http.StatusAccepted, map[string]string{"state": "unknown", "detail": err.Error()}}
	}
	return result{http.StatusOK, map[string]string{"state": "released"}}
}

// A writer writes its HTTP response.
type writer interface{ write(http.ResponseWriter) }

type result struct {
	status int
	body   any
}

func (r result) write(w http.ResponseWriter) { answer(w, r.status, r.body) }

// reading returns the option for a lock that is only read.
func (a *Agent) reading() spindle.Option {
	return options.Option(func(c *options.Config) { c.Store = a.Locks.Store })
}
