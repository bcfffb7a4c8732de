package lock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The error of a waiter for a set says which of its locks are held, and by which holders. It leaves out locks whose
// holder has crashed or released them.
func TestAWaitForASetNamesThoseThatHoldALockOfIt(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		holder, crashed, gone := b.process().mutex("held"), b.process(), b.process().mutex("released")
		require.NoError(t, crashed.mutex("crashed").Lock(b.Context()))
		crashed.Cut()
		require.NoError(t, gone.Lock(b.Context()))
		require.NoError(t, gone.Unlock(b.Context()))
		time.Sleep(time.Minute)
		require.NoError(t, holder.Lock(b.Context()))
		ctx, cancel := within1s(b.Context())
		defer cancel()
		err := b.process().set("held", "crashed", "released", "never").Lock(ctx)
		require.ErrorContains(t, err, `(held: "held" by `)
		_, by, _ := strings.Cut(err.Error(), "(held: ")
		assert.Equal(t, 1, strings.Count(by, " by "), by)
		require.NoError(t, holder.Unlock(b.Context()))
	})
}
