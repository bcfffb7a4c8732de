package watch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/assert"
)

// reads counts what a reader does in an hour if each of its calls takes so long, or hangs until its ctx ends.
func reads(t *testing.T, every, takes, releasedTakes time.Duration, wake chan struct{}) (read, released, failed int) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		call := func(ctx context.Context, d time.Duration) error {
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		table := &Table{Every: every, Limit: 10 * time.Second,
			Read: func(ctx context.Context) (Snapshot, error) {
				read++
				return Snapshot{}, call(ctx, takes)
			},
			Released: func(ctx context.Context) (Released, error) {
				released++
				return Released{}, call(ctx, releasedTakes)
			}}
		r := &reader{table, func(msg tea.Msg) {
			if _, ok := msg.(failure); ok {
				failed++
			}
		}, wake}
		go r.readReleased(ctx)
		r.read(ctx)
		synctest.Wait()
	})
	return read, released, failed
}

func TestWhatIsInUseIsReadOnceASecondAndReleasedLocksSeldom(t *testing.T) {
	read, released, failed := reads(t, time.Second, 10*time.Millisecond, 100*time.Millisecond, nil)
	assert.InDelta(t, 3600, read, 50)
	assert.InDelta(t, 60, released, 3)
	assert.Zero(t, failed)
}

// Beside 100,000 released locks a read takes a second or more.
func TestALargeTableIsReadAFifthOfTheTime(t *testing.T) {
	read, released, _ := reads(t, time.Second, 2*time.Second, 3*time.Second, nil)
	assert.InDelta(t, 3600/10, read, 5)
	assert.InDelta(t, 3600/165, released, 2)
	awake := make(chan struct{})
	close(awake) // somebody asks for them all the time
	_, released, _ = reads(t, time.Second, 2*time.Second, 3*time.Second, awake)
	assert.InDelta(t, 3600/15, released, 5)
}

// A read that hangs ends by itself, and the next one is not put off as if the table were large.
func TestAReadHasATimeLimit(t *testing.T) {
	read, _, failed := reads(t, time.Second, 20*time.Second, 20*time.Second, nil)
	assert.InDelta(t, 3600/11, read, 2)
	assert.InDelta(t, read, failed, 1)
}

func TestOneSlowReadPutsNothingOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var began []time.Duration
		first := time.Now()
		table := &Table{Every: time.Second, Limit: 10 * time.Second, Read: func(ctx context.Context) (Snapshot, error) {
			if began = append(began, time.Since(first)); len(began) == 2 {
				time.Sleep(8 * time.Second)
			}
			if len(began) == 3 {
				stop()
			}
			return Snapshot{}, nil
		}}
		(&reader{table, func(tea.Msg) {}, nil}).read(ctx)
		assert.Equal(t, []time.Duration{0, time.Second, 10 * time.Second}, began)
	})
}
