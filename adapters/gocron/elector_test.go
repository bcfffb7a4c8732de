package spindlegocron_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/adapters/gocron"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
	"github.com/spindle-lock/spindle/spindletest"
)

func TestJobsRunOnTheMachineThatLeads(t *testing.T) {
	t.Parallel()
	db := spindletest.New(t)
	var machines []*machine
	var locks []*spindle.Lock
	stop := make([]func(), 2)
	for i, id := range []string{"a", "b"} {
		l := spindle.New(db.Client, db.Table, "elector", quick, spindle.WithID(id))
		e := spindlegocron.NewElector(l)
		assert.ErrorIs(t, e.IsLeader(t.Context()), spindle.ErrNotLeader, "before Run")
		m := newMachine(t, db, gocron.WithDistributedElector(e))
		_, err := m.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(func() {
			select {
			case m.ran <- "":
			default:
			}
		}))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		require.NoError(t, l.Run(ctx, done))
		stop[i] = func() { cancel(); <-done }
		t.Cleanup(cancel)
		if i == 0 {
			_, err := l.WaitElected(t.Context())
			require.NoError(t, err)
		} else {
			_, err := l.Wait(t.Context())
			require.NoError(t, err)
		}
		m.Start()
		machines, locks = append(machines, m), append(locks, l)
	}
	for range 20 {
		testcheck.Await(t, machines[0].ran, "a job of the leader")
	}
	testcheck.None(t, machines[1].ran, "a job of a follower")
	err := spindlegocron.NewElector(locks[1]).IsLeader(t.Context())
	assert.ErrorIs(t, err, spindle.ErrNotLeader)
	assert.ErrorContains(t, err, `"a"`)

	stop[0]()
	testcheck.Await(t, machines[1].ran, "a job of the next leader")
	require.NoError(t, machines[0].Shutdown())
	stop[1]()
}
