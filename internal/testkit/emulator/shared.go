package emulator

import (
	"context"
	"sync"
)

// shared is the emulator that the tests of this process share. It is not closed while it answers.
var shared struct {
	sync.Mutex
	emulator *Emulator
}

// Shared returns the emulator that the tests of a process share. The first call gets it from [Open]. Do not close the
// emulator; if Open started it, it stops when the process exits. Starting an emulator takes less than a tenth of a
// second, so the tests of each package have their own.
//
// If the emulator has crashed, the next call replaces it. The contents of its databases are lost.
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
