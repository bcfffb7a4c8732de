package group

import (
	"context"
	"fmt"
	"slices"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// evict ends the terms of dead members in a single commit, so that other members can claim their partitions.
func (t *term) evict(dead []table.Observation) {
	if len(dead) == 0 || t.evicting {
		return
	}
	t.evicting = true
	var freed []string
	t.exec.do(t.requestLimit(), func(ctx context.Context) (err error) {
		freed, err = t.m.table.EvictMembers(ctx, dead...)
		return err
	}, func(err error) {
		t.evicting = false
		switch {
		case err == nil:
			for _, o := range dead {
				if slices.Contains(freed, o.Name) {
					t.m.log.Info("evicted a member whose lease has expired", "slot", o.Name, "member", o.Holder(), "token", o.Token)
				}
			}
			before := t.planning
			t.planning = t.planning.Evicted(freed) // the next poll reads their partitions
			t.assign(before)
			t.soon(0)
		case elect.First(err):
			t.soon(t.m.config.Clock.Random(t.m.config.Lease/50 + 1))
		default:
			t.m.problems.Note(fmt.Errorf("evict: %w", err))
		}
	})
}
