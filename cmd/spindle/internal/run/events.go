package run

import (
	"os"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
)

// A happening is the kind of an event of exec or guard. The comments name, in parentheses, the fields that such an event
// sets.
type happening int

const (
	nothing   happening = iota
	begun               // the command has begun
	elected             // the lock is held (term)
	withdrawn           // the command has stopped competing and does not hold the lock (err: why the last poll failed)
	ending              // the command got a signal to end (signal)
	requested           // the command was asked to hand over the lock (by)
	announced           // the other candidates know that the lock will be released
	unfit               // the program or service must end although the lock is held (err)
	lost                // the lock is no longer held (err)

	// Only exec:

	waitOver    // exec has waited for the lock as long as it may
	unable      // exec must end because of the result of a poll or of the program's start (end)
	done        // the work was already done (end)
	due         // the work still has to be done
	started     // the program was started
	notStarted  // the program could not be started, but a retry might succeed (end)
	signaled    // exec got any other signal (signal)
	late        // the program must be signaled to end now, so that it has exited before the lock's deadline
	overdue     // the program must be killed
	overstayed  // the program has not exited within StopTimeout after a signal to end
	exited      // the program has exited, and so has its whole group (code)
	jeopardy    // a heartbeat has failed (err)
	safe        // a heartbeat was acknowledged again
	paused      // the program was stopped or continued; the machine ignores it
	stopKey     // exec got Ctrl-Z; the machine ignores it
	released    // the lock was released
	notReleased // the lock could not be released (err)

	// Only guard:

	electedDead    // the lock is held (term); the last holder did not release it, and may not know that it lost the lock
	confirmed      // the lock has been kept for the confirmation after electedDead
	activated      // the activation succeeded
	notActivated   // the activation failed (err)
	deactivated    // the deactivation succeeded
	notDeactivated // the deactivation failed (err)
)

// An event is something that happened.
type event struct {
	what    happening
	term    *elect.Term
	end     End
	signal  os.Signal
	by      table.Request
	code    int
	command int // guard: the number of the command whose result this is
	err     error
}

// A deed is the kind of an action.
type deed int

const (
	compete      deed = iota // compete for the lock
	competeLater             // compete again, after other candidates have had a chance to acquire it
	withdraw                 // stop competing
	announce                 // announce that the lock will be released; the program or service stays until the candidates know
	release                  // release the lock; the next holder begins immediately
	abandon                  // leave the lock, which is lost or expires

	// Only exec:

	competeAtOnce // compete again immediately, after a handover
	keep          // keep the lock by heartbeats
	check         // ask whether the program still has to run
	start         // start the program
	watchRequests // watch for requests to hand over the lock
	pass          // pass signal to the program
	limit         // limit the program to its grace period; after is the reason
	kill          // kill the program
	recordDone    // release the lock, and record the work as done in the same commit
	releaseUndone // release the lock, and log that the work is not done

	// Only guard:

	activate   // activate the service
	deactivate // deactivate the service, after ending an activation in progress
	confirm    // wait for the confirmation; the event confirmed follows
	end        // end guard
)

// An action is something that exec does.
type action struct {
	do     deed
	signal os.Signal
	after  event
}
