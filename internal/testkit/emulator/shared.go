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

// Shared returns one emulator for all tests of a process. The first call gets the emulator from [Open]. Do not close
// the emulator. If Open started it, it stops when the process exits. The tests of each package have an emulator of
// their own, because starting one takes less than a tenth of a second.
//
// If the emulator has crashed, the next call returns a new emulator without the previous databases.
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
