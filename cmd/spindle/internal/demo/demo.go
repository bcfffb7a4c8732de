// Package demo implements the command demo, which tells a story of three machines.
package demo

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/child"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/serve"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/demokit"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// NewDemo returns the command demo.
func NewDemo(o *database.Database) *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show elections and failovers on a temporary emulator",
		Long: `Demo shows elections and failovers in about fifteen seconds. Three processes,
each in the role of a machine, compete to run a program that must run on only
one of them at a time. The first machine to run it is killed, the second is
suspended, and an operator takes the lock away from the third.

Demo starts a Cloud Spanner emulator, and stops it at the end. It needs either
Docker or the emulator from "gcloud components install cloud-spanner-emulator".
If SPANNER_EMULATOR_HOST is set, demo uses that emulator instead, and creates a
temporary database there.

Demo ignores SPINDLE_DB, because that variable often names a production
database. To run the demo on your own database, use --db on the command line.
The database must have the lock table. At the end, demo deletes its lock. If the
demo is interrupted, rows of that lock may remain.

With --serve, demo also serves the web page of spindle serve. If standard output
is a terminal, the demo begins when you open the page. The page stays available
until you press Ctrl+C.
` + terminal.CommonCodes + "\n  130  the demo was interrupted",
		Example: "  spindle demo\n  spindle demo --serve",
		Args:    terminal.Exactly(0, "no arguments"),
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			given := c.Flags().Changed("db")
			err := terminal.FromEnvironment(c.Flags())
			if !given {
				o.Path = "" // many shells export the path of a production database
			}
			return err
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(child.Supported(), checkIfGiven(o)); err != nil {
				return err
			}
			demokit.Play(func(ctx context.Context) error { return demonstrate(ctx, o, listen) })
			return nil
		},
	}
	c.Flags().StringVar(&listen, "serve", "", "also serve the web page of spindle serve at this `address`")
	c.Flags().Lookup("serve").NoOptDefVal = serve.DefaultListen
	return c
}

func checkIfGiven(o *database.Database) error {
	if o.Path == "" {
		return nil
	}
	return o.Check()
}

const (
	demoLease = 2 * time.Second

	// demoWork is what each machine runs.
	demoWork = `while echo "$SPINDLE_TOKEN"; do sleep 0.25; done`
)

// demo tells the story of an election among three machines that run spindle exec.
type demo struct {
	*demokit.Election
	*database.Database
	lock string
	on   table.Table
}

func demonstrate(ctx context.Context, o *database.Database, listen string) error {
	d := &demo{Election: demokit.NewElection(demoLease, "works", false), Database: o, lock: "backup"}
	d.Print(demokit.Bold, "Three machines compete to run a program that must run on only one of them.")
	d.Print(demokit.Plain, "A machine that stops sending heartbeats loses the lock after one lease (%v).\n", demoLease)
	if o.Path == "" {
		own, err := d.Story.Open(ctx)
		if err != nil {
			return err
		}
		defer own.Close()
		o.Path, o.Table = own.Path, demokit.Table
	} else {
		d.lock = "spindle-demo-" + uuid.NewString()[:8]
	}
	db, err := o.Open(spindle.ClientOptions(demoLease)...)
	if err != nil {
		return err
	}
	defer db.Close()
	d.on = db.Locks()
	defer d.forget(db)
	defer d.End()
	if listen == "" {
		return d.Explain(d.play(ctx))
	}
	return d.onAPage(ctx, listen)
}

// forget cleans up the lock table, which may be the user's own. It deletes the demo's lock if the lock was released.
func (d *demo) forget(db *database.Connection) {
	if l, err := operator.ListOne(context.Background(), d.on, d.lock); err == nil && l.State() == operator.Released {
		_, _ = db.Client().Apply(context.Background(), []*spanner.Mutation{spanner.Delete(d.Table, spanner.Key{d.lock})})
	}
}

func (d *demo) play(ctx context.Context) error {
	d.Say("", demokit.Faint, "$ spindle exec --name %s --lease %v --restart -- sh -c '%s'", d.lock, demoLease, demoWork)
	err := d.Begin(ctx, func(name string) []string {
		return []string{"exec", "--quiet", "--db", d.Path, "--table", d.Table, "--name", d.lock, "--id", name,
			"--value", "http://" + strings.ToLower(name) + ":8080", "--lease", demoLease.String(), "--restart", "--", "sh", "-c", demoWork}
	})
	if err != nil {
		return err
	}
	if err := d.ls(ctx); err != nil {
		return err
	}
	d.Say("", demokit.Bad, "kill -9 %d: its watchdog kills the program, and releases the lock", d.Holder().Pid())
	crash, err := d.Next(ctx, func(c *demokit.Child) error { return c.Signal(syscall.SIGKILL) })
	if err != nil {
		return err
	}
	pause, err := d.Pause(ctx, "its program continues until the lease expires")
	if err != nil {
		return err
	}
	d.Say("", demokit.Faint, "$ spindle release %s --token %v", d.lock, d.Token())
	broken, err := d.Next(ctx, func(*demokit.Child) error { return d.on.Release(ctx, table.Token(d.Token()), d.lock) })
	if err != nil {
		return err
	}
	if err := d.ls(ctx); err != nil {
		return err
	}
	if err := d.GoHome(ctx); err != nil {
		return err
	}
	l, err := operator.ListOne(ctx, d.on, d.lock)
	if err != nil {
		return err
	}
	d.Say("", demokit.Plain, "%s is %s, and no machine is competing for it", d.lock, l.State())

	d.Print(demokit.Plain, "")
	d.Print(demokit.Bold, "Crash   another machine took over after %s", demokit.InLeases(crash, demoLease))
	d.Print(demokit.Bold, "Pause   another machine took over after %s", demokit.InLeases(pause, demoLease))
	d.Print(demokit.Bold, "Break   another machine took over after %s", demokit.InLeases(broken, demoLease))
	d.Tokens()
	d.Print(demokit.Plain, "\nTo use spindle with your own database, see spindle init --help.")
	return nil
}

func (d *demo) ls(ctx context.Context) error {
	l, err := operator.ListOne(ctx, d.on, d.lock)
	if err != nil {
		return err
	}
	d.Say("", demokit.Faint, "$ spindle ls")
	locks := terminal.Columns{Names: model.LockColumns}
	for _, line := range locks.Lines(&terminal.Terminal{Width: 80}, []terminal.Row{model.LockEntry(l).Row}) {
		d.Print(demokit.Plain, "  %s", line)
	}
	return nil
}

// onAPage plays the story while a page shows it, and then keeps the page available until ctx ends or the server fails.
func (d *demo) onAPage(ctx context.Context, listen string) error {
	server, err := serve.New(serve.Config{Database: d.Database, Prefix: d.lock, Every: 200 * time.Millisecond, Listen: listen, Expect: []string{d.lock}}, d.on)
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	url, ended, err := server.Start(watching)
	if err != nil {
		return err
	}
	go server.Watch(watching)

	d.Print(demokit.Bold, "The page is at %s/?span=2m", url)
	if terminal.On(os.Stdout).IsTerminal {
		d.Print(demokit.Faint, "The demo begins when you open the page.\n")
		select {
		case <-server.Opened():
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := d.play(ctx); err != nil {
		return d.Explain(err)
	}
	d.Print(demokit.Bold, "\nThe page stays available until you press Ctrl+C: %s/?span=2m", url)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}
