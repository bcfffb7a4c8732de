//go:build !linux && !darwin

package peer

import (
	"errors"
	"os"
)

func (p *Peer) identify() error {
	return errors.New("this system does not say which process is at the other end of a socket: use Linux or macOS")
}

// Describe knows nothing more.
func (p *Peer) Describe() {}

func awaitClosed(*os.File, chan<- struct{}) {}

func hasClosed(*os.File) bool { return false }

func awaitExit(*os.File, chan<- struct{}) {}

// Unread returns 0: that can't be known.
func (p *Peer) Unread() int { return 0 }
