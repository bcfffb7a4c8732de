package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/lock"
)

func ExampleDo() {
	var ctx context.Context
	var db *spanner.Client

	m := lock.New(db, "locktable", "invoice-4711")
	err := lock.Do(ctx, m, func(ctx context.Context) error {
		_, err := m.Apply(ctx, []*spanner.Mutation{ // or m.ReadWriteTransaction
			spanner.Update("invoices", []string{"id", "state"}, []any{4711, "sent"}),
		})
		return err
	})
	switch {
	case errors.Is(err, spindle.ErrFenced):
		log.Print("the lock was lost before, and nothing was written: ", err)
	case errors.Is(err, lock.ErrNotHeld):
		log.Print("another may have done it at the same time: ", err)
	}
}

// Several processes take turns at a queue of jobs. Each has one Mutex, which it locks again for each job.
func ExampleMutex() {
	var ctx context.Context
	var db *spanner.Client
	var n *spindle.Notifier // of the process, from spindle.ListenNotifications
	var next func(context.Context) (job string, err error)

	m := lock.New(db, "locktable", "jobs", spindle.WithNotifier(n))
	for ctx.Err() == nil {
		err := lock.Do(ctx, m, func(ctx context.Context) error {
			job, err := next(ctx)
			if err != nil {
				return err
			}
			_, err = m.Apply(ctx, []*spanner.Mutation{
				spanner.Update("jobs", []string{"name", "state"}, []any{job, "taken"}),
			})
			return err
		})
		if err != nil {
			log.Print(err) // if the lock was lost, nothing was written, and the job is taken in another turn
		}
	}
}

func ExampleMutex_TryLock() {
	var ctx context.Context
	var db *spanner.Client

	m := lock.New(db, "locktable", "nightly")
	ok, err := m.TryLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if !ok {
		return // another is at it
	}
	defer func() { _ = m.Unlock(ctx) }()
}

func ExampleAll() {
	var ctx context.Context
	var db *spanner.Client

	accounts := lock.All(db, "locktable", []string{"account-1", "account-2"}) // in any order
	err := lock.Do(ctx, accounts, func(ctx context.Context) error {
		_, err := accounts.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
			return nil // the transfer
		})
		return err
	})
	if err != nil {
		log.Print(err)
	}
}

func ExampleSemaphore() {
	var ctx context.Context
	var db *spanner.Client

	imports := lock.NewSemaphore(db, "locktable", "import", 3)
	err := lock.Do(ctx, imports, func(ctx context.Context) error {
		_, err := imports.Permit(ctx).Apply(ctx, []*spanner.Mutation{
			spanner.Insert("rows", []string{"id"}, []any{1}),
		})
		return err
	})
	if err != nil {
		log.Print(err)
	}
}

func ExampleName() {
	fmt.Println(lock.Name("router-7", "snmp-query"))
	fmt.Println(lock.Name("router-7/snmp-query"))
	// Output:
	// router-7/snmp-query
	// router-7%2Fsnmp-query
}

func ExampleOnce() {
	var ctx context.Context
	var db *spanner.Client
	var report func(context.Context) error

	// Each machine calls this at 3:00 UTC by its own clock.
	once := lock.NewOnce(db, "locktable", "nightly")
	ran, err := once.Do(ctx, lock.Every(24*time.Hour, 3*time.Hour), func(ctx context.Context, run lock.Run) error {
		return report(ctx)
	})
	switch {
	case !ran && errors.Is(err, lock.ErrPassed):
		log.Print("a later night's was done first: ", err)
	case err != nil:
		log.Print("not done, so the next caller does it: ", err)
	case !ran:
		log.Print("another machine has done it")
	}
}

// Writes that are committed together with Done take effect once for each day, even if a machine dies right after the
// commit.
func ExampleRun_Done() {
	var ctx context.Context
	var db *spanner.Client

	once := lock.NewOnce(db, "locktable", "interest")
	_, err := once.Do(ctx, lock.Every(24*time.Hour), func(ctx context.Context, run lock.Run) error {
		_, err := db.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
			if err := txn.BufferWrite(run.Done()); err != nil {
				return err
			}
			return txn.BufferWrite([]*spanner.Mutation{
				spanner.Update("accounts", []string{"id", "balance"}, []any{1, 90}),
			})
		})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
