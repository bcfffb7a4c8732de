//go:build !linux && !darwin

package peer

import "errors"

var errUnsupported = errors.New("this system can't tell which process is at the other end of a socket: use Linux or macOS")

func (p *Peer) identify() error { return errUnsupported }

// Describe does nothing.
func (p *Peer) Describe() {}

// Watch always fails.
func (p *Peer) Watch() error { return errUnsupported }

// HasClosed returns false, because this system can't tell.
func (p *Peer) HasClosed() bool { return false }

// Close does nothing.
func (p *Peer) Close() {}

// Unread returns 0, because this system can't tell.
func (p *Peer) Unread() int { return 0 }
