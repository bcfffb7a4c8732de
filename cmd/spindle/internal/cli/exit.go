package cli

import (
	"fmt"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/execcmd"
)

// The exit codes. Exec has its program's too.
const (
	failed       = 1 // it could not be done
	misused      = 2 // the command line is wrong
	statusFree   = 3 // status: nobody holds it
	statusElse   = 4 // status: another holds it
	nobodyThere  = 3 // members: no member was heard from; ls: there is no such group
	doctorFailed = 3 // doctor: something does not hold
	nobodyLeads  = 3 // handover: nobody holds it
	unsupported  = 4 // handover: its holder does not accept requests
	notTakenOver = 5 // handover: nobody else has taken it over

	notInTime = execcmd.NotInTime // exec: not acquired in time
	lost      = execcmd.Lost      // exec: the lock was lost
)

// An exit is an error with an exit code. One without an error is silent.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

func misuse(format string, args ...any) error {
	return &exit{misused, fmt.Errorf(format, args...)}
}
