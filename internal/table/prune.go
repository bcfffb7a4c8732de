package table

import (
	"context"
	"errors"
)

// Prune deletes the rows of the observed locks and returns the number of locks that it deleted. It skips a lock,
// without an error, if the lock was claimed or received a heartbeat after it was observed. In both cases, the lock row
// has changed.
func (t Table) Prune(ctx context.Context, seen ...Observation) (int, error) {
	pruned, _, err := each(ctx, t, "prune", claimed(seen), seen, ErrChanged, func(o Observation, rows Rows) []Write {
		if !o.Exists || !unchanged(o, rows) {
			return nil
		}
		writes := []Write{{Kind: Delete, Name: o.Name}, {Kind: Delete, Name: BrokenRow(o.Name)}}
		return append(writes, drop(o)...) // this includes the free row
	})
	switch {
	case errors.Is(err, ErrChanged), errors.Is(err, ErrAborted) && len(seen) == 1:
		return 0, nil
	case errors.Is(err, ErrAborted): // one of the locks is being claimed, which must not delay the others
		a, err := t.Prune(ctx, seen[:len(seen)/2]...)
		if err != nil {
			return a, err
		}
		b, err := t.Prune(ctx, seen[len(seen)/2:]...)
		return a + b, err
	case err != nil:
		return 0, err
	}
	return len(pruned), nil
}
