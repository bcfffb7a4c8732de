package exit

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilEnded returns a context that is canceled at SIGTERM, SIGINT or SIGHUP. A second SIGTERM or SIGINT immediately
// ends this process. A second SIGHUP does not, because closing a terminal can send more than one, and some init systems
// send SIGHUP in addition to SIGTERM. If SIGHUP is ignored, as under nohup, it remains ignored.
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

// UntilInterrupted returns a context that is canceled at SIGTERM or SIGINT. A second signal immediately ends this
// process.
func UntilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// OutliveReaders lets this process continue when the reader of its output has exited. It catches SIGPIPE instead of
// ignoring it, because programs inherit ignored signals.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
