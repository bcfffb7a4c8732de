package cli

import (
	"context"
	"fmt"
	"os"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instance "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// createDatabase creates what is missing of the instance and the database that --db names. It does so only on an
// emulator: elsewhere they cost money, and somebody has to choose a size and a place.
func createDatabase(ctx context.Context, o *common, dialectName string) error {
	if err := o.check(); err != nil {
		return err
	}
	dialect, err := dialectOf(dialectName)
	if err != nil {
		return err
	}
	project, inst, db := partsOf(o.db)
	if os.Getenv("SPANNER_EMULATOR_HOST") == "" {
		return misuse(`--create is for an emulator, and SPANNER_EMULATOR_HOST is not set. On Cloud Spanner:
  gcloud spanner instances create %[2]s --project=%[1]s --config=CONFIG --description=%[2]s --processing-units=100
  gcloud spanner databases create %[3]s --project=%[1]s --instance=%[2]s --database-dialect=%[4]s
  spindle init --db %[5]s
CONFIG is one of gcloud spanner instance-configs list.`, project, inst, db, dialect, o.db)
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if err := createInstance(ctx, project, inst); err != nil {
		return o.notCreated("instance", inst, err)
	}
	if err := createIn(ctx, project, inst, db, dialect); err != nil {
		return o.notCreated("database", db, err)
	}
	return nil
}

func (o *common) notCreated(what, id string, err error) error {
	err = fmt.Errorf("can't create %s %s: %w", what, id, err)
	if status.Code(err) == codes.InvalidArgument { // it is about the id, and says so
		return err
	}
	return o.explain(err)
}

func createInstance(ctx context.Context, project, id string) error {
	admin, err := instance.NewInstanceAdminClient(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	op, err := admin.CreateInstance(ctx, &instancepb.CreateInstanceRequest{
		Parent: "projects/" + project, InstanceId: id,
		Instance: &instancepb.Instance{Config: "projects/" + project + "/instanceConfigs/emulator-config", DisplayName: id, NodeCount: 1},
	})
	if err == nil {
		_, err = op.Wait(ctx)
	}
	return unlessThere(err)
}

func createIn(ctx context.Context, project, inst, id string, dialect databasepb.DatabaseDialect) error {
	admin, err := database.NewDatabaseAdminClient(ctx)
	if err != nil {
		return err
	}
	defer admin.Close()
	quote := "`"
	if dialect == databasepb.DatabaseDialect_POSTGRESQL {
		quote = `"`
	}
	op, err := admin.CreateDatabase(ctx, &databasepb.CreateDatabaseRequest{
		Parent: "projects/" + project + "/instances/" + inst, DatabaseDialect: dialect, CreateStatement: "CREATE DATABASE " + quote + id + quote,
	})
	if err == nil {
		_, err = op.Wait(ctx)
	}
	return unlessThere(err)
}

func unlessThere(err error) error {
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}
