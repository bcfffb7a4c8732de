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

// CreateDatabase creates a database in a new instance, and applies the statements to it in order. It returns the
// database's path, in the form projects/P/instances/I/databases/D, when the database is ready to use. If CreateDatabase
// fails, it deletes the database and the instance.
func (e *Emulator) CreateDatabase(ctx context.Context, dialect databasepb.DatabaseDialect, statements ...string) (string, error) {
	path := "projects/spindle/instances/spindle-" + uuid.NewString() + "/databases/spindle"
	err := e.CreateDatabaseAgain(ctx, path, dialect, statements...)
	if err != nil {
		err = errors.Join(err, e.DropDatabase(context.WithoutCancel(ctx), path))
	}
	return path, err
}

// CreateDatabaseAgain creates the database with the given path, and its instance, if they do not exist. It applies the
// statements only if it creates the database.
func (e *Emulator) CreateDatabaseAgain(ctx context.Context, path string, dialect databasepb.DatabaseDialect, statements ...string) error {
	parent, id, err := cut(path)
	if err != nil {
		return err
	}
	if err := e.createInstance(ctx, parent); err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("emulator: cannot create instance %s: %w", parent, err)
	}
	if err := e.createDatabase(ctx, parent, id, dialect, statements); err != nil && status.Code(err) != codes.AlreadyExists {
		return fmt.Errorf("emulator: cannot create database %s: %w", path, err)
	}
	return nil
}

// DropDatabase drops a database that CreateDatabase created, and its instance. It returns no error if the database does
// not exist, because an emulator loses all databases when it is restarted.
func (e *Emulator) DropDatabase(ctx context.Context, path string) error {
	parent, _, err := cut(path)
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

// cut splits a database's path into the instance's path, projects/P/instances/I, and the database's id, D.
func cut(path string) (parent, id string, err error) {
	parent, id, ok := strings.Cut(path, "/databases/")
	if !ok {
		return "", "", fmt.Errorf("emulator: %q is not a database path of the form projects/P/instances/I/databases/D", path)
	}
	return parent, id, nil
}

func (e *Emulator) createInstance(ctx context.Context, path string) error {
	admin, err := instance.NewInstanceAdminClient(ctx, e.ClientOptions()...)
	if err != nil {
		return err
	}
	defer admin.Close()
	project, id, _ := strings.Cut(path, "/instances/")
	op, err := admin.CreateInstance(ctx, &instancepb.CreateInstanceRequest{
		Parent:     project,
		InstanceId: id,
		Instance:   &instancepb.Instance{Config: project + "/instanceConfigs/emulator-config", DisplayName: id, NodeCount: 1},
	})
	if err != nil {
		return err
	}
	_, err = op.Wait(ctx)
	return err
}

func (e *Emulator) createDatabase(ctx context.Context, parent, id string, dialect databasepb.DatabaseDialect, statements []string) error {
	admin, err := database.NewDatabaseAdminClient(ctx, e.ClientOptions()...)
	if err != nil {
		return err
	}
	defer admin.Close()

	req := &databasepb.CreateDatabaseRequest{Parent: parent, DatabaseDialect: dialect}
	// Only GoogleSQL accepts further statements in the request that creates the database.
	postgres := dialect == databasepb.DatabaseDialect_POSTGRESQL
	if postgres {
		req.CreateStatement = `CREATE DATABASE "` + id + `"`
	} else {
		req.CreateStatement = "CREATE DATABASE `" + id + "`"
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
	update, err := admin.UpdateDatabaseDdl(ctx, &databasepb.UpdateDatabaseDdlRequest{Database: db.GetName(), Statements: statements})
	if err != nil {
		return err
	}
	return update.Wait(ctx)
}
