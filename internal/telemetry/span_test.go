package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/codes"
	grpc "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/telemetry"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

const lease = 10 * time.Second

var errStopped = errors.New("stopped")

// scope returns the scope of a candidate for the locks, which reports to r.
func scope(r *fleet.Reports, loop bool, locks ...string) telemetry.Scope {
	return telemetry.Scope{Meters: r.Meters, Tracers: r.Tracers, Table: "locktable", Locks: locks, Loop: loop}
}

func candidate(tab table.Table, names ...string) *elect.Candidate {
	return &elect.Candidate{Table: tab, Clock: elect.SystemClock{}, Names: names, ID: "me", LeaseRecord: table.LeaseRecord{Lease: lease, ID: "me"}}
}

// handOver is the life of a candidate that wins the lock immediately and hands it over.
func handOver(link *memstore.Link, r *fleet.Reports) {
	ctx := context.Background()
	w := scope(r, true, "a").Watch()
	defer w.Close()
	c := candidate(w.Table(table.Table{Store: link}), "a")
	c.FreeRows = true
	step := c.Try(ctx, elect.All, time.Second)
	w.Tried(step)
	if step.Term == nil {
		return
	}
	term := w.Elected(step.Term)
	announced := make(chan struct{})
	k := &elect.Keeper{Term: step.Term, Interval: lease / 10, Notify: func(e elect.TermEvent) {
		if e.What == elect.Announced {
			close(announced)
		}
	}}
	k.Start()
	term.Leaving(ctx)
	k.Announce()
	<-announced
	if lost := k.Stop(); lost != nil {
		term.Over(telemetry.ReasonOf(lost, telemetry.Stopped))
		return
	}
	term.Over(telemetry.Stopped)
	term.Released(step.Term.Release(ctx, errStopped))
}

// A span ends with the outcome of a step, an election, or a handover, which is done only once the lock was released.
// Each span that began has ended, even if the term ended in between. An attempt has one election, even if it claims repeatedly.
func TestASpanSaysAtItsEndWhatCameOfIt(t *testing.T) {
	no := status.Error(grpc.PermissionDenied, "no")
	never := func(step string) func(*memstore.Link) {
		return func(l *memstore.Link) { l.Refuse(fleet.Refusing(step, no)) }
	}
	before := func(step string, f func(*memstore.Link) error) func(*memstore.Link) {
		return func(l *memstore.Link) {
			first := memstore.Once(step)
			l.Refuse(func(s string) error {
				if first(s) {
					return f(l)
				}
				return nil
			})
		}
	}
	answer := func(step string, err error) func(*memstore.Link) {
		return before(step, func(*memstore.Link) error { return err })
	}
	once := func(step string) func(*memstore.Link) { return answer(step, no) }
	after := func(step string, f func(*memstore.Link)) func(*memstore.Link) {
		return func(l *memstore.Link) {
			first := memstore.Once(step)
			l.After(func(s string) {
				if first(s) {
					f(l)
				}
			})
		}
	}
	deleted := func(l *memstore.Link) {
		for name := range l.Store.(*memstore.Store).Rows() {
			_ = l.Store.Commit(context.Background(), "operator", []table.Write{{Kind: table.Delete, Name: name}})
		}
	}
	taken := func(l *memstore.Link) {
		other := table.Table{Store: l.Store}
		seen, _ := other.Observe(context.Background(), "a")
		_, _ = other.Claim(context.Background(), "another", seen...)
	}
	freed := func(l *memstore.Link) {
		tab := table.Table{Store: l.Store}
		seen, _ := tab.Observe(context.Background(), "a")
		token, _ := tab.Claim(context.Background(), "another", seen...)
		_ = tab.Confirm(context.Background(), token, table.LeaseRecord{Lease: lease}, "a")
		_ = tab.ReleaseFree(context.Background(), token, lease, "a")
		time.Sleep(lease)
	}
	const elected = "election elected [observe done claim done confirm done]"
	for what, c := range map[string]struct {
		fault func(*memstore.Link)
		spans []string
		why   string // the handover failed
	}{
		"nothing fails":               {func(*memstore.Link) {}, []string{elected, "handover [announce done release done]"}, ""},
		"no look succeeds":            {never("observe"), []string{"observe failed!"}, ""},
		"no claim succeeds":           {never("claim"), []string{"election failed! [observe done claim failed!]"}, ""},
		"another was first":           {after("observe", taken), []string{"election overtaken [observe done claim overtaken]"}, ""},
		"a blind claim is lost":       {func(l *memstore.Link) { freed(l); l.Lose(memstore.Once("claim"), nil) }, []string{"election elected [observe done claim failed! claim done]", "handover [announce done release done]"}, ""},
		"no confirmation succeeds":    {never("confirm"), []string{"election failed! [observe done claim done confirm failed! heartbeat superseded confirm failed! withdraw done]"}, ""},
		"an announcement fails":       {once("announce"), []string{elected, "handover [announce failed! announce done release done]"}, ""},
		"a release fails":             {once("release"), []string{elected, "handover [announce done release failed! release done]"}, ""},
		"a release gets no answer":    {func(l *memstore.Link) { l.Lose(nil, memstore.Once("release")) }, []string{elected, "handover [announce done release failed! release superseded]"}, ""},
		"a release is aborted":        {answer("release", table.ErrAborted), []string{elected, "handover [announce done release overtaken release done]"}, ""},
		"the lock is gone at release": {before("release", func(l *memstore.Link) error { deleted(l); return nil }), []string{elected, "handover! [announce done release superseded]"}, "superseded"},
		"no release succeeds":         {never("release"), []string{elected, "handover! [announce done release failed!]"}, "not released"},
		"the lock is lost meanwhile":  {after("announce", deleted), []string{elected, "handover! [announce done]"}, "superseded"},
		"the term expires meanwhile":  {after("announce", (*memstore.Link).Cut), []string{elected, "handover! [announce done release failed!]"}, "not released"},
		"a heartbeat fails meanwhile": {once("heartbeat"), []string{elected, "handover [announce done release done]", "heartbeat failed!"}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, l := fleet.NewReports(), &memstore.Link{Store: &memstore.Store{}}
				c.fault(l)
				handOver(l, r)
				assert.Equal(t, c.spans, spans(r))
				tokens := map[string]int64{}
				for _, s := range r.Ended() {
					for _, kv := range s.Attributes() {
						if kv.Key == "spindle.token" {
							tokens[s.Name()] = kv.Value.AsInt64()
						}
					}
					if s.Name() == "spindle.handover" {
						assert.Equal(t, c.why, s.Status().Description)
					} else if s.Status().Code == codes.Error {
						assert.Len(t, s.Events(), 1, "what the error of %s was", s.Name())
					}
				}
				if c.spans[0] == elected {
					assert.Positive(t, tokens["spindle.election"])
					assert.Equal(t, tokens["spindle.election"], tokens["spindle.handover"], "the token of the term")
				}
			})
		})
	}
}

// spans returns the spans of r, in which one of several releases failed.
func spans(r *fleet.Reports) []string {
	all := r.Spans()
	for i := range all {
		for strings.Contains(all[i], "release failed! release failed!") {
			all[i] = strings.ReplaceAll(all[i], "release failed! release failed!", "release failed!")
		}
	}
	return all
}
