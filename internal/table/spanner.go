package table

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/grpc/codes"
)

// Spanner is the Store for a table in a Spanner database. Its requests are tagged with the name of the protocol step.
// They have high priority, so that the application's own load can't starve them. Only pruning and lists have low
// priority, because they can be large.
//
// The steps use mutations and reads by key, which are the same in both dialects and keep lock names out of SQL text.
// Only FenceStatement and the query in busy.go use SQL. FenceStatement is for applications that use only SQL in their
// transactions. The query lists held locks.
type Spanner struct {
	DB    *spanner.Client
	Table string

	// Memory contains the locks of a test that has no client. Methods that send requests to Spanner do not use it.
	Memory Store
}

// readPriority returns the priority of a read. A list has low priority unless it reads locks by name. A member's poll
// of its whole group has high priority, because the member must stop if its polls fail.
func readPriority(step string, keys Keys) sppb.RequestOptions_Priority {
	if step == "list" && len(keys.Names) == 0 {
		return sppb.RequestOptions_PRIORITY_LOW
	}
	return priority(step)
}

func priority(step string) sppb.RequestOptions_Priority {
	if step == "prune" {
		return sppb.RequestOptions_PRIORITY_LOW
	}
	return sppb.RequestOptions_PRIORITY_HIGH
}

var columns = []string{ColName, ColHeartbeat, ColToken, ColWriter}

// ErrNoTimestamp means that the reply to a commit has no commit timestamp. For example, Spanner may reply with a
// precommit token, which means that the client must send another request before anything is committed.
var ErrNoTimestamp = errors.New("the reply to the commit has no timestamp: it is not known whether the commit was applied")

// Acknowledged returns ErrNoTimestamp if a commit returned neither an error nor a timestamp.
func Acknowledged(at time.Time, err error) (time.Time, error) {
	if err == nil && at.IsZero() {
		return at, ErrNoTimestamp
	}
	return at, err
}

// An application may have configured its client with default settings for requests. Each request here overrides the
// defaults that could delay it, weaken a transaction or truncate a read. The choice of replicas for snapshots is left
// to the client, because all replicas return the same rows.
var (
	noDelay = time.Duration(0)
	prompt  = spanner.CommitOptions{MaxCommitDelay: &noDelay}
)

const noLimit = math.MaxInt32 // 0 would mean the client's default

func readOptions(step string, keys Keys) *spanner.ReadOptions {
	return &spanner.ReadOptions{Priority: readPriority(step, keys), RequestTag: tag(step), Limit: cmp.Or(keys.Limit, noLimit),
		OrderBy: sppb.ReadRequest_ORDER_BY_PRIMARY_KEY}
}

// Read implements Store. It makes one request for any number of rows. A list of the held locks needs a second request
// if the first one fails.
func (s Spanner) Read(ctx context.Context, step string, bound Bound, keys Keys) ([]Row, time.Time, error) {
	if keys.All && keys.Busy && keys.Prefix == "" {
		if rows, at, err := s.busy(ctx, step, bound, keys); err == nil || ctx.Err() != nil {
			return rows, at, err
		}
	}
	return s.snapshot(ctx, bound, keys, func(ctx context.Context, txn *spanner.ReadOnlyTransaction) *spanner.RowIterator {
		return txn.ReadWithOptions(ctx, APIName(s.Table), keys.set(), columns, readOptions(step, keys))
	})
}

func (s Spanner) snapshot(ctx context.Context, bound Bound, keys Keys, ask func(context.Context, *spanner.ReadOnlyTransaction) *spanner.RowIterator) ([]Row, time.Time, error) {
	snapshot := spanner.StrongRead()
	if bound == Present {
		snapshot = spanner.ExactStaleness(0)
	}
	ctx, explain := Listen(ctx)
	txn := s.DB.Single().WithTimestampBound(snapshot)
	rows, err := collect(ask(ctx, txn), keys)
	if err != nil {
		return nil, time.Time{}, explain(err)
	}
	at, err := txn.Timestamp()
	return rows, at, err
}

func (s Spanner) Commit(ctx context.Context, step string, writes []Write) error {
	ctx, explain := Listen(ctx)
	_, err := Acknowledged(s.DB.Apply(ctx, s.Mutations(writes), spanner.ApplyAtLeastOnce(), spanner.Priority(priority(step)),
		spanner.TransactionTag(tag(step)), spanner.IsolationLevel(sppb.TransactionOptions_SERIALIZABLE), spanner.ApplyCommitOptions(prompt)))
	return explain(missing(err))
}

// Transact implements Store. The reads are optimistic: they lock no rows in the database. A candidate that dies before
// its commit therefore blocks nobody, and no heartbeat waits for a commit that has not been sent yet.
func (s Spanner) Transact(ctx context.Context, step string, fn func(context.Context, Reader) ([]Write, error)) (time.Time, error) {
	ctx, explain := Listen(ctx)
	txn, err := spanner.NewReadWriteStmtBasedTransactionWithOptions(ctx, s.DB, spanner.TransactionOptions{
		CommitOptions:          prompt,
		CommitPriority:         priority(step),
		TransactionTag:         tag(step),
		IsolationLevel:         sppb.TransactionOptions_SERIALIZABLE,
		ReadLockMode:           sppb.TransactionOptions_ReadWrite_OPTIMISTIC,
		BeginTransactionOption: spanner.InlinedBeginTransaction,
	})
	if err != nil {
		return time.Time{}, explain(err)
	}
	r := &reader{Spanner: s, txn: txn, step: step}
	writes, err := fn(ctx, r)
	if err == nil {
		err = r.txn.BufferWrite(s.Mutations(writes))
	}
	if err != nil { // only the emulator, which runs one transaction at a time, needs the rollback
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		r.txn.Rollback(ctx)
		return time.Time{}, explain(err)
	}
	at, err := Acknowledged(r.txn.Commit(ctx))
	if overtaken(err) {
		err = fmt.Errorf("%w: %w", ErrAborted, err)
	}
	return at, explain(err)
}

// Fence returns a mutation that makes its commit fail with NOT_FOUND unless the lock is held under the token.
func (s Spanner) Fence(name string, token Token) *spanner.Mutation {
	return s.mutation(requireLease(name, token))
}

// FenceStatement returns the fence as an SQL statement. The statement updates one row if the lock is held under the
// token, and no row otherwise. An UPDATE in SQL must set at least one column, so the statement sets the writer column
// of the lease row to its current value. This does not conflict with requests to the holder, because they use the other
// two columns. If the table's name is not an identifier, FenceStatement returns an empty statement.
func (s Spanner) FenceStatement(dialect databasepb.DatabaseDialect, name string, token Token) spanner.Statement {
	if CheckTable(s.Table) != nil {
		return spanner.Statement{}
	}
	sql := "UPDATE " + s.Table + " SET writer = writer WHERE name = @p1"
	if dialect == databasepb.DatabaseDialect_POSTGRESQL {
		sql = strings.Replace(sql, "@p1", "$1", 1)
	}
	return spanner.Statement{SQL: sql, Params: map[string]any{"p1": LeaseKey(name, token)}}
}

// overtaken reports whether a commit was not applied, typically because a row that the transaction read has changed in
// the meantime. Spanner does not always report this as an abort. For example, if the transaction found a row missing
// and another transaction then inserted the row, the error may be ALREADY_EXISTS.
func overtaken(err error) bool {
	switch spanner.ErrCode(err) {
	case codes.Aborted, codes.AlreadyExists:
		return true
	}
	return answered(err) == noRow || Dropped(err)
}

type reader struct {
	Spanner
	txn  *spanner.ReadWriteStmtBasedTransaction
	step string
	read bool // a read has succeeded
}

// Read implements Reader. An application can configure its client for directed reads, which specify the replicas to
// read from. Spanner allows directed reads only in read-only transactions. A request can replace the client's setting,
// but can't remove it. Therefore, a read that was refused is repeated with a setting that names no replica.
func (r *reader) Read(ctx context.Context, keys Keys) ([]Row, error) {
	rows, err := r.readFirst(ctx, keys, nil)
	if code := spanner.ErrCode(err); code == codes.InvalidArgument || code == codes.FailedPrecondition {
		if rows, second := r.readFirst(ctx, keys, &sppb.DirectedReadOptions{}); second == nil {
			return rows, nil
		}
	}
	if spanner.ErrCode(err) == codes.Aborted || Dropped(err) {
		err = fmt.Errorf("%w: %w", ErrAborted, err)
	}
	return rows, err
}

// readFirst repeats a transaction's first read if it is aborted, to find out the actual error. The first read also begins
// the transaction. If it fails, the client reports any error as an abort. The repeated read runs in a transaction that
// has already begun, so the client reports the actual error.
//
// A later read is not repeated. It would run in another transaction, and the commit of that transaction would not check
// whether the rows of the first read have changed.
func (r *reader) readFirst(ctx context.Context, keys Keys, directed *sppb.DirectedReadOptions) ([]Row, error) {
	rows, err := r.rows(ctx, keys, directed)
	if !r.read && spanner.ErrCode(err) == codes.Aborted {
		again, cause := r.txn.ResetForRetry(ctx)
		if cause != nil {
			return nil, cause
		}
		r.txn = again
		rows, err = r.rows(ctx, keys, directed)
	}
	r.read = r.read || err == nil
	return rows, err
}

func (r *reader) rows(ctx context.Context, keys Keys, directed *sppb.DirectedReadOptions) ([]Row, error) {
	opts := readOptions(r.step, keys)
	opts.DirectedReadOptions = directed
	opts.LockHint = sppb.ReadRequest_LOCK_HINT_SHARED // the default, even if the client has a different setting
	return collect(r.txn.ReadWithOptions(ctx, APIName(r.Table), keys.set(), columns, opts), keys)
}

func tag(step string) string { return "spindle-" + step }

func (k Keys) set() spanner.KeySet {
	if k.All {
		all := spanner.KeyRange{Start: spanner.Key{k.Prefix}, End: spanner.Key{}, Kind: spanner.ClosedClosed}
		if k.Prefix != "" {
			all.End = spanner.Key{k.Prefix + string(unicode.MaxRune)}
		}
		if k.After != "" {
			all.Start, all.Kind = spanner.Key{k.After}, spanner.OpenClosed
		}
		return all
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

// collect returns the rows that the keys do not skip.
func collect(iter *spanner.RowIterator, keys Keys) ([]Row, error) {
	var rows []Row
	err := iter.Do(func(r *spanner.Row) error {
		var name, writer spanner.NullString
		var heartbeat, token spanner.NullTime
		if err := r.Columns(&name, &heartbeat, &token, &writer); err != nil {
			return err
		}
		if row := (Row{name.StringVal, heartbeat.Time, token.Time, writer.StringVal}); !keys.Skips(row) {
			rows = append(rows, row)
		}
		return nil
	})
	return rows, err
}

func (s Spanner) Mutations(writes []Write) []*spanner.Mutation {
	ms := make([]*spanner.Mutation, len(writes))
	for i, w := range writes {
		ms[i] = s.mutation(w)
	}
	return ms
}

func (s Spanner) mutation(w Write) *spanner.Mutation {
	table := APIName(s.Table)
	if w.Kind == Delete {
		return spanner.Delete(table, spanner.Key{w.Name})
	}
	cols, vals := []string{ColName}, []any{w.Name}
	for _, c := range w.Set {
		if c.Value == Now {
			c.Value = spanner.CommitTimestamp
		}
		cols, vals = append(cols, c.Column), append(vals, c.Value)
	}
	switch w.Kind {
	case Insert:
		return spanner.Insert(table, cols, vals)
	case Put:
		return spanner.InsertOrUpdate(table, cols, vals)
	}
	return spanner.Update(table, cols, vals)
}
