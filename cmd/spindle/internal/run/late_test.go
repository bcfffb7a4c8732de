package run

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A killed command may not end, for example while it waits for a disk. Even then guard must say that a deactivation takes
// too long, and only then.
func TestThatADeactivationIsLateIsSaidWhileItGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stop := whenLate(ctx, func(err error) {
			said++
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, said)
		stop()
		stop()

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		stop = whenLate(ctx, func(error) { said++ })
		stop()
		time.Sleep(time.Minute)
		cancel()
		assert.Equal(t, 1, said, "it was in time")

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		stop = whenLate(ctx, func(error) { said++ })
		cancel()
		synctest.Wait()
		stop()
		assert.Equal(t, 1, said, "it was ended for another reason")
	})
}

// A call that runs when stop is called must not outlast it: a deactivation that succeeded is not late any more.
func TestNothingIsSaidAfterTheDeactivation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		over := false
		stop := whenLate(ctx, func(error) { time.Sleep(time.Second); over = true })
		time.Sleep(1500 * time.Millisecond)
		stop()
		assert.True(t, over)
	})
}
