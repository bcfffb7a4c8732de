package exit

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilEnded returns a ctx that ends at SIGTERM, SIGINT or SIGHUP. A second SIGTERM or SIGINT then ends this process at once.
// SIGHUP does not: a terminal that is closed sends it more than once, and some init systems send it beside SIGTERM. Under
// nohup it is ignored, and stays so.
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

// UntilInterrupted returns a ctx that ends at SIGTERM or SIGINT. A second one then ends this process at once.
func UntilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// OutliveReaders lets this process continue when its output has no reader any more. It catches SIGPIPE instead of ignoring
// it: programs inherit ignored signals.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
