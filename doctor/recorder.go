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

// recorder gives the probes access to the lock table. It counts denied requests and commits without a timestamp, which
// separate checks report.
//
// Once its context has ended, recorder starts no more requests, but it lets a request in progress finish. If it
// abandoned a commit, that commit could still be applied after the cleanup.
type recorder struct {
	table.Via
	spanner table.Spanner
	ctx     context.Context

	mu         sync.Mutex
	denied     int
	unanswered int // the number of replies to commits that had no timestamp
}

func newRecorder(ctx context.Context, s table.Spanner) *recorder {
	r := &recorder{spanner: s, ctx: ctx}
	r.Via = r.do
	return r
}

func (r *recorder) do(ctx context.Context, step string, call func(context.Context, table.Store) error) error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attempt)
	defer cancel()
	err := call(ctx, r.spanner)
	r.mu.Lock()
	defer r.mu.Unlock()
	if isDenied(err) {
		r.denied++
	}
	if errors.Is(err, table.ErrNoTimestamp) {
		r.unanswered++
	}
	return err
}

func isDenied(err error) bool { return table.FaultOf(err) == table.NoPermission }

// apply sets a row's token to the commit's timestamp, the way an application commits: either blindly or in a
// transaction. It returns the timestamp.
func (r *recorder) apply(step string, blind bool, row string, also ...*spanner.Mutation) (at time.Time, err error) {
	opts := []spanner.ApplyOption{spanner.TransactionTag("spindle-" + step), spanner.IsolationLevel(sppb.TransactionOptions_SERIALIZABLE)}
	if blind {
		opts = append(opts, spanner.ApplyAtLeastOnce())
	}
	also = append(also, spanner.InsertOrUpdate(r.spanner.Table, []string{table.ColName, table.ColToken}, []any{row, spanner.CommitTimestamp}))
	err = r.do(r.ctx, step, func(ctx context.Context, _ table.Store) error {
		at, err = table.Acknowledged(r.spanner.DB.Apply(ctx, also, opts...))
		return err
	})
	return at, err
}
