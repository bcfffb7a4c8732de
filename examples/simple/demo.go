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

// demo shows three processes that compete for a lock. It only watches the lock, and does not compete itself.
type demo struct {
	*demokit.Story
	lock *spindle.Lock // not run, because only Leader is called

	leader    *demokit.Child // nil while there is none
	wrote     *demokit.Child // the process that wrote last
	rejected  *demokit.Child // the process whose write was rejected last
	vacant    time.Time      // when the last leader was sent a signal
	since     time.Time      // when the leader was elected
	token     spindle.Token
	heartbeat time.Time // the leader's last heartbeat, by Spanner's clock
	beats     int       // the number of heartbeats in this term
}

func demonstrate(ctx context.Context) error {
	d := &demo{Story: demokit.NewStory()}
	d.Hear, d.Look = d.hear, d.look
	d.Print(demokit.Bold, "Three processes compete for one lock. At most one of them leads at any time.")
	d.Print(demokit.Plain, "If the leader crashes, no other process can lead until its %v lease expires.\n", demoLease)
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
		d.Say(name, demokit.Plain, "is a candidate (process %d)", child.Pid())
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
	d.look(ctx) // the leader may have sent one more heartbeat
	last := d.heartbeat
	if err := d.term(ctx, " after the kill", 3); err != nil {
		return err
	}
	second, takeover, silence := d.token, d.since.Sub(killed), d.token.Time().Sub(last)

	if err := d.pause(ctx); err != nil {
		return err
	}
	third := d.token

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
	d.Print(demokit.Bold, "Stop    replaced in %s; a released lock is free immediately", demokit.InLeases(handover, demoLease))
	d.Print(demokit.Bold, "Pause   the late write was rejected, because its token was superseded")
	d.Print(demokit.Bold, "Tokens  %v < %v\n      < %v < %v: they only grow", first, second, third, d.token)
	return nil
}

// pause pauses the leader between two writes until another process leads.
func (d *demo) pause(ctx context.Context) error {
	paused := d.leader
	d.wrote = nil
	if err := d.Until(ctx, func() bool { return d.wrote == paused }); err != nil {
		return err
	}
	if _, err := d.signal(demokit.StopSignal, "kill -STOP"); err != nil {
		return err
	}
	if err := d.term(ctx, " after the pause began", 2); err != nil {
		return err
	}
	d.Say("", demokit.Bad, "kill -CONT %d", paused.Pid())
	if err := paused.Signal(demokit.ContinueSignal); err != nil {
		return err
	}
	return d.Until(ctx, func() bool { return d.rejected == paused })
}

// term shows an election and the given number of heartbeats, and returns halfway between two heartbeats.
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

// signal sends the leader a signal that ends or pauses it.
func (d *demo) signal(s syscall.Signal, command string) (time.Time, error) {
	d.Say("", demokit.Bad, "%s %d", command, d.leader.Pid())
	leader := d.leader
	d.leader, d.vacant = nil, time.Now()
	return d.vacant, leader.Signal(s)
}

// hear handles a candidate's report.
func (d *demo) hear(r demokit.Report) error {
	switch {
	case r.Ended && r.Err != nil:
		d.Say(r.Child.Name, demokit.Plain, "was killed; no process leads until its lease expires")
	case r.Ended:
		d.Say(r.Child.Name, demokit.Plain, "has released the lock and exited")
	case strings.HasPrefix(r.Line, spindle.Elected.String()):
		d.leader, d.since = r.Child, time.Now()
		d.heartbeat, d.beats = time.Time{}, 0
		_, err := fmt.Sscanf(r.Line, spindle.Elected.String()+" %d", &d.token)
		return err
	case strings.HasPrefix(r.Line, wrote):
		d.wrote = r.Child
	case strings.HasPrefix(r.Line, fenced):
		d.rejected = r.Child
		d.Say(r.Child.Name, demokit.Good, "still believes that it leads, but its write is REJECTED")
	case strings.HasPrefix(r.Line, spindle.Lost.String()) && r.Child == d.leader:
		return fmt.Errorf("%s lost the lock; the machine may be overloaded", r.Child.Name)
	}
	return nil
}

// look reads the time of the leader's last heartbeat, and prints a mark if it is a new heartbeat.
func (d *demo) look(ctx context.Context) {
	leader, err := d.lock.Leader(ctx)
	if err != nil || leader.Token != d.token || !leader.Heartbeat.After(d.heartbeat) {
		return // the next call tries again
	}
	d.heartbeat = leader.Heartbeat
	d.beats++
	if d.leader != nil {
		d.Mark(leader.ID, "heartbeats", "*")
	}
}
