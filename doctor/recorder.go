package doctor

import (
	"context"
	"errors"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"

	"github.com/spindle-lock/spindle/internal/table"
)

// attempt is the time limit for one request.
const attempt = 5 * time.Second

// recorder gives the probes access to the lock table. It records denied permissions and commits without a timestamp,
// which separate checks report.
//
// Once its context has ended, recorder starts no more requests, but it lets a request in progress finish. If it
// abandoned a commit, that commit could still be applied after the cleanup.
type recorder struct {
	table.Via
	spanner table.Spanner
	within  context.Context

	mu         sync.Mutex
	denied     []denial
	unanswered int // the number of replies to commits that had no timestamp
}

// denial records that Spanner did not permit a step.
type denial struct{ step, message string }

func newRecorder(ctx context.Context, s table.Spanner) *recorder {
	r := &recorder{spanner: s, within: ctx}
	r.Via = r.do
	return r
}

func (r *recorder) do(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
	if r.within.Err() != nil {
		return context.Cause(r.within)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attempt)
	defer cancel()
	err := call(ctx, r.spanner)
	r.mu.Lock()
	defer r.mu.Unlock()
	if isDenied(err) {
		r.denied = append(r.denied, denial{step, oneLine(err)})
	}
	if errors.Is(err, table.ErrNoTimestamp) {
		r.unanswered++
	}
	return err
}

func isDenied(err error) bool { return table.FaultOf(err) == table.NoPermission }

// apply commits mutations the way an application does, either blindly or in a transaction.
func (r *recorder) apply(ctx context.Context, step string, blind bool, ms ...*spanner.Mutation) (at time.Time, err error) {
	opts := []spanner.ApplyOption{spanner.TransactionTag("spindle-" + step), spanner.IsolationLevel(sppb.TransactionOptions_SERIALIZABLE)}
	if blind {
		opts = append(opts, spanner.ApplyAtLeastOnce())
	}
	err = r.do(ctx, step, func(ctx context.Context, _ table.Store) error {
		at, err = table.Acknowledged(r.spanner.DB.Apply(ctx, ms, opts...))
		return err
	})
	return at, err
}
