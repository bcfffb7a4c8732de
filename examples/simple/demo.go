package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/demokit"
)

const (
	demoLease = 2 * time.Second
	demoName  = "demo"
)

// demo tells the story of three processes and a lock, which it only watches.
type demo struct {
	*demokit.Story
	lock *spindle.Lock // which is not run: Leader does not need that

	leader    *demokit.Child // nil while there is none
	vacant    time.Time      // since when there was no leader
	since     time.Time      // when the leader was elected
	token     spindle.Token
	heartbeat time.Time // the leader's last, by Spanner's clock
	beats     int       // in this term
}

func demonstrate(ctx context.Context) error {
	d := &demo{Story: demokit.NewStory()}
	d.Hear, d.Look = d.hear, d.look
	d.Print(demokit.Bold, "Three processes compete for one lock. At most one of them leads at any time.")
	d.Print(demokit.Plain, "If a leader falls silent, it keeps the lock for one lease: %v here.\n", demoLease)
	database, err := d.Open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	db, err := spanner.NewClient(context.Background(), database.Path)
	if err != nil {
		return err
	}
	defer db.Close()
	d.lock = spindle.New(db, demokit.Table, demoName)

	defer d.End()
	for _, name := range []string{"A", "B", "C"} {
		child, err := d.Start(ctx, name, "-db", database.Path, "-table", demokit.Table,
			"-name", demoName, "-lease", demoLease.String(), "-id", name)
		if err != nil {
			return err
		}
		d.Say(name, demokit.Plain, "is a candidate: process %d", child.Pid())
	}
	return d.play(ctx)
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
	d.look(ctx) // it may have sent a heartbeat at the end
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

	d.Say("", demokit.Plain, "the end; %s is stopped as well", d.leader.Name)

	d.Print(demokit.Plain, "")
	d.Print(demokit.Bold, "Crash   replaced in %s, %.2f leases after its last heartbeat", demokit.InLeases(takeover, demoLease), silence.Seconds()/demoLease.Seconds())
	d.Print(demokit.Bold, "Stop    replaced in %s: a released lock is free at once", demokit.InLeases(handover, demoLease))
	d.Print(demokit.Bold, "Tokens  %v < %v < %v: they only grow", first, second, d.token)
	return nil
}

// term shows an election and what follows it, up to the middle between two heartbeats.
func (d *demo) term(ctx context.Context, after string, beats int) error {
	if err := d.Until(ctx, func() bool { return d.leader != nil }); err != nil {
		return err
	}
	text := fmt.Sprintf("LEADS, token %v", d.token)
	if after != "" {
		text += fmt.Sprintf("; %s%s", demokit.InLeases(d.since.Sub(d.vacant), demoLease), after)
	}
	d.Say(d.leader.Name, demokit.Good, "%s", text)
	if err := d.Until(ctx, func() bool { return d.beats >= beats }); err != nil {
		return err
	}
	middle := time.Now().Add(demoLease / 6)
	return d.Until(ctx, func() bool { return time.Now().After(middle) })
}

// signal ends the leader.
func (d *demo) signal(s syscall.Signal, command string) (time.Time, error) {
	d.Say("", demokit.Bad, "%s %d", command, d.leader.Pid())
	leader := d.leader
	d.leader, d.vacant = nil, time.Now()
	return d.vacant, leader.Signal(s)
}

// hear takes in what a candidate reports.
func (d *demo) hear(r demokit.Report) error {
	switch {
	case r.Ended && r.Err != nil:
		d.Say(r.Child.Name, demokit.Plain, "is dead; nobody leads until its lease has expired")
	case r.Ended:
		d.Say(r.Child.Name, demokit.Plain, "has released the lock and exited")
	case strings.HasPrefix(r.Line, spindle.Elected.String()):
		d.leader, d.since = r.Child, time.Now()
		d.heartbeat, d.beats = time.Time{}, 0
		_, err := fmt.Sscanf(r.Line, spindle.Elected.String()+" %d", &d.token)
		return err
	case strings.HasPrefix(r.Line, spindle.Lost.String()) && r.Child == d.leader:
		return fmt.Errorf("%s lost the lock: is this machine overloaded?", r.Child.Name)
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
