package agent

// machine is the state of one hold, and decides what to do after each event. It releases the lock only if the program
// said that its work has returned, or if the program can no longer act. That is certain only when its process has ended
// and its end of the stream is closed. One of the two is not enough: a process can close its socket and go on working,
// and after a process has ended, its children may still have the socket.
type machine struct {
	releasesAtEOF bool // the program asked for eof=release, so the end of the stream is enough

	phase     phase
	lost      bool // the lock was lost before the machine knew that it was won
	streamEnd bool // the program's end of the stream is closed
	exited    bool // the program's process has ended
}

// phase is how far a hold has come.
type phase int

const (
	waiting   phase = iota // for the lock
	quitting               // waiting, but the program no longer wants the lock
	held                   // the program may act
	stopping               // held, but the program was asked to release the lock
	doubtful               // held, but either the stream is closed or the process has ended; the other may follow
	orphaned               // the program has lost the lock, but may not know it yet; the lock will expire
	releasing              // the release is in progress
	over
)

// holds reports whether the program holds its lock and may know it.
func (p phase) holds() bool { return p == held || p == stopping || p == doubtful }

// happening is the kind of an event.
type happening int

const (
	won        happening = iota // the lock was acquired
	refused                     // the lock was not acquired; err says why
	beat                        // a heartbeat was acknowledged
	jeopardy                    // a heartbeat failed, after one that succeeded
	termEnded                   // the lock is no longer held; err says why
	streamEnds                  // the program's end of the stream is closed
	exits                       // the program's process has ended
	stalls                      // the program does not read its lines
	doubted                     // longestDoubt has passed
	asked                       // the program asked to release the lock
	stopAsked                   // the program is to be asked to stop; reason says why
	released                    // the call that releases the lock has returned
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
	doubt   // wait for the second sign that the program has died
	quit    // stop waiting for the lock
	mute    // send no more heartbeats
	release // the lock, because the program can't act any more
	discard // free what this process keeps for a lost lock
	end     // the response
)

// on handles an event and returns what to do, in this order.
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
		if m.lost {
			return m.to(over, sayLost, discard, end)
		}
		return m.to(held, sayHeld)
	case termEnded:
		m.lost = true
	case refused:
		return m.to(over, sayRefused, end)
	case streamEnds, exits, stalls, asked, stopAsked:
		return m.to(quitting, quit)
	}
	return nil
}

// giveUp handles an event after the program has stopped wanting the lock. The program never learned that it holds the
// lock, so the lock may be released in any case.
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
		return m.to(over, sayLost, discard, end)
	case stalls:
		return m.to(orphaned, sayLost, mute)
	case doubted:
		if m.phase == doubtful {
			return m.to(orphaned, sayLost, mute)
		}
	case streamEnds, exits:
		if m.mayRelease() {
			return m.to(releasing, release)
		}
		return m.to(doubtful, doubt)
	}
	return nil
}

// expire handles an event after the program has lost the lock. The program may not know that yet.
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

// mayRelease reports whether the lock may be released because the program can no longer act.
func (m *machine) mayRelease() bool {
	return m.streamEnd && (m.exited || m.releasesAtEOF)
}

func (m *machine) to(p phase, actions ...action) []action {
	m.phase = p
	return actions
}
