package emulator

import (
	"context"
	"os"
	"sync"
)

// shared is the emulator that this process shares. It is not closed while it answers.
var shared struct {
	sync.Mutex
	emulator *Emulator
}

// Shared returns the emulator that the tests of one run share: the one at
// SPANNER_EMULATOR_HOST if that is set, and otherwise one that is started on
// the first call.
//
// In a test binary that the go command runs, that is the first call in any of
// the run's packages, and the emulator ends when the go command does. In any
// other process the emulator is that process's own and ends with it. Either
// way the emulator is not to be closed; [Emulator.Close] leaves one that is
// shared with other processes alone.
//
// An emulator that has died is replaced at the next call. What was in it is lost.
//
// Shared blocks while another caller, here or in another package, starts the
// emulator.
func Shared(ctx context.Context) (*Emulator, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.emulator != nil && reach(ctx, shared.emulator.addr) == nil {
		return shared.emulator, nil
	}
	e, err := share(ctx)
	if err != nil {
		return nil, err
	}
	shared.emulator = e
	return e, nil
}

func share(ctx context.Context) (*Emulator, error) {
	if os.Getenv(hostVariable) != "" {
		return Open(ctx)
	}
	if o, ok := shareable(); ok {
		return shareWith(ctx, o)
	}
	return Start(ctx)
}
