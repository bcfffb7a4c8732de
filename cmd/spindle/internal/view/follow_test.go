package view

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/internal/operator"
)

// Watch reports a look that hangs, not only one that has failed.
func TestALookThatHangsIsSaidInWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		looks := make(chan look)
		f := &follower{patience: 2 * time.Second, show: func([]operator.Listing, time.Time) error { return nil }}
		said := commandtest.Complaints(func() {
			done := make(chan error)
			go func() { done <- f.print(ctx, looks) }()
			time.Sleep(time.Hour)
			looks <- look{at: commandtest.At(100), pause: time.Second}
			time.Sleep(2 * time.Second)
			looks <- look{at: commandtest.At(102), pause: time.Second}
			time.Sleep(time.Hour)
			stop()
			assert.NoError(t, <-done)
		})
		require.Len(t, said, 3)
		assert.Contains(t, said[0], "no answer from Spanner for 2s\"")
		assert.Contains(t, said[1], "the locks can be read again")
		assert.Contains(t, said[2], "no answer from Spanner for 2s; the last output is as of 00:01:42Z")
	})
}
