package demo

import (
	"context"
	"os"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/serve"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/demokit"
)

// onAPage plays the story while a page shows it, and then keeps the page available until ctx ends.
func (d *demo) onAPage(ctx context.Context, db *connect.Connection, listen string) error {
	on, err := serve.ListenOn(listen)
	if err != nil {
		return err
	}
	defer on.Close()
	server, page := serve.OnePage(d.Database, db, d.lock, listen, on.Addr())
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go server.Watch(watching)
	answered := make(chan error, 1)
	go func() { answered <- serve.Serve(watching, on, page) }()

	d.Print(demokit.Bold, "The page is at %s/?span=2m", terminal.URL(on.Addr()))
	if terminal.On(os.Stdout).IsTerminal {
		d.Print(demokit.Faint, "The demo begins when you open the page.\n")
		select {
		case <-server.Opened():
		case err := <-answered:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := d.play(ctx); err != nil {
		return d.Explain(err)
	}
	d.Print(demokit.Bold, "\nThe page stays available until you press Ctrl+C: %s/?span=2m", terminal.URL(on.Addr()))
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return nil
	}
}
