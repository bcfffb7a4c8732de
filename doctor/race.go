package doctor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle/internal/table"
)

const (
	rounds = 5
	lead   = 30 * time.Millisecond // time for the fenced commits to start before the claim
)

// race runs fenced commits concurrently with a claim that supersedes their token, several times. Each commit must
// either have an earlier timestamp than the claim or be refused.
func (e *exam) race(ctx context.Context) (string, error) {
	var landed, refused int
	for i := range rounds {
		name := fmt.Sprintf("%s/fence/%d", e.base, i)
		token, err := e.elect(ctx, "first", name)
		if err != nil {
			return "", fmt.Errorf("%w: %w", errNotTheQuestion, err)
		}
		var writers sync.WaitGroup
		fenced := []*fencedWriter{{blind: true}, {blind: false}}
		over := make(chan struct{})
		for n, w := range fenced {
			writers.Go(func() { w.write(ctx, e, name, fmt.Sprintf("%s/by/%d", name, n), token, over) })
		}
		e.pause(ctx, lead)
		next, err := e.claim(ctx, "second", name)
		close(over)
		writers.Wait()
		if err != nil {
			return "", fmt.Errorf("%w: %w", errNotTheQuestion, err)
		}
		for _, w := range fenced {
			if err := landedBefore(next, w.last, token); err != nil {
				return "", err
			}
			landed, refused = landed+w.landed, refused+w.refused
		}
	}
	return raced(landed, refused)
}

// landedBefore checks that the last commit fenced by a token has an earlier timestamp than the claim that superseded
// the token.
func landedBefore(next, last, token table.Token) error {
	if last >= next {
		return broken("a commit fenced by token %d has the timestamp %d, but a claim superseded that token at %d", token, last, next)
	}
	return nil
}

// raced judges the numbers of fenced commits that succeeded and that were refused.
func raced(landed, refused int) (string, error) {
	if landed == 0 {
		return "", fmt.Errorf("%w: no fenced commit succeeded before its token was superseded", errNotTheQuestion)
	}
	return fmt.Sprintf("%d claims raced fenced commits; %d commits succeeded before their token was superseded, and %d were refused after that", rounds, landed, refused), nil
}

// fencedWriter is a holder that keeps writing under its token.
type fencedWriter struct {
	blind           bool
	landed, refused int
	last            table.Token // the timestamp of the last successful commit
}

// write commits until the fence refuses it, and at least once after over is closed.
func (w *fencedWriter) write(ctx context.Context, e *exam, lock, row string, token table.Token, over <-chan struct{}) {
	for last := false; !last && ctx.Err() == nil; {
		select {
		case <-over:
			last = true
		default:
		}
		at, err := e.apply(ctx, "doctor-fence", w.blind, e.spanner.Fence(lock, token),
			spanner.InsertOrUpdate(e.spanner.Table, []string{table.ColName, table.ColToken}, []any{row, spanner.CommitTimestamp}))
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
