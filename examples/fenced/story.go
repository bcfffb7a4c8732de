//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/demokit"
)

const (
	opening  = 100 // each account's initial balance
	depositA = 10
	depositB = 50
)

const accounts = `CREATE TABLE accounts (name STRING(MAX) NOT NULL, balance INT64) PRIMARY KEY (name)`

// story runs the demonstration. It plays the same scenario twice, first with the fence and then without it.
type story struct {
	*demokit.Story
	database *demokit.Database
	db       *spanner.Client

	from *demokit.Child // the sender of the last report
	kind string         // the kind of the last report
}

func tell(ctx context.Context) error {
	s := &story{Story: demokit.NewStory()}
	s.Hear = s.hear
	s.Print(demokit.Bold, "A leader reads a balance, is paused for longer than its lease, and then writes.")
	s.Print(demokit.Plain, "During the pause, another process leads and writes. The balance starts at %d.", opening)
	s.Print(demokit.Plain, "A deposits %d, and B deposits %d. The lease is %v.\n", depositA, depositB, lease)
	var err error
	if s.database, err = demokit.Open(ctx, accounts); err != nil {
		return err
	}
	defer s.database.Close()
	if s.db, err = spanner.NewClient(context.Background(), s.database.Path); err != nil {
		return err
	}
	defer s.db.Close()

	s.Print(demokit.Bold, "With the fence: lock.Apply(ctx, token, write)")
	with, err := s.round(ctx, "fenced", true)
	if err != nil {
		return err
	}
	s.Print(demokit.Bold, "\nWithout it: client.Apply(ctx, write)")
	without, err := s.round(ctx, "unfenced", false)
	if err != nil {
		return err
	}
	s.Print(demokit.Plain, "")
	s.Print(demokit.Bold, "With the fence     balance %d: A's late write was rejected", with)
	s.Print(demokit.Bold, "Without the fence  balance %d: B's deposit of %d was lost", without, depositB)
	if with != opening+depositB || without != opening+depositA {
		return errors.New("the final balances are wrong; please report this as a bug")
	}
	return nil
}

// round plays the scenario once with a new account, and returns the final balance.
func (s *story) round(ctx context.Context, account string, fence bool) (int64, error) {
	_, err := s.db.Apply(ctx, []*spanner.Mutation{
		spanner.Insert("accounts", []string{"name", "balance"}, []any{account, opening}),
	})
	if err != nil {
		return 0, err
	}
	defer s.End()
	start := func(name string, deposit int) (*demokit.Child, error) {
		child, err := s.Start(ctx, name, "-db", s.database.Path, "-account", account,
			"-deposit", fmt.Sprint(deposit), fmt.Sprintf("-fence=%v", fence))
		if err == nil {
			s.Say(name, demokit.Plain, "is a candidate (process %d)", child.Pid())
		}
		return child, err
	}

	a, err := start("A", depositA)
	if err != nil {
		return 0, err
	}
	if err := s.until(ctx, a, read); err != nil {
		return 0, err
	}
	b, err := start("B", depositB)
	if err != nil {
		return 0, err
	}
	s.Say("", demokit.Bad, "kill -STOP %d: A is paused, and cannot send heartbeats", a.Pid())
	if err := a.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	if err := s.until(ctx, b, read); err != nil {
		return 0, err
	}
	if err := b.Send("go on"); err != nil {
		return 0, err
	}
	if err := s.until(ctx, b, wrote); err != nil {
		return 0, err
	}

	s.Say("", demokit.Bad, "kill -CONT %d: A resumes where it left off", a.Pid())
	if err := errors.Join(a.Send("go on"), a.Signal(syscall.SIGCONT)); err != nil {
		return 0, err
	}
	if err := s.until(ctx, a, wrote, rejected); err != nil {
		return 0, err
	}
	return s.balance(ctx, account)
}

// until shows all reports that arrive, and returns when the given teller sends a report of one of the given kinds.
func (s *story) until(ctx context.Context, from *demokit.Child, kinds ...string) error {
	return s.Until(ctx, func() bool { return s.from == from && slices.Contains(kinds, s.kind) })
}

func (s *story) hear(r demokit.Report) error {
	kind, rest, _ := strings.Cut(r.Line, " ")
	s.from, s.kind = r.Child, kind
	s.show(r.Child.Name, kind, rest)
	return nil
}

func (s *story) show(who, kind, rest string) {
	switch kind {
	case leads:
		s.Say(who, demokit.Good, "LEADS, token %s", rest)
	case read:
		before, after, _ := strings.Cut(rest, " ")
		s.Say(who, demokit.Plain, "reads %s and is about to write %s", before, after)
	case resumed:
		if rest == "false" {
			s.Say(who, demokit.Plain, "HasLock returned true before the pause, but now returns false")
		}
	case wrote:
		if who == "A" {
			s.Say(who, demokit.Bad, "has written %s: B's deposit is LOST", rest)
		} else {
			s.Say(who, demokit.Plain, "has written %s", rest)
		}
	case rejected:
		s.Say(who, demokit.Good, "tries to write %s, but is REJECTED: its token was superseded", rest)
	}
}

func (s *story) balance(ctx context.Context, account string) (int64, error) {
	row, err := s.db.Single().ReadRow(ctx, "accounts", spanner.Key{account}, []string{"balance"})
	if err != nil {
		return 0, err
	}
	var balance int64
	return balance, row.Columns(&balance)
}
