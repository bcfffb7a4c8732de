package emulator

import (
	"context"
	"sync"
)

// shared is the emulator that this process shares. It is not closed while it answers.
var shared struct {
	sync.Mutex
	emulator *Emulator
}

// Shared returns the emulator that the tests of a process share, which [Open] finds or starts on the first call. Don't
// close it: an emulator that was started ends with the process. Starting one takes less than a tenth of a second, so each
// package has its own.
//
// The next call replaces an emulator that has died. Its contents are lost.
func Shared(ctx context.Context) (*Emulator, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.emulator != nil && reach(ctx, shared.emulator.addr) == nil {
		return shared.emulator, nil
	}
	e, err := Open(ctx)
	if err != nil {
		return nil, err
	}
	shared.emulator = e
	return e, nil
}
