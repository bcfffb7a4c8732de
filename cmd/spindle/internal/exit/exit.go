// Package exit is how a command ends.
//
//   - exit.go: exit codes, and errors that have one
//   - endings.go: signals that end a command
package exit

import "fmt"

// The exit codes. Exec has its program's too.
const (
	Failed       = 1 // it could not be done
	Misused      = 2 // the command line is wrong
	StatusFree   = 3 // status: nobody holds it
	StatusElse   = 4 // status: another holds it
	NobodyThere  = 3 // members: no member was heard from; ls: there is no such group
	DoctorFailed = 3 // doctor: something does not hold
	NobodyLeads  = 3 // handover: nobody holds it
	Unsupported  = 4 // handover: its holder does not accept requests
	NotTakenOver = 5 // handover: nobody else has taken it over
)

// An Error is an error with an exit code. One without an error is silent.
type Error struct {
	Code int
	Err  error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap implements errors.
func (e *Error) Unwrap() error { return e.Err }

// Misuse returns an error of the command line.
func Misuse(format string, args ...any) error {
	return &Error{Misused, fmt.Errorf(format, args...)}
}
