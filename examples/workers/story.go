package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/demokit"
)

const (
	// pace is the interval at which the story shows the finished jobs.
	pace = 500 * time.Millisecond

	columns = "%-32s %s" // the format of a line, with a column for each site

	// patience is how long each half of the queue may take. Even a busy machine needs much less time.
	patience = 20 * time.Second
)

// story is the demonstration. It stops the first site when half of the queue is done.
type story struct {
	*demokit.Timeline
	db       *spanner.Client
	failures chan error
	before   map[string]share
}

func tell(ctx context.Context) error {
	s := &story{Timeline: demokit.NewTimeline(), failures: make(chan error, 2*workers)}
	s.Print(demokit.Bold, "Two sites, east and west, share a queue of %d jobs. Each site has %d workers.", jobs, workers)
	s.Print(demokit.Bold, "Workers run only while their site holds the lock. Each # is a finished job.\n")
	database, err := demokit.Open(ctx, jobsTable)
	if err != nil {
		return err
	}
	defer database.Close()
	if s.db, err = spanner.NewClient(context.Background(), database.Path); err != nil {
		return err
	}
	defer s.db.Close()
	if err := fillQueue(ctx, s.db); err != nil {
		return err
	}

	s.Print(demokit.Bold, "%*s"+columns, demokit.Margin, "", "east", "west")
	elected := make(chan struct{})
	east, err := s.open(database.Path, "east", sync.OnceFunc(func() { close(elected) }))
	if err != nil {
		return err
	}
	defer east.close() // however the story ends
	select {
	case <-elected:
	case err := <-s.failures:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	west, err := s.open(database.Path, "west", func() {})
	if err != nil {
		return err
	}
	defer west.close()
	return s.play(ctx, east, west)
}

// open creates a site with its own Spanner client, as if the site ran on its own machine.
func (s *story) open(path, name string, elected func()) (*site, error) {
	db, err := spanner.NewClient(context.Background(), path, spindle.ClientOptions(lease)...)
	if err != nil {
		return nil, err
	}
	site, err := newSite(db, name, s.observer(name, elected), func(err error) { s.failures <- err })
	if err != nil {
		db.Close()
	}
	return site, err
}

func (s *site) close() {
	_ = s.stop()
	s.db.Close()
}

func (s *story) play(ctx context.Context, east, west *site) error {
	if err := s.watch(ctx, jobs/2); err != nil {
		return err
	}
	s.Say("", demokit.Bad, "east stops its workers and then releases the lock")
	if err := east.stop(); err != nil {
		return err
	}
	if err := s.watch(ctx, jobs); err != nil {
		return err
	}
	s.Say("", demokit.Plain, "the queue is empty")
	if err := west.stop(); err != nil {
		return err
	}
	return s.summarize(ctx)
}

// watch shows the progress of both sites until the given number of jobs are done.
func (s *story) watch(ctx context.Context, jobs int64) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	timeout := time.After(patience)
	for {
		select {
		case <-tick.C:
		case err := <-s.failures:
			return err
		case <-timeout:
			return fmt.Errorf("the queue was not finished within %v; the machine may be overloaded", patience)
		case <-ctx.Done():
			return ctx.Err()
		}
		done, err := s.show(ctx)
		if err != nil || done >= jobs {
			return err
		}
	}
}

// show prints a # for each job that a site has finished since the last call, and returns the total number of finished
// jobs.
func (s *story) show(ctx context.Context) (int64, error) {
	now, err := shares(ctx, s.db)
	if err != nil {
		return 0, err
	}
	bar := func(site string) string {
		if n := now[site].jobs - s.before[site].jobs; n > 0 {
			return strings.Repeat("#", int(n))
		}
		return "-"
	}
	s.Say("", demokit.Plain, columns, bar("east"), bar("west"))
	s.before = now
	return now["east"].jobs + now["west"].jobs, nil
}

// observer returns a function that shows when a site gets and loses the lock.
func (s *story) observer(site string, elected func()) func(spindle.Event) {
	say := func(style demokit.Style, text string) {
		if site == "east" {
			s.Say("", style, "%s", text)
		} else {
			s.Say("", style, columns, "", text)
		}
	}
	return func(e spindle.Event) {
		switch e.Kind {
		case spindle.Elected:
			say(demokit.Good, "HOLDS the lock")
			elected()
		case spindle.Lost:
			if errors.Is(e.Err, spindle.ErrExpired) || errors.Is(e.Err, spindle.ErrSuperseded) {
				say(demokit.Bad, "LOST the lock")
			} else {
				say(demokit.Plain, "gives up the lock")
			}
		}
	}
}

func (s *story) summarize(ctx context.Context) error {
	now, err := shares(ctx, s.db)
	if err != nil {
		return err
	}
	east, west := now["east"], now["west"]
	s.Print(demokit.Bold, "\nEast finished %d jobs, and west finished %d. Each job was done once.", east.jobs, west.jobs)
	s.Print(demokit.Bold, "West finished its first job %.2fs after east finished its last.", west.first.Sub(east.last).Seconds())
	if !west.first.After(east.last) {
		return errors.New("both sites worked at the same time; please report this as a bug")
	}
	return nil
}
