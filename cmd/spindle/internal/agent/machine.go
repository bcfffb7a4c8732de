package agent

// machine is the state of one hold, and decides what to do at each event. The lock is released only if the program said
// that its work has returned, or if the program can't act any more: its end of the stream is closed, and its process has
// ended. Either alone does not suffice: a process can close a socket and work on, and its children may have the socket.
type machine struct {
	releasesAtEOF bool // the program asked for it: the end of the stream suffices

	phase     phase
	streamEnd bool // the program's end of the stream is closed
	exited    bool // the program's process has ended
}

// phase is how far a hold has come.
type phase int

const (
	waiting   phase = iota // for the lock
	quitting               // waiting, and nobody wants the lock any more
	held                   // the program may act
	stopping               // held, and the program was asked to release it
	doubtful               // held, and the program has either closed its stream or ended: the other may follow
	orphaned               // the program may not act any more, but it may not know yet: the lock expires
	releasing              // the release is in progress
	over
)

// happening is the kind of an event.
type happening int

const (
	won        happening = iota // the lock
	refused                     // the lock was not acquired: err
	beat                        // a heartbeat was acknowledged
	jeopardy                    // a heartbeat was not acknowledged, for the first time in a row
	termEnded                   // the lock is not held any more: err
	streamEnds                  // the program's end of the stream is closed
	exits                       // the program's process has ended
	stalls                      // the program does not read its lines
	doubted                     // the time for doubt is over
	asked                       // to release, by the program
	stopAsked                   // to stop, by an operator or because the agent ends: reason
	released                    // the release is done: err
)

// action is something to do.
type action int

const (
	sayHeld action = iota
	sayUntil
	sayJeopardy
	sayStop
	sayLost
	sayRefused
	doubt   // a process that is killed closes its stream and ends, but not at one instant
	quit    // stop waiting for the lock, and give back what may still be acquired
	mute    // send no more heartbeats
	release // the lock
	bar     // other programs of this agent from the lock until the last promised time
	discard // a lock that was lost: this process keeps nothing of it
	end     // the response
)

// on returns what to do, in this order.
func (m *machine) on(what happening) []action {
	switch what {
	case streamEnds:
		m.streamEnd = true
	case exits:
		m.exited = true
	}
	switch m.phase {
	case waiting:
		return m.wait(what)
	case quitting:
		return m.giveUp(what)
	case held, stopping, doubtful:
		return m.hold(what)
	case orphaned:
		return m.expire(what)
	case releasing:
		if what == released {
			return m.to(over, end)
		}
	}
	return nil
}

func (m *machine) wait(what happening) []action {
	switch what {
	case won:
		return m.to(held, sayHeld)
	case refused:
		return m.to(over, sayRefused, end)
	case streamEnds, exits, stalls, asked, stopAsked:
		return m.to(quitting, quit)
	}
	return nil
}

// giveUp is for a lock that nobody wants any more. The program was never told that it has the lock, so it may be released
// whatever the program does.
func (m *machine) giveUp(what happening) []action {
	switch what {
	case won:
		return m.to(releasing, release)
	case refused:
		return m.to(over, sayRefused, end)
	}
	return nil
}

func (m *machine) hold(what happening) []action {
	switch what {
	case beat:
		return []action{sayUntil}
	case jeopardy:
		return []action{sayJeopardy}
	case stopAsked:
		if m.phase == held {
			return m.to(stopping, sayStop)
		}
	case asked:
		return m.to(releasing, release)
	case termEnded:
		return m.to(over, sayLost, bar, discard, end)
	case stalls:
		return m.to(orphaned, sayLost, mute, bar)
	case doubted:
		if m.phase == doubtful {
			return m.to(orphaned, sayLost, mute, bar)
		}
	case streamEnds, exits:
		if m.mayRelease() {
			return m.to(releasing, release)
		}
		return m.to(doubtful, doubt)
	}
	return nil
}

// expire is for a lock whose program may not know yet that it may not act any more.
func (m *machine) expire(what happening) []action {
	switch what {
	case asked:
		return m.to(releasing, release)
	case streamEnds, exits:
		if m.mayRelease() {
			return m.to(releasing, release)
		}
	case termEnded:
		return m.to(over, discard, end)
	}
	return nil
}

// mayRelease reports whether the program can't act any more, by what is known of it.
func (m *machine) mayRelease() bool {
	return m.streamEnd && (m.exited || m.releasesAtEOF)
}

func (m *machine) to(p phase, actions ...action) []action {
	m.phase = p
	return actions
}
