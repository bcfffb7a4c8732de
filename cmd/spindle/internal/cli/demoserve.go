package cli

import (
	"context"
	"os"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/serve"
	"github.com/spindle-lock/spindle/internal/demokit"
)

// onAPage plays the story while a page shows it, and leaves the page open until ctx ends.
func (d *demo) onAPage(ctx context.Context, db *connection, listen string) error {
	on, err := listenOn(listen)
	if err != nil {
		return err
	}
	defer on.Close()
	s := &serving{common: d.common, prefix: d.lock, every: 200 * time.Millisecond, listen: listen, expect: []string{d.lock}}
	server := s.server(db, nil)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go server.Watch(watching)
	answered := make(chan error, 1)
	go func() { answered <- serve.Serve(watching, on, s.guarded(on.Addr(), server)) }()

	d.Print(demokit.Bold, "The page is at %s/?span=2m", urlOf(on.Addr()))
	if terminalOn(os.Stdout).isTerminal {
		d.Print(demokit.Faint, "The story begins once it is open.\n")
		select {
		case <-server.Opened():
		case err := <-answered:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := d.play(ctx); err != nil {
		return d.explain(err)
	}
	d.Print(demokit.Bold, "\nThe page stays until you press Ctrl+C: %s/?span=2m", urlOf(on.Addr()))
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return nil
	}
}
