package run

import (
	"os"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// A happening is the kind of an event. Each comment below names, in parentheses, the fields that such an event sets.
type happening int

const (
	nothing     happening = iota
	begun                 // the command has begun
	elected               // the lock is held (term, late)
	electedDead           // like elected, but the last holder did not release the lock, and may not know of its loss
	withdrawn             // the command has stopped competing and does not hold the lock (err: why the last poll failed)
	unable                // the command must end because of the result of a poll, a check or the program's start (end)
	done                  // the work was already done (end)
	due                   // the program still has to run, or the lock has been kept for the confirmation
	started               // the program runs, or the activation has begun
	notStarted            // the program could not be started, but a retry might succeed (end)
	activated             // the activation succeeded
	ending                // the command got a signal to end (signal)
	signaled              // exec got any other signal (signal)
	requested             // the command was asked to hand over the lock (by)
	announced             // the other candidates know that the lock will be released, or the wait for them has ended
	jeopardy              // a heartbeat has failed (err)
	safe                  // a heartbeat was acknowledged again
	unfit                 // the program or service must end although the lock is held (err)
	late                  // the program must be signaled to end now, so that it exits before the lock's deadline
	overdue               // the program must be killed
	overstayed            // the program has not exited within --stop-timeout after a signal to end
	exited                // the program has exited, and so has its whole group (code); or the service is inactive
	notExited             // the service could not be deactivated (err)
	lost                  // the lock is no longer held (err)
	released              // the lock was released
	notReleased           // the lock could not be released (err)

	// The machine ignores these events:

	paused    // the program was stopped or continued
	stopKey   // exec got Ctrl-Z
	ticked    // it is time to look at the program's deadlines
	unwatched // the program's watchdog has exited
)

// An event is something that happened.
type event struct {
	what    happening
	term    *elect.Term
	late    bool     // the wait for the lock is over
	of      *holding // the term of the event, which is ignored if that term is over
	command int      // the number of guard's command whose result this is, or 0
	end     terminal.Exit
	signal  os.Signal
	by      table.Request
	code    int
	err     error
}

// A deed is the kind of an action. In the comments below, what runs is exec's program or guard's service.
type deed int

const (
	compete       deed = iota // compete for the lock
	competeLater              // compete again, after other candidates have had a chance to acquire the lock
	competeAtOnce             // compete again immediately
	withdraw                  // stop competing
	keep                      // keep the lock by sending heartbeats
	check                     // ask whether the program still has to run, or wait for the confirmation
	start                     // start the program, or activate the service
	watchRequests             // watch for requests to hand over the lock
	announce                  // announce that the lock will be released; what runs continues until the candidates know
	pass                      // pass signal to the program, or deactivate the service
	limit                     // limit the program to its grace period, or deactivate the service; after is the reason
	kill                      // kill the program, or deactivate the service
	release                   // release the lock; the next holder may begin immediately
	recordDone                // release the lock, and record the work as done in the same commit
	releaseUndone             // release the lock, and log that the work is not done
	abandon                   // end a term whose lock is lost, or leave the lock to expire
)

// An action is something that the command does.
type action struct {
	do     deed
	signal os.Signal
	after  event
}

// sources are the channels of exec other than the inbox. A channel is nil while nothing can be received from it.
type sources struct {
	signals   <-chan os.Signal
	keys      <-chan os.Signal // Ctrl-Z
	ends      <-chan struct{}  // of the program
	changes   <-chan struct{}  // the program was stopped or continued
	unwatched <-chan struct{}
	ticks     <-chan time.Time
}
