package emulator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	database "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	instance "cloud.google.com/go/spanner/admin/instance/apiv1"
	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	project    = "projects/spindle"
	databaseID = "spindle"
)

// CreateDatabase creates a database in a new instance, applies the statements
// to it in order, and returns its path, in the form
// projects/P/instances/I/databases/D, when it is ready to use. If a statement
// fails, nothing is left behind.
func (e *Emulator) CreateDatabase(ctx context.Context, dialect databasepb.DatabaseDialect, statements ...string) (string, error) {
	path := project + "/instances/spindle-" + uuid.NewString() + "/databases/" + databaseID
	return path, e.CreateDatabaseAgain(ctx, path, dialect, statements...)
}

// CreateDatabaseAgain is CreateDatabase with the path of a database that
// CreateDatabase created, here or on another emulator, and that is gone.
func (e *Emulator) CreateDatabaseAgain(ctx context.Context, path string, dialect databasepb.DatabaseDialect, statements ...string) error {
	parent, err := instanceOf(path)
	if err != nil {
		return err
	}
	if err := e.createInstance(ctx, parent); err != nil {
		return fmt.Errorf("emulator: cannot create an instance: %w", err)
	}
	if err := e.createDatabase(ctx, parent, dialect, statements); err != nil {
		err = fmt.Errorf("emulator: cannot create a database: %w", err)
		return errors.Join(err, e.DropDatabase(context.WithoutCancel(ctx), path))
	}
	return nil
}

// DropDatabase drops a database that CreateDatabase created, with its instance. One
// that is gone, as after the emulator was started again, is no error.
func (e *Emulator) DropDatabase(ctx context.Context, path string) error {
	parent, err := instanceOf(path)
	if err != nil {
		return err
	}
	admin, err := instance.NewInstanceAdminClient(ctx, e.ClientOptions()...)
	if err != nil {
		return fmt.Errorf("emulator: %w", err)
	}
	defer admin.Close()
	err = admin.DeleteInstance(ctx, &instancepb.DeleteInstanceRequest{Name: parent})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("emulator: cannot drop %s: %w", path, err)
	}
	return nil
}

// instanceOf returns projects/P/instances/I of the path of a database.
func instanceOf(path string) (string, error) {
	parent, _, ok := strings.Cut(path, "/databases/")
	if !ok {
		return "", fmt.Errorf("emulator: %q is not the path of a database: want projects/P/instances/I/databases/D", path)
	}
	return parent, nil
}

func (e *Emulator) createInstance(ctx context.Context, path string) error {
	admin, err := instance.NewInstanceAdminClient(ctx, e.ClientOptions()...)
	if err != nil {
		return err
	}
	defer admin.Close()
	op, err := admin.CreateInstance(ctx, &instancepb.CreateInstanceRequest{
		Parent:     project,
		InstanceId: strings.TrimPrefix(path, project+"/instances/"),
		Instance: &instancepb.Instance{
			Config:      project + "/instanceConfigs/emulator-config",
			DisplayName: "spindle",
			NodeCount:   1,
		},
	})
	if err != nil {
		return err
	}
	_, err = op.Wait(ctx)
	return err
}

func (e *Emulator) createDatabase(ctx context.Context, parent string, dialect databasepb.DatabaseDialect, statements []string) error {
	admin, err := database.NewDatabaseAdminClient(ctx, e.ClientOptions()...)
	if err != nil {
		return err
	}
	defer admin.Close()

	req := &databasepb.CreateDatabaseRequest{Parent: parent, DatabaseDialect: dialect}
	// Only GoogleSQL takes further statements with the first.
	postgres := dialect == databasepb.DatabaseDialect_POSTGRESQL
	if postgres {
		req.CreateStatement = `CREATE DATABASE "` + databaseID + `"`
	} else {
		req.CreateStatement = "CREATE DATABASE `" + databaseID + "`"
		req.ExtraStatements = statements
	}
	op, err := admin.CreateDatabase(ctx, req)
	if err != nil {
		return err
	}
	db, err := op.Wait(ctx)
	if err != nil || !postgres || len(statements) == 0 {
		return err
	}
	update, err := admin.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{
		Database:   db.GetName(),
		Statements: statements,
	})
	if err != nil {
		return err
	}
	return update.Wait(ctx)
}
