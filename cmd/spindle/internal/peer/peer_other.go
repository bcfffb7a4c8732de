//go:build !linux && !darwin

package peer

import "errors"

var errUnsupported = errors.New("this system does not say which process is at the other end of a socket: use Linux or macOS")

func (p *Peer) identify() error { return errUnsupported }

// Describe knows nothing.
func (p *Peer) Describe() {}

// Watch can't watch.
func (p *Peer) Watch() error { return errUnsupported }

// HasClosed returns false: that can't be known.
func (p *Peer) HasClosed() bool { return false }

// Close has nothing to free.
func (p *Peer) Close() {}

// Unread returns 0: that can't be known.
func (p *Peer) Unread() int { return 0 }
