package ddl_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle/ddl"
)

func ExampleStatement() {
	fmt.Println(ddl.Statement(databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL, "locktable"))
	// Output:
	// CREATE TABLE locktable (
	//     name      STRING(MAX) NOT NULL,
	//     heartbeat TIMESTAMP OPTIONS (allow_commit_timestamp=true),
	//     token     TIMESTAMP OPTIONS (allow_commit_timestamp=true),
	//     writer    STRING(MAX),
	// ) PRIMARY KEY (name)
}

func ExampleCreate() {
	err := ddl.Create(context.Background(), "projects/my-project/instances/my-instance/databases/my-db", "locktable")
	var wrong *ddl.SchemaError
	if errors.As(err, &wrong) {
		for _, problem := range wrong.Problems {
			log.Printf("table %s: %s", wrong.Table, problem)
		}
	}
}
