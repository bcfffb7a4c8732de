//go:build !unix

package emulator

import (
	"context"
	"errors"
	"runtime"
)

type process struct{}

// launch refuses: without a watchdog, the emulator might be left running.
func launch(context.Context, command, owner) (*process, string, error) {
	return nil, "", errors.New("emulator: cannot start an emulator on " + runtime.GOOS + ": start one yourself and set " + hostVariable + " to its host:port")
}

func (*process) end() error { return nil }

// shareable reports false: nothing can be started here, so nothing shared.
func shareable() (owner, bool) { return owner{}, false }

func shareWith(context.Context, owner) (*Emulator, error) {
	panic("emulator: nothing is shareable on " + runtime.GOOS)
}
