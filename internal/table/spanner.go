package table

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Spanner is the Store of a table in a database. Its RPCs have high priority, so that the
// application's own load does not starve them, and tags that name the step.
//
// Only mutations and reads by key are used: no SQL is built from a name, and both dialects run the
// same code.
type Spanner struct {
	DB    *spanner.Client
	Table string
}

const priority = sppb.RequestOptions_PRIORITY_HIGH

var columns = []string{ColName, ColHeartbeat, ColToken, ColWriter}

// Read implements Store.
func (s Spanner) Read(ctx context.Context, step string, keys Keys) ([]Row, time.Time, error) {
	txn := s.DB.Single()
	rows, err := collect(txn.ReadWithOptions(ctx, s.Table, keys.set(), columns,
		&spanner.ReadOptions{Priority: priority, RequestTag: tag(step)}))
	if err != nil {
		return nil, time.Time{}, err
	}
	at, err := txn.Timestamp()
	return rows, at, err
}

// Commit implements Store.
func (s Spanner) Commit(ctx context.Context, step string, writes []Write) error {
	_, err := s.DB.Apply(ctx, s.mutations(writes),
		spanner.ApplyAtLeastOnce(), spanner.Priority(priority), spanner.TransactionTag(tag(step)))
	if RowMissing(err) {
		return fmt.Errorf("%w: %w", ErrMissing, err)
	}
	return err
}

// Transact implements Store.
func (s Spanner) Transact(ctx context.Context, step string, fn func(context.Context, Reader) ([]Write, error)) (time.Time, error) {
	var refused error
	resp, err := s.DB.ReadWriteTransactionWithOptions(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		var writes []Write
		writes, refused = fn(ctx, reader{s, txn, step})
		if refused != nil {
			return refused
		}
		return txn.BufferWrite(s.mutations(writes))
	}, spanner.TransactionOptions{CommitPriority: priority, TransactionTag: tag(step), IsolationLevel: sppb.TransactionOptions_SERIALIZABLE})
	if err != nil && refused != nil {
		return time.Time{}, refused
	}
	return resp.CommitTs, err
}

// Fence returns the mutation that fails a commit with NOT_FOUND unless name is held under token.
func (s Spanner) Fence(name string, token Token) *spanner.Mutation {
	return s.mutation(good(name, token))
}

// RowMissing reports whether a commit failed because something that it names does not exist: a row,
// the table, the database. A lost session or transaction, which have the same code, are none of these.
func RowMissing(err error) bool {
	if spanner.ErrCode(err) != codes.NotFound || strings.HasPrefix(spanner.ErrDesc(err), "Transaction not found") {
		return false
	}
	// Only the innermost error has the details: the client's own does not pass them on.
	for ; err != nil; err = errors.Unwrap(err) {
		st, ok := err.(interface{ GRPCStatus() *status.Status })
		if !ok {
			continue
		}
		for _, d := range st.GRPCStatus().Details() {
			if info, ok := d.(interface{ GetResourceType() string }); ok && strings.HasSuffix(info.GetResourceType(), "spanner.v1.Session") {
				return false
			}
		}
	}
	return true
}

type reader struct {
	Spanner
	txn  *spanner.ReadWriteTransaction
	step string
}

// Read takes the exclusive lock at once: every transaction of the protocol goes on to write what it
// read, and candidates that share a read lock first would abort each other on the upgrade.
func (r reader) Read(ctx context.Context, keys Keys) ([]Row, error) {
	return collect(r.txn.ReadWithOptions(ctx, r.Table, keys.set(), columns,
		&spanner.ReadOptions{Priority: priority, RequestTag: tag(r.step), LockHint: sppb.ReadRequest_LOCK_HINT_EXCLUSIVE}))
}

func tag(step string) string { return "spindle-" + step }

func (k Keys) set() spanner.KeySet {
	if k.All {
		return spanner.AllKeys()
	}
	var set []spanner.KeySet
	for _, r := range k.Ranges {
		set = append(set, spanner.KeyRange{Start: spanner.Key{r.From}, End: spanner.Key{r.To}, Kind: spanner.ClosedClosed})
	}
	for _, name := range k.Names {
		set = append(set, spanner.Key{name})
	}
	return spanner.KeySets(set...)
}

func collect(iter *spanner.RowIterator) ([]Row, error) {
	var rows []Row
	err := iter.Do(func(r *spanner.Row) error {
		var name, writer spanner.NullString
		var heartbeat, token spanner.NullTime
		if err := r.Columns(&name, &heartbeat, &token, &writer); err != nil {
			return err
		}
		rows = append(rows, Row{name.StringVal, heartbeat.Time, token.Time, writer.StringVal})
		return nil
	})
	return rows, err
}

func (s Spanner) mutations(writes []Write) []*spanner.Mutation {
	ms := make([]*spanner.Mutation, len(writes))
	for i, w := range writes {
		ms[i] = s.mutation(w)
	}
	return ms
}

func (s Spanner) mutation(w Write) *spanner.Mutation {
	if w.Kind == Delete {
		return spanner.Delete(s.Table, spanner.Key{w.Name})
	}
	cols, vals := []string{ColName}, []any{w.Name}
	for _, c := range w.Set {
		cols, vals = append(cols, c.Column), append(vals, value(c.Value))
	}
	if w.Kind == Insert {
		return spanner.Insert(s.Table, cols, vals)
	}
	return spanner.Update(s.Table, cols, vals)
}

func value(v any) any {
	if v == Now {
		return spanner.CommitTimestamp
	}
	return v
}
