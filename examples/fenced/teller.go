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

// What a teller reports, with numbers after it.
const (
	leads    = "leads"    // and the token
	read     = "read"     // and the balance, and what it will be
	resumed  = "resumed"  // and what HasLock says
	wrote    = "wrote"    // and the balance
	rejected = "rejected" // and what the balance would have been
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
	_ = flag.CommandLine.Parse(args) // which exits on an error

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
			default: // it has made its deposit
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

// makeDeposit does a leader's work: read, check, think, write. The check can't see what happens after it: that is what the
// fence is for.
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
		_, err = t.db.Apply(ctx, write) // succeeds whenever it arrives
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

// think takes the time between the check and the write. It lasts until the story lets it go on.
func (t teller) think() {
	<-t.orders
	held, _ := t.lock.HasLock()
	fmt.Println(resumed, held)
}
