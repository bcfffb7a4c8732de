//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/demokit"
)

// A report that a teller prints begins with its kind. The comments list the values that follow.
const (
	leads    = "leads"    // the token
	read     = "read"     // the balance, and the balance after the deposit
	resumed  = "resumed"  // the result of HasLock
	wrote    = "wrote"    // the new balance
	rejected = "rejected" // the balance that was not written
)

const lease = time.Second

// teller is a process that competes for a lock. Once elected, it makes one deposit to one account.
type teller struct {
	orders <-chan string

	db      *spanner.Client
	lock    *spindle.Lock
	account string
	deposit int64
	fence   bool
}

func (t teller) main(ctx context.Context, args []string) error {
	database := flag.String("db", "", "")
	flag.StringVar(&t.account, "account", "", "")
	flag.Int64Var(&t.deposit, "deposit", 0, "")
	flag.BoolVar(&t.fence, "fence", false, "")
	_ = flag.CommandLine.Parse(args) // exits on an error

	var err error
	if t.db, err = spanner.NewClient(context.Background(), *database, spindle.ClientOptions(lease)...); err != nil {
		return err
	}
	defer t.db.Close()
	elected := make(chan spindle.Term, 1)
	t.lock = spindle.New(t.db, demokit.Table, t.account,
		spindle.WithLease(lease),
		spindle.WithLeader(func(ctx context.Context, term spindle.Term) {
			select {
			case elected <- term:
			default: // a term is waiting already
			}
			<-ctx.Done()
		}),
		spindle.WithLogger(slog.New(slog.DiscardHandler)))
	if err := t.lock.Run(ctx); err != nil {
		return err
	}
	for {
		select {
		case term := <-elected:
			if err := t.makeDeposit(ctx, term); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// makeDeposit does the leader's work. It reads the balance, checks that it holds the lock, pauses, and writes the new
// balance. If the lock is lost during the pause, the check does not help. Only the fence can reject the write.
func (t teller) makeDeposit(ctx context.Context, term spindle.Term) error {
	fmt.Println(leads, term.Token())
	row, err := t.db.Single().ReadRow(ctx, "accounts", spanner.Key{t.account}, []string{"balance"})
	if err != nil {
		return err
	}
	var balance int64
	if err := row.Columns(&balance); err != nil {
		return err
	}
	if held, _ := t.lock.HasLock(); !held {
		return errors.New("the lock was lost before the deposit was made")
	}
	fmt.Println(read, balance, balance+t.deposit)

	t.think()

	write := []*spanner.Mutation{
		spanner.Update("accounts", []string{"name", "balance"}, []any{t.account, balance + t.deposit}),
	}
	if t.fence {
		_, err = term.Apply(ctx, write) // fails once a newer token exists
	} else {
		_, err = t.db.Apply(ctx, write) // succeeds no matter how late it is
	}
	switch {
	case errors.Is(err, spindle.ErrFenced):
		fmt.Println(rejected, balance+t.deposit)
	case err != nil:
		return err
	default:
		fmt.Println(wrote, balance+t.deposit)
	}
	return nil
}

// think is the pause between the check and the write. It returns when the story tells the teller to go on.
func (t teller) think() {
	<-t.orders
	held, _ := t.lock.HasLock()
	fmt.Println(resumed, held)
}
