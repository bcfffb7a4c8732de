//go:build unix

package main

import "testing"

// On a terminal, ls --watch redraws its list, and watch prints coloured lines, but not with NO_COLOR.
func TestWatchingAtATerminal(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.types("spindle exec --once done -- true\r")
	s.sees("ready> $")
	s.types("TERM=xterm spindle ls -aw\r")
	for range 2 {
		s.sees(`\x1b\[H\x1b\[Jas of .*Z$`)
		s.sees("job .*released")
	}
	s.types("\x03")
	s.sees("ready> $")
	s.types("TERM=xterm spindle watch\r")
	s.sees(`Z  \x1b\[1mjob\x1b\[m  \x1b\[\d+mreleased`)
	s.types("\x03")
	s.sees("ready> $")
	s.types("NO_COLOR=1 TERM=xterm spindle watch\r")
	s.sees("Z  job  released")
	s.types("\x03")
	s.sees("ready> $")
}
