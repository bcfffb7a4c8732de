//go:build unix

package main

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
)

const (
	// pace is the interval at which items are appended to each partition.
	pace = 100 * time.Millisecond

	// effort is how long it takes to process an item. It is slightly shorter than pace, so the processes are busy most
	// of the time but can keep up.
	effort = 70 * time.Millisecond

	batch = 5 // the maximum number of items in a commit
)

var tables = []string{
	`CREATE TABLE items (part STRING(MAX) NOT NULL, position INT64 NOT NULL) PRIMARY KEY (part, position)`,
	`CREATE TABLE checkpoints (part STRING(MAX) NOT NULL, position INT64 NOT NULL) PRIMARY KEY (part)`,
	`CREATE TABLE results (
		part     STRING(MAX) NOT NULL,
		position INT64 NOT NULL,
		consumer STRING(MAX) NOT NULL,
		token    INT64 NOT NULL,
	) PRIMARY KEY (part, position)`,
}

// item is the position of an item in its partition, starting at 1.
type item int64

// next reads up to batch items after a position of a partition.
func next(ctx context.Context, db *spanner.Client, part string, after item) ([]item, error) {
	rest := spanner.KeyRange{Start: spanner.Key{part, int64(after)}, End: spanner.Key{part}, Kind: spanner.OpenClosed}
	var items []item
	err := db.Single().ReadWithOptions(ctx, "items", rest, []string{"position"}, &spanner.ReadOptions{Limit: batch}).Do(func(row *spanner.Row) error {
		var i item
		err := row.Columns(&i)
		items = append(items, i)
		return err
	})
	return items, err
}

// checkpointOf reads the position of the last item of a partition that was processed.
func checkpointOf(ctx context.Context, db *spanner.Client, part string) (i item, err error) {
	row, err := db.Single().ReadRow(ctx, "checkpoints", spanner.Key{part}, []string{"position"})
	if err != nil {
		return 0, err
	}
	err = row.Columns(&i)
	return i, err
}

// process processes items until ctx ends, and returns the items that it processed. It always processes at least one.
func process(ctx context.Context, items []item) []item {
	for n := range items {
		time.Sleep(effort)
		if ctx.Err() != nil {
			return items[:n+1]
		}
	}
	return items
}

func checkpoint(part string, i item) *spanner.Mutation {
	return spanner.InsertOrUpdate("checkpoints", []string{"part", "position"}, []any{part, int64(i)})
}

// result returns a mutation that inserts the result of an item. Its commit fails if the item already has a result.
func result(part string, i item, consumer string, token spindle.Token) *spanner.Mutation {
	return spanner.Insert("results", []string{"part", "position", "consumer", "token"}, []any{part, int64(i), consumer, int64(token)})
}

// open creates a checkpoint at position 0 for each partition.
func open(ctx context.Context, db *spanner.Client) error {
	var writes []*spanner.Mutation
	for n := range partitions {
		writes = append(writes, checkpoint(strconv.Itoa(n), 0))
	}
	_, err := db.Apply(ctx, writes)
	return err
}

// produce appends an item to each partition at a steady pace, until ctx ends.
func produce(ctx context.Context, db *spanner.Client, appended *atomic.Int64) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := item(1); ; i++ {
		var writes []*spanner.Mutation
		for n := range partitions {
			writes = append(writes, spanner.InsertOrUpdate("items", []string{"part", "position"}, []any{strconv.Itoa(n), int64(i)}))
		}
		if _, err := db.Apply(context.WithoutCancel(ctx), writes, spanner.ApplyAtLeastOnce()); err != nil {
			return err
		}
		appended.Add(partitions)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// processed returns the number of processed items, which is the sum of all checkpoints.
func processed(ctx context.Context, db *spanner.Client) (n int64, err error) {
	query := spanner.NewStatement(`SELECT SUM(position) FROM checkpoints`)
	err = db.Single().Query(ctx, query).Do(func(row *spanner.Row) error { return row.Columns(&n) })
	return n, err
}

// audit counts the items and their results. disorder is the number of results that have a larger token than the next
// result in the same partition. There should be none.
func audit(ctx context.Context, db *spanner.Client) (items, results, disorder int64, err error) {
	query := spanner.NewStatement(`SELECT (SELECT COUNT(*) FROM items), (SELECT COUNT(*) FROM results),
		(SELECT COUNT(*) FROM results AS a JOIN results AS b ON a.part = b.part AND a.position + 1 = b.position WHERE a.token > b.token)`)
	err = db.Single().Query(ctx, query).Do(func(row *spanner.Row) error { return row.Columns(&items, &results, &disorder) })
	return items, results, disorder, err
}
