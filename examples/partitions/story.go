//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/internal/demokit"
)

const (
	// calm is how long the story waits between two acts.
	calm = 1500 * time.Millisecond

	// still is how long the story waits before it draws an unchanged picture again.
	still = time.Second
)

// story belongs to the parent process, which only watches the group and tells the story.
type story struct {
	*demokit.Story
	database *demokit.Database
	db       *spanner.Client
	appended atomic.Int64

	cast    map[string]part // the children's parts, by name
	now     picture
	even    bool // each running process has its share
	guests  int  // the number of processes that the user started
	drawn   picture
	at      time.Time // when drawn was drawn
	backlog int64
	late    int

	vacant  [partitions]time.Time // when each partition lost its process, or zero
	longest time.Duration         // the longest time without a process, in this act
}

// part is the role that a child plays.
type part int

const (
	works    part = iota + 1
	silently      // it was killed, or is paused
	leaves
)

func tell(ctx context.Context, wait time.Duration) error {
	s := &story{Story: demokit.NewStory(), cast: map[string]part{}}
	s.Hear, s.Look = s.hear, s.look
	s.Print(demokit.Bold, "Three processes consume a queue that is divided into %d partitions.", partitions)
	s.Print(demokit.Bold, "Each item is processed exactly once, whatever happens. The lease is %v.\n", lease)
	var err error
	if s.database, err = s.Open(ctx, tables...); err != nil {
		return err
	}
	defer s.database.Close()
	if s.db, err = connect(s.database.Path); err != nil {
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
	err = s.play(ctx, wait)
	stop()
	if err := errors.Join(err, <-produced); err != nil {
		return err
	}
	s.Say("", demokit.Plain, "no more items are appended, and the processes work off the backlog")
	s.backlog = s.appended.Load() // ignore earlier looks
	for left := s.backlog; left > 0; left = s.backlog {
		if err := s.Until(ctx, func() bool { return s.backlog < left }); err != nil {
			return err
		}
	}
	return s.summarize(ctx)
}

// play plays the acts.
func (s *story) play(ctx context.Context, wait time.Duration) error {
	children := map[string]*demokit.Child{}
	for _, name := range []string{"A", "B", "C"} {
		child, err := s.start(ctx, name)
		if err != nil {
			return err
		}
		children[name] = child
	}
	legend(s.Timeline, cast, "todo")
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.Say("", demokit.Good, "each process has its share of five or six partitions")
	for _, act := range []func(context.Context) error{
		func(ctx context.Context) error { return s.kill(ctx, children["B"]) },
		func(ctx context.Context) error { return s.join(ctx, wait) },
		func(ctx context.Context) error { return s.stop(ctx, children["A"]) },
		func(ctx context.Context) error { return s.leave(ctx, children["C"]) },
	} {
		end := time.Now().Add(calm)
		if err := s.Until(ctx, func() bool { return time.Now().After(end) }); err != nil {
			return err
		}
		s.longest = 0
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) kill(ctx context.Context, c *demokit.Child) error {
	s.Say("", demokit.Bad, "kill -9 %d: %s is killed (x), and keeps its partitions until its lease expires", c.Pid(), c.Name)
	if err := s.signal(ctx, c, syscall.SIGKILL, silently); err != nil {
		return err
	}
	s.Say("", demokit.Good, "the other processes have its partitions, which were idle for %s", demokit.InLeases(s.longest, lease))
	return nil
}

// stop pauses a process until the other processes have its partitions, and then resumes it.
func (s *story) stop(ctx context.Context, c *demokit.Child) error {
	s.Say("", demokit.Bad, "kill -STOP %d: %s is paused in the middle of its work (x)", c.Pid(), c.Name)
	if err := s.signal(ctx, c, syscall.SIGSTOP, silently); err != nil {
		return err
	}
	s.Say("", demokit.Bad, "kill -CONT %d: the other processes have its partitions, but %s tries to commit the work that it was doing", c.Pid(), c.Name)
	if err := s.signal(ctx, c, syscall.SIGCONT, works); err != nil {
		return err
	}
	if err := s.Until(ctx, func() bool { return s.late > 0 }); err != nil {
		return err
	}
	s.Say("", demokit.Good, "late commits refused by the fence: %d; %s has joined again", s.late, c.Name)
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

// join waits for the user to join from another terminal. After the wait, the story starts a fourth process itself if
// the user has not joined.
func (s *story) join(ctx context.Context, wait time.Duration) error {
	if wait > 0 {
		s.Say("", demokit.Bold, "join in! Run this in the same directory, in a second terminal, within %v:", wait)
		s.Print(demokit.Bold, "\nSPANNER_EMULATOR_HOST=%s \\\n  go run ./examples/partitions -join %s\n", s.database.Addr(), s.database.Path)
	}
	for end := time.Now().Add(wait); s.guests == 0 && time.Now().Before(end); {
		soon := time.Now().Add(time.Second)
		if err := s.Until(ctx, func() bool { return s.guests > 0 || time.Now().After(soon) }); err != nil {
			return err
		}
	}
	if s.guests > 0 {
		s.Say(you, demokit.Good, "joins: welcome! A new process gets its partitions after one lease")
	} else if _, err := s.start(ctx, "D"); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.Say("", demokit.Good, "each process has its share; the partitions that moved were idle for %s", s.gap())
	return nil
}

func (s *story) start(ctx context.Context, name string) (*demokit.Child, error) {
	child, err := s.Start(ctx, name, "-join", s.database.Path, "-id", name)
	if err == nil {
		s.cast[name] = works
		s.Say(name, demokit.Plain, "takes part: process %d", child.Pid())
	}
	return child, err
}

// signal sends a child a signal, and records the part that the child plays from then on. It returns once each running
// process has its share.
func (s *story) signal(ctx context.Context, c *demokit.Child, sig syscall.Signal, does part) error {
	s.cast[c.Name] = does
	if err := c.Signal(sig); err != nil {
		return err
	}
	return s.settle(ctx)
}

// settle waits until each running process has its share.
func (s *story) settle(ctx context.Context) error {
	s.even = false // ignore earlier looks
	return s.Until(ctx, func() bool { return s.even })
}

// hear takes in the reports of late commits, which the table does not show.
func (s *story) hear(r demokit.Report) error {
	if kind, partition, _ := strings.Cut(r.Line, " "); kind == "late" {
		s.late++
		s.Say(r.Child.Name, demokit.Bad, "commit to partition %s is REFUSED: its token was superseded", partition)
	}
	return nil
}

// look reads the table, and draws the picture if it has changed or has not been drawn for a while.
func (s *story) look(ctx context.Context) {
	view, err := group.Members(ctx, s.db, demokit.Table, groupName)
	if err != nil {
		return // the next look tries again
	}
	done, err := processed(ctx, s.db)
	if err != nil {
		return
	}
	s.backlog = s.appended.Load() - done
	s.see(view)
	if s.now != s.drawn || time.Since(s.at) >= still {
		s.drawn, s.at = s.now, time.Now()
		draw(s.Timeline, s.now, cast, s.backlog)
	}
}

// see takes in which process has which partitions.
func (s *story) see(view group.View) {
	s.now, s.guests = picture{}, 0
	var shares []int
	there := map[string]bool{}
	for _, m := range view.Members {
		who, share := m.ID, len(m.Partitions)
		switch s.cast[m.ID] {
		case works:
			there[who] = true
			shares = append(shares, share)
		case silently:
			who = silent
		case leaves:
		default:
			who = you // whatever its name
			s.guests++
			if !m.Leaving {
				shares = append(shares, share)
			}
		}
		for _, p := range m.Partitions {
			if n, err := strconv.Atoi(p); err == nil {
				s.now[n] = who
			}
		}
	}
	sum := 0
	for _, share := range shares {
		sum += share
	}
	s.even = sum == partitions && slices.Max(shares)-slices.Min(shares) <= 1
	for who, does := range s.cast {
		s.even = s.even && (does != works || there[who])
	}
	s.measure()
}

// measure tracks how long each partition has had no running process.
func (s *story) measure() {
	for n, who := range s.now {
		switch {
		case who == "":
			s.now[n] = nobody
			fallthrough
		case who == silent:
			if s.vacant[n].IsZero() {
				s.vacant[n] = time.Now()
			}
			continue
		case !s.vacant[n].IsZero():
			s.longest = max(s.longest, time.Since(s.vacant[n]))
		}
		s.vacant[n] = time.Time{}
	}
}

// gap returns the longest time for which a partition had no running process. It is no more precise than the interval
// between two glances.
func (s *story) gap() string {
	if s.longest < 2*glance {
		return fmt.Sprintf("less than %v", 2*glance)
	}
	return demokit.InLeases(s.longest, lease)
}

func (s *story) summarize(ctx context.Context) error {
	items, results, disorder, err := audit(ctx, s.db)
	if err != nil {
		return err
	}
	if items != results || disorder > 0 {
		return fmt.Errorf("%d items have %d results, of which %d have an older token than the preceding result; please report this as a bug", items, results, disorder)
	}
	s.Print(demokit.Plain, "")
	s.Print(demokit.Bold, "Items   %d were appended, and %d were processed, each exactly once", items, results)
	s.Print(demokit.Bold, "Tokens  no item was processed under an older token than the item before it")
	s.Print(demokit.Bold, "Fence   commits that came too late after the pause, and changed nothing: %d", s.late)
	return nil
}
