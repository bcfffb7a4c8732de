package exit

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilEnded returns a context that is canceled when this process receives SIGTERM, SIGINT or SIGHUP. A second SIGTERM
// or SIGINT kills the process immediately. A second SIGHUP does not, because a process can receive several of them when
// its terminal closes, and some init systems send SIGHUP along with SIGTERM. If SIGHUP was ignored when the process
// started, as under nohup, it stays ignored.
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
