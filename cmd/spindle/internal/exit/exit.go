// Package exit defines how a command ends.
//
//   - exit.go: exit codes, and errors that have one
//   - endings.go: signals that end a command
package exit

import "fmt"

// The exit codes. Exec can also exit with its program's code.
const (
	Failed       = 1 // the command failed
	Misused      = 2 // the command line is wrong
	StatusFree   = 3 // status: the lock is free
	StatusElse   = 4 // status: another process holds the lock
	NobodyThere  = 3 // members: no member has a valid lease; ls: there is no such group
	DoctorFailed = 3 // doctor: the database does not behave as locks assume
	NobodyLeads  = 3 // handover: the lock is not held
	Unsupported  = 4 // handover: the holder does not accept requests
	NotTakenOver = 5 // handover: no other candidate has taken over the lock
)

// An Error is an error with an exit code. If Err is nil, the command exits without a message.
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

// Misuse returns an error for a wrong command line.
func Misuse(format string, args ...any) error {
	return &Error{Misused, fmt.Errorf(format, args...)}
}
