//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/demokit"
)

const (
	// calm is how long the story waits between two acts.
	calm = 1500 * time.Millisecond

	// still is how long the story waits before it draws an unchanged picture again.
	still = time.Second
)

// story runs the demonstration in the parent process, which watches the group without joining it.
type story struct {
	*demokit.Story
	database *demokit.Database
	db       *spanner.Client
	appended atomic.Int64

	cast    map[string]part // the role of each child, by name
	even    bool            // the running processes share the partitions evenly
	drawn   picture         // the picture that was drawn last
	at      time.Time       // when it was drawn
	backlog int64
	late    int
	vacant  vacancies
}

// part is the role that a child plays.
type part int

const (
	works    part = iota + 1
	silently      // it was killed, or is paused
	leaves
)

func tell(ctx context.Context) error {
	s := &story{Story: demokit.NewStory(), cast: map[string]part{}}
	s.Hear, s.Look = s.hear, s.look
	s.Print(demokit.Bold, "Three processes consume a queue that is divided into %d partitions.", partitions)
	s.Print(demokit.Bold, "Each item gets exactly one result, despite failures. The lease is %v.\n", lease)
	var err error
	if s.database, err = s.Open(ctx, tables...); err != nil {
		return err
	}
	defer s.database.Close()
	if s.db, err = spindle.Open(ctx, s.database.Path, spindle.ClientOptions(lease)...); err != nil {
		return err
	}
	defer s.db.Close()
	if err := open(ctx, s.db); err != nil {
		return err
	}
	producing, stop := context.WithCancel(ctx)
	produced := make(chan error, 1)
	go func() { produced <- produce(producing, s.db, &s.appended) }()
	defer s.End()
	err = s.play(ctx)
	stop()
	if err := errors.Join(err, <-produced); err != nil {
		return err
	}
	s.Say("", demokit.Plain, "no more items are appended, and the processes finish the remaining ones")
	s.backlog = s.appended.Load() // ignore earlier reads
	for left := s.backlog; left > 0; left = s.backlog {
		if err := s.Until(ctx, func() bool { return s.backlog < left }); err != nil {
			return err
		}
	}
	return s.summarize(ctx)
}

// play starts the first three processes and then performs the acts.
func (s *story) play(ctx context.Context) error {
	children := map[string]*demokit.Child{}
	for _, name := range []string{"A", "B", "C"} {
		child, err := s.start(ctx, name)
		if err != nil {
			return err
		}
		children[name] = child
	}
	s.Print(demokit.Bold, "%*s0123456789abcdef  todo", demokit.Margin, "")
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.Say("", demokit.Good, "the partitions are balanced: each process owns five or six")
	for _, act := range []func(context.Context) error{
		func(ctx context.Context) error { return s.kill(ctx, children["B"]) },
		s.join,
		func(ctx context.Context) error { return s.stop(ctx, children["A"]) },
		func(ctx context.Context) error { return s.leave(ctx, children["C"]) },
	} {
		end := time.Now().Add(calm)
		if err := s.Until(ctx, func() bool { return time.Now().After(end) }); err != nil {
			return err
		}
		s.vacant.longest = 0
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) kill(ctx context.Context, c *demokit.Child) error {
	s.Say("", demokit.Bad, "kill -9 %d: %s is killed, but still owns its partitions (x) until its lease expires", c.Pid(), c.Name)
	if err := s.signal(ctx, c, syscall.SIGKILL, silently); err != nil {
		return err
	}
	s.Say("", demokit.Good, "the other processes have taken over the partitions, which were idle for %s", demokit.InLeases(s.vacant.longest, lease))
	return nil
}

// stop pauses a process until the other processes have taken over its partitions, and then resumes it.
func (s *story) stop(ctx context.Context, c *demokit.Child) error {
	s.Say("", demokit.Bad, "kill -STOP %d: %s is paused in the middle of its work; x marks its partitions", c.Pid(), c.Name)
	if err := s.signal(ctx, c, syscall.SIGSTOP, silently); err != nil {
		return err
	}
	s.Say("", demokit.Bad, "kill -CONT %d: %s resumes and tries to commit its work, but other processes now own its partitions", c.Pid(), c.Name)
	if err := s.signal(ctx, c, syscall.SIGCONT, works); err != nil {
		return err
	}
	if err := s.Until(ctx, func() bool { return s.late > 0 }); err != nil {
		return err
	}
	s.Say("", demokit.Good, "late commits refused by the fence: %d; %s has rejoined the group", s.late, c.Name)
	return nil
}

func (s *story) leave(ctx context.Context, c *demokit.Child) error {
	s.Say("", demokit.Bad, "kill -TERM %d: %s announces that it is leaving, and hands over its partitions", c.Pid(), c.Name)
	if err := s.signal(ctx, c, syscall.SIGTERM, leaves); err != nil {
		return err
	}
	s.Say("", demokit.Good, "%s has left; its partitions were idle for %s", c.Name, s.gap())
	return nil
}

func (s *story) join(ctx context.Context) error {
	if _, err := s.start(ctx, "D"); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.Say("", demokit.Good, "the partitions are balanced again; those that moved were idle for %s", s.gap())
	return nil
}

func (s *story) start(ctx context.Context, name string) (*demokit.Child, error) {
	child, err := s.Start(ctx, name, s.database.Path, name)
	if err == nil {
		s.cast[name] = works
		s.Say(name, demokit.Plain, "joins the group (process %d)", child.Pid())
	}
	return child, err
}

// signal records a child's new role and sends the child a signal. It returns when the running processes share the
// partitions evenly.
func (s *story) signal(ctx context.Context, c *demokit.Child, sig syscall.Signal, does part) error {
	s.cast[c.Name] = does
	if err := c.Signal(sig); err != nil {
		return err
	}
	return s.settle(ctx)
}

// settle waits until the running processes share the partitions evenly.
func (s *story) settle(ctx context.Context) error {
	s.even = false // ignore earlier reads
	return s.Until(ctx, func() bool { return s.even })
}

// hear handles a child's report of a late commit.
func (s *story) hear(r demokit.Report) error {
	if kind, partition, _ := strings.Cut(r.Line, " "); kind == "late" {
		s.late++
		s.Say(r.Child.Name, demokit.Bad, "tries to commit to partition %s, but is REFUSED: its token was superseded", partition)
	}
	return nil
}

// look reads the group's state from the database. It draws a picture of the state if the picture has changed, or if the
// last one was drawn at least a second ago.
func (s *story) look(ctx context.Context) {
	view, err := group.Members(ctx, s.db, demokit.Table, groupName)
	if err != nil {
		return // the next call tries again
	}
	done, err := processed(ctx, s.db)
	if err != nil {
		return
	}
	s.backlog = s.appended.Load() - done
	now := s.see(view)
	s.vacant.see(now)
	if now != s.drawn || time.Since(s.at) >= still {
		s.drawn, s.at = now, time.Now()
		draw(s.Timeline, now, s.backlog)
	}
}

// see returns a picture of view, and sets s.even.
func (s *story) see(view group.View) (now picture) {
	for n := range now {
		now[n] = nobody
	}
	shares := map[string]int{}
	for _, m := range view.Members {
		who := m.ID
		switch s.cast[who] {
		case works:
			shares[who] = len(m.Partitions)
		case silently:
			who = silent
		}
		for _, p := range m.Partitions {
			if n, err := strconv.Atoi(p); err == nil {
				now[n] = who
			}
		}
	}
	s.even = true
	least, most, sum := partitions, 0, 0
	for who, does := range s.cast {
		if does == works {
			share, there := shares[who]
			s.even = s.even && there
			least, most, sum = min(least, share), max(most, share), sum+share
		}
	}
	s.even = s.even && sum == partitions && most-least <= 1
	return now
}

// gap describes the longest time for which a partition had no running owner during this act. The group is read once
// every Glance, so times below two Glances can't be measured.
func (s *story) gap() string {
	if s.vacant.longest < 2*demokit.Glance {
		return fmt.Sprintf("less than %v", 2*demokit.Glance)
	}
	return demokit.InLeases(s.vacant.longest, lease)
}

func (s *story) summarize(ctx context.Context) error {
	items, results, disorder, err := audit(ctx, s.db)
	if err != nil {
		return err
	}
	if items != results || disorder > 0 {
		return fmt.Errorf("found %d items, %d results, and %d results in the wrong order; please report this as a bug", items, results, disorder)
	}
	s.Print(demokit.Plain, "")
	s.Print(demokit.Bold, "Items   %d were appended; the table has %d results, one for each item", items, results)
	s.Print(demokit.Bold, "Tokens  no item was processed under an older token than the item before it")
	s.Print(demokit.Bold, "Fence   late commits that were refused: %d", s.late)
	return nil
}
