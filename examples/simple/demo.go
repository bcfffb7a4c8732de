package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/stage"
)

const (
	demoLease = 2 * time.Second
	demoName  = "demo"

	// glance is how often the demonstration looks at the lock, to see heartbeats.
	glance = 50 * time.Millisecond

	// patience is how long it waits for anything. Much less is enough.
	patience = 20 * time.Second
)

// demo is the story of three processes and a lock, told by a fourth that only watches.
type demo struct {
	*stage.Timeline
	lock     *spindle.Lock // which is not run: Leader does not need that
	reports  chan stage.Report
	children []*stage.Child

	leader    *stage.Child // nil while there is none
	leaving   *stage.Child // the last one to be signalled
	vacant    time.Time    // since when there was no leader
	since     time.Time    // when the leader was elected
	token     spindle.Token
	heartbeat time.Time // the leader's last, by Spanner's clock
	beats     int       // in this term
}

func demonstrate(ctx context.Context) error {
	d := &demo{Timeline: stage.NewTimeline(), reports: make(chan stage.Report)}
	d.Print(stage.Bold, "Three processes stand for one lock. At most one of them leads at any time.")
	d.Print(stage.Plain, "A leader that is not heard of keeps the lock for one lease: %v here.\n", demoLease)
	d.Say("", stage.Plain, "starting a Cloud Spanner emulator")
	database, err := stage.Open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	d.Say("", stage.Plain, "it is ready at %s, with a lock table", database.Addr())
	db, err := spanner.NewClient(ctx, database.Path)
	if err != nil {
		return err
	}
	defer db.Close()
	d.lock = spindle.New(db, stage.Table, demoName)

	defer d.end()
	for _, name := range []string{"A", "B", "C"} {
		child, err := stage.Start(ctx, name, d.reports, "-db", database.Path, "-table", stage.Table,
			"-name", demoName, "-lease", demoLease.String(), "-id", name)
		if err != nil {
			return err
		}
		d.children = append(d.children, child)
		d.Say(name, stage.Plain, "is a candidate: process %d", child.Pid())
	}
	return d.play(ctx)
}

// end leaves no child behind, however the story went.
func (d *demo) end() {
	for _, child := range d.children {
		child.Kill()
	}
}

func (d *demo) play(ctx context.Context) error {
	if err := d.term(ctx, "", 4); err != nil {
		return err
	}
	first := d.token

	killed, err := d.signal(syscall.SIGKILL, "kill -9")
	if err != nil {
		return err
	}
	d.look(ctx) // its last words may have been a heartbeat
	last := d.heartbeat
	if err := d.term(ctx, " after the kill", 3); err != nil {
		return err
	}
	second, takeover, silence := d.token, d.since.Sub(killed), d.token.Time().Sub(last)

	stopped, err := d.signal(syscall.SIGTERM, "kill -TERM")
	if err != nil {
		return err
	}
	if err := d.term(ctx, " after the signal", 2); err != nil {
		return err
	}
	handover := d.since.Sub(stopped)

	d.Say("", stage.Plain, "the end; %s is stopped as well", d.leader.Name)

	d.Print(stage.Plain, "")
	d.Print(stage.Bold, "Crash   replaced in %s, %.2f leases after its last heartbeat", inLeases(takeover), leases(silence))
	d.Print(stage.Bold, "Stop    replaced in %s: a released lock is free at once", inLeases(handover))
	d.Print(stage.Bold, "Tokens  %v < %v < %v: they only grow", first, second, d.token)
	return nil
}

// term shows an election and what follows it, up to the middle between two heartbeats.
func (d *demo) term(ctx context.Context, after string, beats int) error {
	if err := d.watch(ctx, func() bool { return d.leader != nil }); err != nil {
		return err
	}
	text := fmt.Sprintf("LEADS, token %v", d.token)
	if after != "" {
		text += fmt.Sprintf("; %s%s", inLeases(d.since.Sub(d.vacant)), after)
	}
	d.Say(d.leader.Name, stage.Good, "%s", text)
	if err := d.watch(ctx, func() bool { return d.beats >= beats }); err != nil {
		return err
	}
	middle := time.Now().Add(demoLease / 6)
	return d.watch(ctx, func() bool { return time.Now().After(middle) })
}

// signal ends the leader.
func (d *demo) signal(s syscall.Signal, command string) (time.Time, error) {
	d.Say("", stage.Bad, "%s %d", command, d.leader.Pid())
	d.leaving, d.leader, d.vacant = d.leader, nil, time.Now()
	return d.vacant, d.leaving.Signal(s)
}

func inLeases(t time.Duration) string {
	return fmt.Sprintf("%.2fs (%.2f leases)", t.Seconds(), leases(t))
}

func leases(t time.Duration) float64 { return t.Seconds() / demoLease.Seconds() }

// watch shows what happens until enough has.
func (d *demo) watch(ctx context.Context, enough func() bool) error {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	timeout := time.After(patience)
	for !enough() {
		select {
		case r := <-d.reports:
			if err := d.hear(r); err != nil {
				return err
			}
		case <-tick.C:
			d.look(ctx)
		case <-timeout:
			return fmt.Errorf("simple: nothing has happened for %v, is this machine overloaded?", patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// hear takes in what a candidate reports.
func (d *demo) hear(r stage.Report) error {
	switch {
	case r.Ended && r.Child != d.leaving:
		return r.TooEarly()
	case r.Ended && r.Err != nil:
		d.Say(r.Child.Name, stage.Plain, "is dead; nobody leads until its lease has expired")
	case r.Ended:
		d.Say(r.Child.Name, stage.Plain, "has released the lock and exited")
	case strings.HasPrefix(r.Line, spindle.Elected.String()):
		d.leader, d.since = r.Child, time.Now()
		d.heartbeat, d.beats = time.Time{}, 0
		_, err := fmt.Sscanf(r.Line, spindle.Elected.String()+" %d", &d.token)
		return err
	case strings.HasPrefix(r.Line, spindle.Lost.String()) && r.Child == d.leader:
		return fmt.Errorf("simple: %s lost the lock: is this machine overloaded?", r.Child.Name)
	}
	return nil
}

// look marks a heartbeat, should there be a new one: Leader has the last one's time.
func (d *demo) look(ctx context.Context) {
	leader, err := d.lock.Leader(ctx)
	if err != nil || leader.Token != d.token || !leader.Heartbeat.After(d.heartbeat) {
		return // the next look tells
	}
	d.heartbeat = leader.Heartbeat
	d.beats++
	if d.leader != nil {
		d.Mark(leader.ID, "heartbeats", "*")
	}
}
