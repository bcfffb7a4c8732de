package doctor

import (
	"context"
	"errors"
	"sync"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// attempt is how long one request may take.
const attempt = 5 * time.Second

// recorder is the table as the protocol sees it, and notes what several checks are about. It begins nothing once
// its context has ended, and interrupts nothing that has begun: a commit that was given up could land after
// the rows were cleaned up.
type recorder struct {
	spanner table.Spanner
	within  context.Context

	mu         sync.Mutex
	denied     []denial
	unanswered int // commits that were answered without a timestamp
}

// denial is what Spanner said to a step that is not allowed.
type denial struct{ step, message string }

func (r *recorder) do(ctx context.Context, step string, f func(context.Context) error) error {
	if r.within.Err() != nil {
		return context.Cause(r.within)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attempt)
	defer cancel()
	err := f(ctx)
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

func isDenied(err error) bool {
	code := spanner.ErrCode(err)
	return code == codes.PermissionDenied || code == codes.Unauthenticated
}

// Read implements table.Store.
func (r *recorder) Read(ctx context.Context, step string, bound table.Bound, keys table.Keys) (rows []table.Row, at time.Time, err error) {
	err = r.do(ctx, step, func(ctx context.Context) error {
		rows, at, err = r.spanner.Read(ctx, step, bound, keys)
		return err
	})
	return rows, at, err
}

// Commit implements table.Store.
func (r *recorder) Commit(ctx context.Context, step string, writes []table.Write) error {
	return r.do(ctx, step, func(ctx context.Context) error { return r.spanner.Commit(ctx, step, writes) })
}

// Transact implements table.Store.
func (r *recorder) Transact(ctx context.Context, step string, fn func(context.Context, table.Reader) ([]table.Write, error)) (at time.Time, err error) {
	err = r.do(ctx, step, func(ctx context.Context) error {
		at, err = r.spanner.Transact(ctx, step, fn)
		return err
	})
	return at, err
}

// apply commits as an application does, blindly or in a transaction.
func (r *recorder) apply(ctx context.Context, step string, blind bool, ms ...*spanner.Mutation) (at time.Time, err error) {
	opts := []spanner.ApplyOption{spanner.TransactionTag("spindle-" + step), spanner.IsolationLevel(sppb.TransactionOptions_SERIALIZABLE)}
	if blind {
		opts = append(opts, spanner.ApplyAtLeastOnce())
	}
	err = r.do(ctx, step, func(ctx context.Context) error {
		at, err = table.Acknowledged(r.spanner.DB.Apply(ctx, ms, opts...))
		return err
	})
	return at, err
}
