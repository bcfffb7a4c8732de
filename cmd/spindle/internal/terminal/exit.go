package terminal

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// The exit codes of the commands. Exec has further codes, and can also exit with its program's code.
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

// An Exit is an error with an exit code. If Err is nil, the command exits without a message.
type Exit struct {
	Code int
	Err  error
}

// Error implements error.
func (e *Exit) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Exit) Unwrap() error { return e.Err }

// Misuse returns an error for a wrong command line.
func Misuse(format string, args ...any) error {
	return &Exit{Misused, fmt.Errorf(format, args...)}
}

// UntilEnded returns a context that is canceled when this process receives SIGTERM, SIGINT or SIGHUP. A second SIGTERM
// or SIGINT kills the process immediately. A second SIGHUP does not, because a process can receive SIGHUP several times
// when its terminal closes, and some init systems send SIGHUP along with SIGTERM. If SIGHUP was ignored when the
// process started, as under nohup, it stays ignored.
func UntilEnded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if !signal.Ignored(syscall.SIGHUP) {
		hangUp := make(chan os.Signal, 1)
		signal.Notify(hangUp, syscall.SIGHUP)
		go func() {
			for range hangUp {
				cancel()
			}
		}()
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-asked
		signal.Stop(asked)
		cancel()
	}()
	return ctx, cancel
}

// UntilInterrupted returns a context that is canceled when this process receives SIGTERM or SIGINT. A second signal
// kills the process immediately.
func UntilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// OutliveReaders lets this process continue after the process that reads its output has exited. It catches SIGPIPE
// rather than ignoring it, because the programs that this process starts would inherit an ignored signal.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
