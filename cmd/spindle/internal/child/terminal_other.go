//go:build !unix

package child

import "os"

// A Terminal is the one that this process is controlled by. There is none here.
type Terminal struct{}

// OpenTerminal returns nil.
func OpenTerminal() *Terminal { return nil }

// Stops has nothing.
func (*Terminal) Stops() <-chan os.Signal { return nil }

// Lend does nothing.
func (*Terminal) Lend(int) bool { return false }

// Lent is false.
func (*Terminal) Lent() bool { return false }

// TakeBack does nothing.
func (*Terminal) TakeBack(bool) {}

// Suspend does nothing.
func (*Terminal) Suspend() bool { return false }

const programsGetTTOU = false

func unignoreTTOU() {}
