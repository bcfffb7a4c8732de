package agent

import "slices"

// machine is the state of one hold, and decides what to do after each event. It releases the lock only if the program
// can no longer act, never learned that it holds the lock, or has said that its work has returned. A program can no
// longer act once its process has ended and its end of the stream is closed. Without eof=release, one condition alone
// is not enough: a process can close its socket and keep working, and after a process has ended, its children may still
// have the socket.
type machine struct {
	releasesAtEOF bool // the program asked for eof=release, so the end of the stream is enough

	phase     phase
	streamEnd bool // the program's end of the stream is closed
	exited    bool // the program's process has ended
}

// phase is the stage that a hold has reached.
type phase int

const (
	waiting   phase = iota // for the lock
	missed                 // waiting, but the lock was lost before the machine knew that it had been acquired
	quitting               // waiting, but the program no longer wants the lock
	held                   // the program may act
	stopping               // held, but the program was asked to release the lock
	doubtful               // held, but either the stream is closed or the process has ended; the other may follow
	orphaned               // the program has lost the lock, but may not know it yet; the lock will expire
	releasing              // the release is in progress
	over

	same phase = -1 // in rules
)

// holds reports whether the program holds its lock, and may know that it does.
func (p phase) holds() bool { return p == held || p == stopping || p == doubtful }

// wants reports whether the program wants its lock, and can still learn what happens to it.
func (p phase) wants() bool { return p == waiting || p == held || p == stopping }

// happening is the kind of an event.
type happening int

const (
	won        happening = iota // the lock was acquired
	wonAgain                    // the lock was acquired after the term that has ended, so that the loss does not count
	refused                     // the lock was not acquired; err says why
	beat                        // a heartbeat was acknowledged
	jeopardy                    // a heartbeat failed, after one that succeeded
	termEnded                   // the lock is no longer held; err says why
	streamEnds                  // the program's end of the stream is closed
	exits                       // the program's process has ended
	stalls                      // the program does not read its lines
	doubted                     // longestDoubt has passed since the hold became doubtful
	asked                       // the program asked to release the lock
	stopAsked                   // the program is to be asked to stop; reason says why
	released                    // the release is over; err says why it failed

	gone happening = -1 // streamEnds or exits, after which the program can no longer act
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
	sayReleased
	doubt   // wait for the second sign that the program has died
	quit    // stop waiting for the lock
	mute    // send no more heartbeats
	release // the lock, because the program does not act any more
	discard // free what this process keeps for a lost lock
	end     // the response
)

// A rule says what follows from an event.
type rule struct {
	in []phase
	on []happening
	to phase
	do []action // in this order
}

type (
	in []phase
	on []happening
	do []action
)

// rules is the table of all rules. If no rule applies to an event, the phase stays the same and there is nothing to do.
// In the phase quitting, the lock may be released at any time, because the program never learned that it was acquired.
var rules = []rule{
	{in{waiting}, on{won}, held, do{sayHeld}},
	{in{waiting}, on{termEnded}, missed, nil},
	{in{missed}, on{won}, over, do{sayLost, discard, end}},
	{in{missed}, on{wonAgain}, held, do{sayHeld}},
	{in{waiting, missed}, on{streamEnds, exits, gone, stalls, asked, stopAsked}, quitting, do{quit}},
	{in{quitting}, on{won, wonAgain}, releasing, do{release}},
	{in{waiting, missed, quitting}, on{refused}, over, do{sayRefused, end}},

	{in{held, stopping, doubtful}, on{beat}, same, do{sayUntil}},
	{in{held, stopping, doubtful}, on{jeopardy}, same, do{sayJeopardy}},
	{in{held}, on{stopAsked}, stopping, do{sayStop}},
	{in{held, stopping}, on{streamEnds, exits}, doubtful, do{doubt}},
	{in{held, stopping, doubtful}, on{stalls}, orphaned, do{sayLost, mute}},
	{in{doubtful}, on{doubted}, orphaned, do{sayLost, mute}},
	{in{held, stopping, doubtful}, on{termEnded}, over, do{sayLost, discard, end}},
	{in{orphaned}, on{termEnded}, over, do{discard, end}},
	{in{held, stopping, doubtful, orphaned}, on{asked, gone}, releasing, do{release}},
	{in{releasing}, on{released}, over, do{sayReleased, end}},
}

// on handles an event and returns what to do.
func (m *machine) on(what happening) []action {
	m.streamEnd = m.streamEnd || what == streamEnds
	m.exited = m.exited || what == exits
	if (what == streamEnds || what == exits) && m.streamEnd && (m.exited || m.releasesAtEOF) {
		what = gone
	}
	for _, r := range rules {
		if slices.Contains(r.in, m.phase) && slices.Contains(r.on, what) {
			if r.to != same {
				m.phase = r.to
			}
			return r.do
		}
	}
	return nil
}
