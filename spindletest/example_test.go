package spindletest_test

import (
	"testing"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/spindletest"
)

// A test of code that keeps data of its own beside the locks.
func ExampleNew() {
	_ = func(t *testing.T) { // func TestAccounts(t *testing.T)
		db := spindletest.New(t, spindletest.WithDDL(
			"CREATE TABLE accounts (id INT64 NOT NULL, balance INT64) PRIMARY KEY (id)",
		))
		_, err := db.Client.Apply(t.Context(), []*spanner.Mutation{
			spanner.Insert("accounts", []string{"id", "balance"}, []any{1, 100}),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
