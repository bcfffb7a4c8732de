package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/internal/subprocess"
)

// Main runs the command line, and returns the exit code.
func Main(args []string) int {
	if code, is := beside(args); is {
		return code
	}
	_, args = subprocess.Orders(args) // a machine of the demonstration ends with it
	root := newRoot()
	root.SetArgs(args)
	// What fails before a command runs is a mistake on the command line.
	code := misused
	commands(root, func(c *cobra.Command) {
		if run := c.RunE; run != nil {
			c.RunE = func(c *cobra.Command, args []string) error {
				code = failed
				return run(c, args)
			}
		}
	})
	c, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return 0
	}
	var e *exit
	if errors.As(err, &e) {
		code = e.code
		if e.err == nil {
			return code
		}
	}
	stderr.log(slog.LevelError, err.Error())
	if code == misused && !stderr.format.objects() {
		fmt.Fprintf(os.Stderr, "Try: %s --help\n", c.CommandPath())
	}
	return code
}

const rootHelp = `Spindle runs a program on exactly one machine, and shows who holds which lock.

Locks are rows of one table in a Cloud Spanner database. A lock has one holder,
which keeps it with heartbeats. If no heartbeat is acknowledged for a lease, the
holder stops by itself, and then another may have the lock. Each term has a
fencing token, a number that only grows.

To see it all without a database of your own:

  spindle demo

To begin:

  export SPINDLE_DB=projects/P/instances/I/databases/D
  spindle init
  spindle exec --name nightly -- ./nightly-report
  spindle ls

Most flags can also be set in the environment: the help of each command names
the variables. A flag on the command line wins. To use a running emulator
instead of Cloud Spanner, set SPANNER_EMULATOR_HOST to its host:port.`

func newRoot() *cobra.Command {
	o := &common{}
	root := &cobra.Command{
		Use:               "spindle",
		Short:             "Run a program on exactly one machine, and see who holds what",
		Long:              rootHelp + "\n" + commonCodes + "\nSome commands have more: see their help.",
		Version:           versionOf(buildInfo()).String(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return fromEnvironment(c.Flags()) },
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
		return invalid(err, onCommandLine)
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "Flags.FlagUsages ", "Flags.FlagUsagesWrapped 80 "))
	root.SuggestionsMinimumDistance = 2
	root.SetVersionTemplate("{{.Version}}")
	root.Flags().Bool("version", false, "print the version")
	o.flags(root.PersistentFlags())
	root.AddCommand(newInit(o), newDoctor(o), newExec(o), newGuard(o), newLs(o), newWatch(o), newStatus(o), newMembers(o), newServe(o), newHandover(o), newRelease(o), newPrune(o), newDemo(o), newVersion(), newSchema(), newMan())
	completeFlags(o, root)
	commands(root, func(c *cobra.Command) {
		c.Flags().SortFlags = false
		nameVariables(c.LocalFlags())
		c.InitDefaultHelpFlag()
		c.Flags().Lookup("help").Usage = "show this"
	})
	return root
}

func unknown(c *cobra.Command, arg string) error {
	hint := ""
	if s := c.SuggestionsFor(arg); len(s) > 0 {
		hint = ": did you mean " + strings.Join(s, " or ") + "?"
	}
	return misuse("unknown command %q%s", arg, hint)
}
