package main

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/iterator"
)

const (
	jobs = 120

	// effort is how long a job takes.
	effort = 100 * time.Millisecond
)

const jobsTable = `CREATE TABLE jobs (
	id      INT64 NOT NULL,
	result  INT64,
	site    STRING(MAX),
	done_at TIMESTAMP OPTIONS (allow_commit_timestamp=true),
) PRIMARY KEY (id)`

var errNoJob = errors.New("no job is left")

// job is the id of a row in the queue.
type job int64

func fillQueue(ctx context.Context, db *spanner.Client) error {
	var rows []*spanner.Mutation
	for id := range jobs {
		rows = append(rows, spanner.Insert("jobs", []string{"id"}, []any{id}))
	}
	_, err := db.Apply(ctx, rows)
	return err
}

// nextJob returns the n-th worker's first unfinished job.
func nextJob(ctx context.Context, db *spanner.Client, n int) (job, error) {
	query := spanner.Statement{
		SQL:    `SELECT id FROM jobs WHERE done_at IS NULL AND MOD(id, @workers) = @n ORDER BY id LIMIT 1`,
		Params: map[string]any{"workers": workers, "n": n},
	}
	rows := db.Single().Query(ctx, query)
	defer rows.Stop()
	row, err := rows.Next()
	if errors.Is(err, iterator.Done) {
		return 0, errNoJob
	}
	if err != nil {
		return 0, err
	}
	var id int64
	return job(id), row.Columns(&id)
}

func (j job) process() int64 {
	time.Sleep(effort)
	return int64(j) * int64(j)
}

func (j job) finished(site string, result int64) *spanner.Mutation {
	return spanner.Update("jobs", []string{"id", "result", "site", "done_at"},
		[]any{int64(j), result, site, spanner.CommitTimestamp})
}

// share is one site's share of the finished jobs.
type share struct {
	jobs        int64
	first, last time.Time // by Spanner's clock
}

// shares reads the share of each site.
func shares(ctx context.Context, db *spanner.Client) (map[string]share, error) {
	all := map[string]share{}
	query := spanner.NewStatement(`SELECT site, COUNT(*), MIN(done_at), MAX(done_at) FROM jobs WHERE site IS NOT NULL GROUP BY site`)
	err := db.Single().Query(ctx, query).Do(func(row *spanner.Row) error {
		var site string
		var s share
		err := row.Columns(&site, &s.jobs, &s.first, &s.last)
		all[site] = s
		return err
	})
	return all, err
}
