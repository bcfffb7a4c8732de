package emulator

import (
	"context"
	"sync"
)

// shared contains the emulator that the tests of this process share.
var shared struct {
	sync.Mutex
	emulator *Emulator
}

// Shared returns one emulator for all tests of a process. The first call gets the emulator from [Open]. Do not close
// the emulator. If Open started it, it stops when the process exits. Each package's tests run in their own process, and
// therefore usually start their own emulator. Starting the binary takes less than a tenth of a second.
//
// If the emulator no longer answers, the next call gets another emulator from Open, without the previous databases.
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
