package batch

import (
	"context"
	"errors"
	"sync"

	"github.com/spindle-lock/spindle/internal/table"
)

// commit is one lock's heartbeat.
type commit struct {
	ctx    context.Context
	store  table.Store
	writes []table.Write
	answer chan error // has room for one
}

// maxWrites limits a commit to some hundred locks: each heartbeat has two writes for each name.
const maxWrites = 1000

// commitAll sends heartbeats in as few commits as their number allows.
func commitAll(all []*commit) {
	var sent sync.WaitGroup
	for len(all) > 0 {
		n, writes := 1, len(all[0].writes)
		for n < len(all) && writes+len(all[n].writes) <= maxWrites {
			writes += len(all[n].writes)
			n++
		}
		part := all[:n]
		sent.Go(func() { commitTogether(part) })
		all = all[n:]
	}
	sent.Wait()
}

// commitTogether sends heartbeats in one commit. If one of the locks has been superseded, the whole commit fails. In
// that case, commitTogether splits the heartbeats into halves and retries each half, until only the heartbeats of
// superseded locks fail.
func commitTogether(all []*commit) {
	var writes []table.Write
	var contexts []context.Context
	for _, c := range all {
		writes, contexts = append(writes, c.writes...), append(contexts, c.ctx)
	}
	ctx, cancel := together(contexts)
	err := all[0].store.Commit(ctx, "heartbeat", writes)
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
