package group

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// leaseOf returns a member's lease, even if its lease row has since been deleted.
func (t *term) leaseOf(o table.Observation) time.Duration {
	return cmp.Or(t.m.leases[table.LeaseRef{Name: o.Name, Token: o.Token}], t.m.config.Lease)
}

// dead returns the members whose leases have expired.
func (t *term) dead(s table.GroupSnapshot) (dead []table.Observation) {
	for _, name := range slices.Sorted(maps.Keys(s.Members)) {
		o := s.Members[name]
		foreign := o.LeaseRecord != nil && o.LeaseRecord.ListDigest == "" // a plain lock that has a slot's name
		if name == t.own.Name || !o.Confirmed() || foreign || s.Unreadable[name] != nil || s.At.Sub(o.Heartbeat) < t.leaseOf(o) {
			continue
		}
		dead = append(dead, o)
	}
	return dead
}

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
			t.planning = t.planning.evicted(freed) // the next look reads their partitions
			t.assign(before)
			t.soon(0)
		case elect.First(err):
			t.soon(t.m.config.Clock.Random(t.m.config.Lease/50 + 1))
		default:
			t.m.problems.Note(fmt.Errorf("evict: %w", err))
		}
	})
}
