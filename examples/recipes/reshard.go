package recipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/group"
)

// InboxTables contains the DDL statements for three tables:
//   - orders_inbox contains the records. A record stays in the shard that its key belonged to when Append wrote it.
//   - orders_numberings contains every number of shards that has been used, and the time when its use began.
//   - orders_positions contains each shard's checkpoint, which is the commit time of the last consumed record.
var InboxTables = []string{
	`CREATE TABLE orders_inbox (
		shard     STRING(MAX) NOT NULL,
		committed TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
		key       STRING(MAX) NOT NULL,
		value     STRING(MAX) NOT NULL,
	) PRIMARY KEY (shard, committed, key)`,
	`CREATE TABLE orders_numberings (
		n     INT64 NOT NULL,
		since TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true),
	) PRIMARY KEY (n)`,
	`CREATE TABLE orders_positions (
		shard    STRING(MAX) NOT NULL,
		position TIMESTAMP NOT NULL,
	) PRIMARY KEY (shard)`,
}

// A Shard is a partition of the group. It contains the keys whose hash modulo N is Rest.
type Shard struct{ N, Rest int }

// Name returns the shard's name in the group's list, such as "8/3".
func (s Shard) Name() string { return fmt.Sprintf("%d/%d", s.N, s.Rest) }

// Shards returns the group's list of partitions for one number of shards, or for both the old number and the new one.
func Shards(numberings ...int) group.Partitions {
	var names []string
	for _, n := range numberings {
		for rest := range n {
			names = append(names, Shard{n, rest}.Name())
		}
	}
	return group.Named(names...)
}

func shardOf(key string, n int) Shard {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key))
	return Shard{n, int(hash.Sum64() % uint64(n))}
}

// sources returns the shards that contain this shard's keys if there are n shards.
func (s Shard) sources(n int) (sources []Shard) {
	common := s.N
	for m := n; m > 0; {
		common, m = m, common%m
	}
	for rest := s.Rest % common; rest < n; rest += common {
		sources = append(sources, Shard{n, rest})
	}
	return sources
}

// Renumber changes the number of shards to n. It fails if orders_numberings already has a row for n, even if n is no
// longer the current number of shards.
func Renumber(ctx context.Context, db *spanner.Client, n int) error {
	_, err := db.Apply(ctx, []*spanner.Mutation{
		spanner.Insert("orders_numberings", []string{"n", "since"}, []any{n, spanner.CommitTimestamp})})
	return err
}

// Append writes a record as part of a transaction. A transaction can append only one record for each key. Because
// Append reads the number of shards, the transaction is retried if Renumber changes that number before the transaction
// commits. Therefore, no record is added to an old shard after the change.
func Append(ctx context.Context, txn *spanner.ReadWriteTransaction, key, value string) error {
	all, err := numberings(ctx, txn)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("the number of shards is not set; call Renumber once")
	}
	shard := shardOf(key, all[len(all)-1])
	return txn.BufferWrite([]*spanner.Mutation{spanner.Insert("orders_inbox",
		[]string{"shard", "committed", "key", "value"}, []any{shard.Name(), spanner.CommitTimestamp, key, value})})
}

type reader interface {
	Read(ctx context.Context, table string, keys spanner.KeySet, columns []string) *spanner.RowIterator
	ReadRow(ctx context.Context, table string, key spanner.Key, columns []string) (*spanner.Row, error)
}

// present reads the database with strong reads.
type present struct{ db *spanner.Client }

func (p present) Read(ctx context.Context, table string, keys spanner.KeySet, columns []string) *spanner.RowIterator {
	return p.db.Single().Read(ctx, table, keys, columns)
}

func (p present) ReadRow(ctx context.Context, table string, key spanner.Key, columns []string) (*spanner.Row, error) {
	return p.db.Single().ReadRow(ctx, table, key, columns)
}

type numbering struct {
	N     int64
	Since time.Time
}

// numberings returns all numbers of shards that are or were in use, oldest first.
func numberings(ctx context.Context, from reader) (all []int, err error) {
	var rows []numbering
	err = spanner.SelectAll(from.Read(ctx, "orders_numberings", spanner.AllKeys(), []string{"n", "since"}), &rows)
	slices.SortFunc(rows, func(a, b numbering) int { return a.Since.Compare(b.Since) })
	for _, r := range rows {
		all = append(all, int(r.N))
	}
	return all, err
}

// An Inbox consumes the shards. Pass its Work method to group.WithWork, for a group whose partitions are the shards.
type Inbox struct {
	DB      *spanner.Client
	Results func([]Record) []*spanner.Mutation // gets the records of each key in commit order
}

// A Record is one row of the inbox.
type Record struct {
	Committed  time.Time
	Key, Value string
}

// Work consumes one shard.
func (b *Inbox) Work(ctx context.Context, p group.Partition) error {
	for ctx.Err() == nil {
		if err := b.advance(ctx, p); err != nil {
			return err // the group logs it, and runs Work again after a pause
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second / 5):
		}
	}
	return nil
}

// advance consumes a shard's new records. It writes the results and the checkpoint in one fenced commit.
func (b *Inbox) advance(ctx context.Context, p group.Partition) error {
	now := present{b.DB}
	if begun, err := begun(ctx, now, p.Name()); err != nil || !begun {
		return err
	}
	from, records, err := next(ctx, now, p.Name())
	if err != nil || len(records) == 0 {
		return err
	}
	_, err = p.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		if at, err := position(ctx, txn, p.Name()); err != nil || !at.Equal(from) {
			return cmp.Or(err, errAdvanced)
		}
		checkpoint := spanner.InsertOrUpdate("orders_positions", []string{"shard", "position"},
			[]any{p.Name(), records[len(records)-1].Committed})
		return txn.BufferWrite(append(b.Results(records), checkpoint))
	})
	return err // after spindle.ErrFenced, this process has lost the partition, and ctx has ended
}

// begun reports whether a shard can be consumed yet. The older shards that contained its keys must be consumed first.
// Until Renumber has been called with the shard's N, begun returns false, because records may still be added to the
// older shards.
func begun(ctx context.Context, now present, name string) (bool, error) {
	var shard Shard
	if _, err := fmt.Sscanf(name, "%d/%d", &shard.N, &shard.Rest); err != nil {
		return false, err
	}
	all, err := numberings(ctx, now)
	own := slices.Index(all, shard.N)
	if err != nil || own < 0 {
		return false, err
	}
	for _, n := range all[:own] {
		for _, source := range shard.sources(n) {
			if _, records, err := left(ctx, now, source.Name(), 1); err != nil || len(records) > 0 {
				return false, err
			}
		}
	}
	return true, nil
}

// Drained reports whether all records in the n shards of an old numbering have been consumed. These shards can then be
// removed from the group's list. If n is the current number of shards, or has never been used, Drained returns false.
func Drained(ctx context.Context, db *spanner.Client, n int) (bool, error) {
	now := present{db}
	all, err := numberings(ctx, now)
	if err != nil || !slices.Contains(all[:max(len(all)-1, 0)], n) {
		return false, err
	}
	for rest := range n {
		if _, records, err := left(ctx, now, Shard{n, rest}.Name(), 1); err != nil || len(records) > 0 {
			return false, err
		}
	}
	return true, nil
}

// batch is the largest number of records that are consumed in one commit, because Spanner limits the size of commits.
const batch = 1000

// next returns a shard's checkpoint and the next records to consume. The records of a commit stay together, because the
// checkpoint is a time. If a commit has more than a batch of records, next returns all unconsumed records.
func next(ctx context.Context, now present, name string) (from time.Time, records []Record, err error) {
	if from, records, err = left(ctx, now, name, batch+1); err != nil || len(records) <= batch {
		return from, records, err
	}
	cut := slices.IndexFunc(records, func(r Record) bool { return r.Committed.Equal(records[batch].Committed) })
	if cut == 0 {
		return left(ctx, now, name, 0)
	}
	return from, records[:cut], nil
}

// left returns a shard's checkpoint and the first unconsumed records, which are those after the checkpoint. If most is 0,
// it returns all of them. It reads the checkpoint first. It may therefore return records that were consumed between the
// two reads, but it never misses an unconsumed record.
func left(ctx context.Context, now present, name string, most int) (from time.Time, records []Record, err error) {
	if from, err = position(ctx, now, name); err != nil {
		return from, nil, err
	}
	after := spanner.KeyRange{Start: spanner.Key{name, from}, End: spanner.Key{name}, Kind: spanner.OpenClosed}
	read := now.db.Single().ReadWithOptions(ctx, "orders_inbox", after, []string{"committed", "key", "value"}, &spanner.ReadOptions{Limit: most})
	err = spanner.SelectAll(read, &records)
	return from, records, err
}

// position returns the checkpoint of a shard, or the zero time if the shard has none.
func position(ctx context.Context, from reader, name string) (at time.Time, err error) {
	row, err := from.ReadRow(ctx, "orders_positions", spanner.Key{name}, []string{"position"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return at, nil
	}
	if err == nil {
		err = row.Columns(&at)
	}
	return at, err
}
