//go:build !unix

package child

import "os"

// A Terminal is this process's controlling terminal. On this system there is none.
type Terminal struct{}

// OpenTerminal returns nil.
func OpenTerminal() *Terminal { return nil }

// Stops returns nil.
func (*Terminal) Stops() <-chan os.Signal { return nil }

// Lend returns false.
func (*Terminal) Lend(int) bool { return false }

// Lent returns false.
func (*Terminal) Lent() bool { return false }

// TakeBack does nothing.
func (*Terminal) TakeBack(bool) {}

// Suspend returns false.
func (*Terminal) Suspend() bool { return false }

const programsGetTTOU = false

func unignoreTTOU() {}
