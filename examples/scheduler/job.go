package main

import (
	"context"
	"log"
	"time"

	"cloud.google.com/go/spanner"
	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
)

// runs contains one row for each second for which the job ran. The primary key rejects another run for the same second,
// and the fence rejects writes by former leaders.
const runs = `CREATE TABLE IF NOT EXISTS runs (
	second TIMESTAMP NOT NULL,
	token  INT64 NOT NULL,
) PRIMARY KEY (second DESC)`

func createRuns(ctx context.Context, path string) error {
	admin, err := database.NewDatabaseAdminClient(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	op, err := admin.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{Database: path, Statements: []string{runs}})
	if err != nil {
		return err
	}
	return op.Wait(ctx)
}

// lead runs the job every second until ctx ends. ctx ends when this replica loses the lock, or when the job hangs. If
// the replica is stopped, ctx ends only after the other replicas have had time to learn that it is leaving.
func (r *replica) lead(ctx context.Context, term spindle.Term) {
	for ctx.Err() == nil {
		second := time.Now().Truncate(time.Second)
		switch err := r.job(ctx, term, second); {
		case err == nil:
			log.Print("ran the job for ", second.UTC().Format(time.TimeOnly))
		case spanner.ErrCode(err) != codes.AlreadyExists: // AlreadyExists: the previous leader ran it
			log.Print("the job failed: ", err) // after ErrFenced, ctx ends soon
		}
		select {
		case <-time.After(time.Until(second.Add(time.Second))):
		case <-ctx.Done():
		}
		term.Progress()
	}
}

// sweep deletes old runs until ctx ends. It runs on every replica, but only the lock's holder deletes anything. HasLock
// makes no RPC. If the holder is paused after HasLock and loses the lock, the fence rejects its late write.
func (r *replica) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		if held, token := r.lock.HasLock(); held {
			old := spanner.KeyRange{Start: spanner.Key{time.Now().Add(-time.Hour)}, End: spanner.Key{}, Kind: spanner.ClosedClosed} // seconds descend
			if _, err := r.lock.Apply(ctx, token, []*spanner.Mutation{spanner.Delete("runs", old)}); err != nil {
				log.Print("did not sweep: ", err)
			}
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// job runs the job for the given second. Its write commits only if this replica still leads.
func (r *replica) job(ctx context.Context, term spindle.Term, second time.Time) error {
	_, err := term.Apply(ctx, []*spanner.Mutation{
		spanner.Insert("runs", []string{"second", "token"}, []any{second, int64(term.Token())}),
	})
	return err
}
