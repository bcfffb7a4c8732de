package doctor

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// cycle takes a lock through its whole life, with the same steps that locks use.
func (e *exam) cycle() string {
	name := e.base + "/cycle"
	first := get(e.elect("first", name))
	does("heartbeat", e.table.Heartbeat(e.ctx, first, name))
	second := get(e.elect("second", name))
	larger(first, second)
	for step, err := range map[string]error{"heartbeat": e.table.Heartbeat(e.ctx, first, name), "release": e.table.Release(e.ctx, first, name)} {
		if !errors.Is(err, table.ErrSuperseded) {
			refute("a superseded holder's %s should have failed with ErrSuperseded, but got: %v", step, err)
		}
	}
	if !get(e.table.Valid(e.ctx, second, name)) {
		refute("a holder's token is not valid")
	}
	does("release", e.table.Release(e.ctx, second, name))
	seen := get(e.table.LookAtLeases(e.ctx, time.Now(), name))
	if !seen[0].Heartbeat.IsZero() || len(seen[0].OrphanLeases) > 0 {
		refute("a released lock is still taken")
	}
	return "a lock was claimed, confirmed, extended, superseded and released"
}

// larger checks that the second of two consecutive terms has the larger token.
func larger(first, second table.Token) {
	if second <= first {
		refute("the token of the second term, %d, is not larger than the token of the first, %d", second, first)
	}
}

const (
	rounds = 5
	lead   = 30 * time.Millisecond // time for the fenced commits to start before the claim
)

// race runs fenced commits while a claim supersedes their token, and repeats this several times. Each fenced commit
// must either have an earlier timestamp than the claim or be refused.
func (e *exam) race() string {
	var landed, refused int
	for i := range rounds {
		name := fmt.Sprintf("%s/fence/%d", e.base, i)
		token := prepared(e.elect("first", name))
		var writers sync.WaitGroup
		fenced := []*fencedWriter{{blind: true}, {blind: false}}
		over := make(chan struct{})
		for n, w := range fenced {
			writers.Go(func() { w.write(e, name, fmt.Sprintf("%s/by/%d", name, n), token, over) })
		}
		e.pause(lead)
		next, err := e.claim("second", name)
		close(over)
		writers.Wait()
		prepared(next, err)
		for _, w := range fenced {
			landedBefore(next, w.last, token)
			landed, refused = landed+w.landed, refused+w.refused
		}
	}
	return raced(landed, refused)
}

// landedBefore checks that the last commit fenced by a token has an earlier timestamp than the claim that superseded
// the token.
func landedBefore(next, last, token table.Token) {
	if last >= next {
		refute("a commit fenced by token %d has the timestamp %d, but a claim superseded that token at %d", token, last, next)
	}
}

// raced judges how many fenced commits succeeded and how many were refused.
func raced(landed, refused int) string {
	if landed == 0 {
		must(fmt.Errorf("%w: no fenced commit succeeded before its token was superseded", errNotTheQuestion))
	}
	return fmt.Sprintf("%d claims ran concurrently with fenced commits; %d fenced commits succeeded before their token was superseded, and %d were refused after that", rounds, landed, refused)
}

// fencedWriter is a holder that keeps writing under its token.
type fencedWriter struct {
	blind           bool
	landed, refused int
	last            table.Token // the timestamp of the last successful commit
}

// write commits until the fence refuses it, and at least once after over is closed.
func (w *fencedWriter) write(e *exam, lock, row string, token table.Token, over <-chan struct{}) {
	for last := false; !last && e.ctx.Err() == nil; {
		select {
		case <-over:
			last = true
		default:
		}
		at, err := e.apply("doctor-fence", w.blind, row, e.spanner.Fence(lock, token))
		switch {
		case err == nil:
			w.landed++
			w.last = table.TokenAt(at)
		case table.Missing(err):
			w.refused++
			return
		}
	}
}
