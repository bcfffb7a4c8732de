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

// runs has a row for each second whose job was run. The primary key keeps a job from running twice, and the fence keeps
// former leaders from writing.
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

// lead runs each second's job until ctx ends. ctx ends when the lock is lost. If this replica is being stopped, ctx
// ends once the other replicas know that it is leaving.
func (r *replica) lead(ctx context.Context, term spindle.Term) {
	for ctx.Err() == nil {
		second := time.Now().Truncate(time.Second)
		switch err := r.job(ctx, term, second); {
		case err == nil:
			log.Print("ran the job of ", second.UTC().Format(time.TimeOnly))
		case spanner.ErrCode(err) != codes.AlreadyExists: // AlreadyExists: the last leader ran it
			log.Print("did not run: ", err) // after ErrFenced, ctx ends soon
		}
		select {
		case <-time.After(time.Until(second.Add(time.Second))):
		case <-ctx.Done():
		}
	}
}

// job does the work of one second. Its write commits only while this replica leads.
func (r *replica) job(ctx context.Context, term spindle.Term, second time.Time) error {
	_, err := term.Apply(ctx, []*spanner.Mutation{
		spanner.Insert("runs", []string{"second", "token"}, []any{second, int64(term.Token())}),
	})
	return err
}
