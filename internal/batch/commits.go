package batch

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// commit is one lock's heartbeat.
type commit struct {
	ctx     context.Context
	store   table.Store
	gate    *elect.Gate
	writes  []table.Write
	attempt int        // how many attempts at this heartbeat have not been acknowledged
	answer  chan error // has room for one
}

// maxWrites limits a commit to 500 locks, because each heartbeat has two writes for each name.
const maxWrites = 1000

// commitAll sends heartbeats in as few commits as possible. The size of a commit is limited, and its heartbeats must
// have the same number of attempts.
//
// If a shared commit fails or is not answered soon, the keepers send its heartbeats again. Second attempts share
// commits of half the maximum size, third attempts share commits of a quarter, and so on. As a result, one row that
// can't be written does not cost all locks their leases.
func commitAll(all []*commit) {
	var sent sync.WaitGroup
	all = slices.DeleteFunc(all, func(c *commit) bool { return c.ctx.Err() != nil })
	attempt := func(c *commit) int { return c.attempt }
	size := func(c *commit) int { return len(c.writes) }
	for _, part := range parts(all, attempt, size, func(attempt int) int { return maxWrites >> min(attempt, 10) }) {
		if part[0].gate.Bounded() { // the parts would abort each other
			commitTogether(part)
			continue
		}
		sent.Go(func() { commitTogether(part) })
	}
	sent.Wait()
}

// commitTogether sends heartbeats in one commit. If one of the tokens has been superseded, the whole commit fails.
// commitTogether then splits the heartbeats into halves and retries each half, until only the heartbeats with
// superseded tokens fail.
func commitTogether(all []*commit) {
	var writes []table.Write
	var contexts []context.Context
	for _, c := range all {
		writes, contexts = append(writes, c.writes...), append(contexts, c.ctx)
	}
	ctx, cancel := together(contexts)
	answered := all[0].gate.Beat()
	err := all[0].store.Commit(ctx, "heartbeat", writes)
	answered()
	cancel()
	if len(all) > 1 && (errors.Is(err, table.ErrMissing) || errors.Is(err, table.ErrNotFound)) {
		var halves sync.WaitGroup
		halves.Go(func() { commitTogether(all[:len(all)/2]) })
		halves.Go(func() { commitTogether(all[len(all)/2:]) })
		halves.Wait()
		return
	}
	for _, c := range all {
		c.answer <- err
	}
}
