// Package cli assembles the spindle command from its subcommands.
//
//   - root.go: the root command
//   - help.go: the help of each command
//   - completion.go: completion from the lock table
//   - version.go, install.go, man.go, schema.go: the subcommands with these names
//
// The other subcommands are in packages of their own. Package run has exec and guard. Package view has ls, status,
// members and watch. Package operate has init, doctor, handover, release and prune. Packages agent, serve and demo each
// have the subcommand of the same name. All these packages use terminal and database, and some use model, child, health
// and peer.
package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/agent"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/demo"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/operate"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/run"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/serve"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/view"
	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
)

// Main runs the command line, and returns the exit code.
func Main(args []string) int {
	if code, is := run.Beside(args); is {
		return code
	}
	_, args = subprocess.Orders(args) // a machine in the demonstration ends when the demonstration does
	root := newRoot()
	root.SetArgs(args)
	// An error before a command runs is a mistake on the command line.
	code := terminal.Misused
	terminal.Commands(root, func(c *cobra.Command) {
		if run := c.RunE; run != nil {
			c.RunE = func(c *cobra.Command, args []string) error {
				code = terminal.Failed
				return run(c, args)
			}
		}
	})
	c, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return 0
	}
	var e *terminal.Exit
	if errors.As(err, &e) {
		code = e.Code
		if e.Err == nil {
			return code
		}
	}
	if code == terminal.Misused {
		_ = terminal.FromEnvironment(c.Flags()) // sets --log-format, which cobra does only once it has understood the command line
	}
	terminal.Stderr.Log(slog.LevelError, err.Error())
	if code == terminal.Misused && !terminal.Stderr.Format.Objects() {
		fmt.Fprintf(os.Stderr, "Try: %s --help\n", c.CommandPath())
	}
	return code
}

const rootHelp = `Spindle runs a program on only one machine at a time, and shows who holds
each lock.

Locks are rows of a table in a Cloud Spanner database. A lock has at most one
holder, which keeps it by sending heartbeats. If no heartbeat is acknowledged
before the lease expires, the holder stops by itself, and another process can
take the lock. Each process that takes the lock gets a new fencing token, which
is larger than all earlier ones.

To see a demonstration on a Spanner emulator, without using your database:

  spindle demo

To get started:

  export SPINDLE_DB=projects/P/instances/I/databases/D
  spindle init
  spindle exec --name nightly -- ./nightly-report
  spindle ls

Except for --help and --version, each flag whose help does not begin with an
asterisk can also be set by an environment variable. For example,
SPINDLE_HOOK_TIMEOUT sets --hook-timeout. A flag on the command line takes
precedence. To use a running emulator instead of Cloud Spanner, set
SPANNER_EMULATOR_HOST to its host:port.`

// usage is the template for the end of each command's help: the subcommands and all flags.
const usage = `{{if .HasAvailableSubCommands}}
Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if .HasAvailableLocalFlags}}
All flags:
{{.LocalFlags.FlagUsagesWrapped 80}}{{end}}{{if .HasAvailableInheritedFlags}}
Global flags:
{{.InheritedFlags.FlagUsagesWrapped 80}}{{end}}{{if .HasParent}}
Flags without an asterisk have environment variables: see spindle --help.
{{end}}`

func newRoot() *cobra.Command {
	o := &database.Database{}
	root := &cobra.Command{
		Use:               "spindle COMMAND",
		Short:             "Run a program on only one machine at a time, and see who holds each lock",
		Long:              rootHelp + "\n" + terminal.CommonCodes + "\nSome commands have further exit codes.",
		Example:           "  spindle demo",
		Version:           versionOf(buildInfo()).String(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return terminal.FromEnvironment(c.Flags()) },
		Args:              cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			return unknown(c, args[0])
		},
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if c == root && c.Flags().NArg() > 0 { // a mistyped command, whose flags the root does not have
			return unknown(c, c.Flags().Arg(0))
		}
		return terminal.Invalid(err, terminal.OnCommandLine)
	})
	root.SetHelpFunc(help)
	root.SetUsageTemplate(usage)
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate("{{.Version}}")
	root.Flags().Bool("version", false, "print the version")
	o.Flags(root.PersistentFlags())
	root.AddCommand(operate.NewInit(o), operate.NewDoctor(o), run.NewExec(o), run.NewGuard(o), view.NewLs(o), view.NewWatch(o), view.NewStatus(o), view.NewMembers(o), serve.NewServe(o), agent.NewAgent(o), operate.NewHandover(o), operate.NewRelease(o), operate.NewPrune(o), demo.NewDemo(o), newVersion(), newSchema(), newInstall(), newMan())
	addCompletions(o, root)
	terminal.Commands(root, func(c *cobra.Command) {
		c.Flags().SortFlags = false
		terminal.MarkWithoutVariable(c.LocalFlags())
		c.InitDefaultHelpFlag()
		c.Flags().Lookup("help").Usage = "show this help"
	})
	return root
}

func unknown(c *cobra.Command, arg string) error {
	hint := ""
	if s := c.SuggestionsFor(arg); len(s) > 0 {
		hint = ": did you mean " + strings.Join(s, " or ") + "?"
	}
	return terminal.Misuse("unknown command %q%s", arg, hint)
}
