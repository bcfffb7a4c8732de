package recipes

import (
	"context"
	"errors"
	"hash/fnv"
	"log"
	"slices"
	"strconv"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/group"
)

// StreamTable is the DDL statement for a table with one row for each partition of the change stream. The columns are:
//   - token identifies the stream partition.
//   - worker is the group's partition that reads the stream partition.
//   - position is the time from which to continue reading.
//   - parents lists the stream partitions that must be finished before this one is read.
//   - finished is true once the stream partition has ended and all its changes are processed.
//
// Before the first run, insert one unfinished row with an empty token, the name of any worker, no parents, and the time
// from which to read the stream. Reading with an empty token returns the stream's first partitions.
const StreamTable = `CREATE TABLE orders_stream (
	token    STRING(MAX) NOT NULL,
	worker   STRING(MAX) NOT NULL,
	position TIMESTAMP NOT NULL,
	parents  ARRAY<STRING(MAX)> NOT NULL,
	finished BOOL NOT NULL,
) PRIMARY KEY (token)`

// A Stream consumes the change stream orders_changes. Pass its Work method to group.WithWork.
type Stream struct {
	DB      *spanner.Client
	Workers int // the group's partitions are group.Numbered(Workers)
	Results func(Change) []*spanner.Mutation
}

// A Change is a data change record from the stream. It contains changes that one transaction made to one table. For the
// fields that are not used here, see the Cloud Spanner documentation.
type Change struct {
	CommitTimestamp time.Time `spanner:"commit_timestamp"`
	Table           string    `spanner:"table_name"`
	Kind            string    `spanner:"mod_type"` // INSERT, UPDATE or DELETE
	Mods            []*struct {
		Keys      spanner.NullJSON `spanner:"keys"`
		NewValues spanner.NullJSON `spanner:"new_values"`
	} `spanner:"mods"`
}

type record struct {
	Data     []*Change      `spanner:"data_change_record"`
	Children []*childRecord `spanner:"child_partitions_record"`
}

type childRecord struct {
	Start      time.Time    `spanner:"start_timestamp"`
	Partitions []*partition `spanner:"child_partitions"`
}

type partition struct {
	Token   string   `spanner:"token"`
	Parents []string `spanner:"parent_partition_tokens"`
}

// cursor records how far a stream partition has been read.
type cursor struct {
	Token    string
	Position time.Time
}

// Work reads the stream partitions whose worker is the group's partition p.
func (s *Stream) Work(ctx context.Context, p group.Partition) error {
	for ctx.Err() == nil {
		open, now, err := s.open(ctx, p.Name())
		for _, from := range open {
			err = errors.Join(err, s.advance(ctx, p, from, now)) // one that fails does not stop the others
		}
		if err != nil && ctx.Err() == nil {
			log.Print("change stream: ", err) // reading continues from the last checkpoint, here or in the next process
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second / 5):
		}
	}
	return nil
}

// advance reads one stream partition up to a given time. It commits the results and the checkpoint in one transaction,
// which fails if this process no longer owns the group's partition.
func (s *Stream) advance(ctx context.Context, p group.Partition, from cursor, to time.Time) error {
	records, err := s.read(ctx, from, to)
	if err != nil {
		return err
	}
	_, err = p.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		if err := from.unchanged(ctx, txn); err != nil {
			return err
		}
		writes, finished := []*spanner.Mutation{}, false
		for _, r := range records {
			for _, change := range r.Data {
				writes = append(writes, s.Results(*change)...)
			}
			finished = finished || len(r.Children) > 0
		}
		children, err := s.children(ctx, txn, records)
		if err != nil {
			return err
		}
		checkpoint := spanner.Update("orders_stream", []string{"token", "position", "finished"},
			[]any{from.Token, to.Add(time.Microsecond), finished})
		return txn.BufferWrite(append(append(writes, children...), checkpoint))
	})
	return err // after spindle.ErrFenced, this process has lost the partition, and ctx has ended
}

var errAdvanced = errors.New("an earlier commit, whose outcome was unknown, has already moved the checkpoint")

// unchanged returns errAdvanced if the checkpoint has moved since reading began.
func (c cursor) unchanged(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
	row, err := txn.ReadRow(ctx, "orders_stream", spanner.Key{c.Token}, []string{"position"})
	if err != nil {
		return err
	}
	var at time.Time
	if err := row.Columns(&at); err != nil || at.Equal(c.Position) {
		return err
	}
	return errAdvanced
}

func (s *Stream) read(ctx context.Context, from cursor, to time.Time) (all []*record, err error) {
	query := spanner.Statement{
		SQL: `SELECT ChangeRecord FROM READ_orders_changes(start_timestamp => @from, end_timestamp => @to,
			partition_token => @token, heartbeat_milliseconds => 10000)`,
		Params: map[string]any{"from": from.Position, "to": to, "token": spanner.NullString{StringVal: from.Token, Valid: from.Token != ""}},
	}
	err = s.DB.Single().Query(ctx, query).Do(func(row *spanner.Row) error {
		var r struct{ ChangeRecord []*record }
		err := row.ToStructLenient(&r)
		all = append(all, r.ChangeRecord...)
		return err
	})
	return all, err
}

// open returns the stream partitions that a worker can read now, and the current time by Spanner's clock. A stream
// partition can be read once all of its parents are finished.
func (s *Stream) open(ctx context.Context, worker string) (open []cursor, now time.Time, err error) {
	query := spanner.Statement{
		SQL: `SELECT token, position FROM orders_stream AS s WHERE worker = @worker AND NOT finished AND ARRAY_LENGTH(parents) =
			(SELECT COUNT(*) FROM orders_stream AS parent WHERE parent.token IN UNNEST(s.parents) AND parent.finished)`,
		Params: map[string]any{"worker": worker},
	}
	snapshot := s.DB.Single().WithTimestampBound(spanner.ExactStaleness(0))
	if err := spanner.SelectAll(snapshot.Query(ctx, query), &open); err != nil {
		return nil, now, err
	}
	now, err = snapshot.Timestamp()
	return slices.DeleteFunc(open, func(c cursor) bool { return now.Before(c.Position) }), now, err
}

// children returns a row to insert for each new child partition in the records. Several parents can have the same
// child, so children skips partitions that already have a row.
func (s *Stream) children(ctx context.Context, txn *spanner.ReadWriteTransaction, records []*record) (rows []*spanner.Mutation, err error) {
	for _, r := range records {
		for _, c := range r.Children {
			for _, p := range c.Partitions {
				switch _, err := txn.ReadRow(ctx, "orders_stream", spanner.Key{p.Token}, []string{"token"}); {
				case errors.Is(err, spanner.ErrRowNotFound):
					rows = append(rows, spanner.Insert("orders_stream", []string{"token", "worker", "position", "parents", "finished"},
						[]any{p.Token, s.worker(p.Token), c.Start, append([]string{}, p.Parents...), false}))
				case err != nil:
					return nil, err
				}
			}
		}
	}
	return rows, nil
}

func (s *Stream) worker(token string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(token))
	return strconv.Itoa(int(hash.Sum32() % uint32(s.Workers)))
}
