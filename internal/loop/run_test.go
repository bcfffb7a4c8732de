package loop

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
)

// brief is a loop that ends immediately. When its End wakes other goroutines, it checks whether its Run is still in
// progress.
type brief struct {
	runs  *Runs
	going chan bool
}

func (brief) Run(context.Context) error { return nil }
func (brief) Overdue() bool             { return false }
func (b brief) End()                    { b.going <- b.runs.Going() }

// The goroutines that End wakes check whether a Run is in progress, and wait for the next change if it is. There is no
// change after this one.
func TestARunDoesNotGoOnWhenEndWakesOthers(t *testing.T) {
	b := brief{&Runs{}, make(chan bool, 1)}
	done := make(chan error, 1)
	require.NoError(t, b.runs.Start(t.Context(), []chan<- error{done}, Settings{Lease: time.Second, Clock: elect.SystemClock{}}, func() Loop { return b }))
	assert.False(t, <-b.going)
	require.NoError(t, <-done)
}

// An error is a reason until the next success only.
func TestAnErrorBeforeTheLastSuccessIsNotTheReason(t *testing.T) {
	var p Pulse
	p.Begin()
	clock := elect.SystemClock{}
	check := func() error { return p.Check(clock, time.Second, time.Minute, "no poll has succeeded") }
	p.Beat(clock.Now())
	p.Fail(errors.New("an outage"))
	require.ErrorContains(t, check(), "an outage")
	p.Beat(clock.Now())
	assert.NotContains(t, check().Error(), "an outage")
	p.Fail(errors.New("a refusal"))
	assert.ErrorContains(t, check(), "a refusal")
	p.Fail(nil)
	assert.NotContains(t, check().Error(), "a refusal")
}
