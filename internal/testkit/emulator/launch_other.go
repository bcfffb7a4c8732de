//go:build !unix

package emulator

import (
	"context"
	"errors"
	"runtime"
)

type process struct{}

// launch always fails, because an emulator without a watchdog could be left running.
func launch(context.Context, command) (*process, string, error) {
	return nil, "", errors.New("emulator: cannot start an emulator on " + runtime.GOOS + "; start one yourself, and set " + hostVariable + " to its host:port")
}

func (*process) end() error { return nil }
