//go:build unix

package child

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// However many processes take a lock file and remove it again, at any moment at most one has it. The goroutines of this test
// stand for processes, because each of them opens the file anew.
func TestALockFileHasOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var holders, taken atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10_000 { // two have it in one of a few thousand rounds, if that can happen
				l, err := NewLockFile(path)
				if errors.Is(err, ErrBusy) {
					continue
				}
				if !assert.NoError(t, err) {
					return
				}
				taken.Add(1)
				assert.Equal(t, int32(1), holders.Add(1))
				holders.Add(-1)
				l.End()
			}
		})
	}
	all.Wait()
	assert.NotZero(t, taken.Load())
	assert.NoFileExists(t, path)
	require.NoError(t, os.Symlink(path+".elsewhere", path))
	_, err := NewLockFile(path)
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrBusy, "a link is no lock file, and nothing to wait for")
}
