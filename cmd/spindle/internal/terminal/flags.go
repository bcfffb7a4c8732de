package terminal

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandLineOnly is the annotation of flags that no environment variable may set.
const commandLineOnly = "command-line-only"

// OnlyOnCommandLine marks flags that no environment variable may set. Some of these flags have a different meaning in
// another command. Others could do harm if their variable were set and then forgotten.
func OnlyOnCommandLine(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = f.SetAnnotation(name, commandLineOnly, []string{}) // fails only if the flag does not exist
	}
}

// Variable returns the name of the environment variable that sets a flag.
func Variable(f *pflag.Flag) string {
	return "SPINDLE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// HasVariable reports whether an environment variable can set the flag.
func HasVariable(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "version" && f.Annotations[commandLineOnly] == nil
}

// MarkWithoutVariable puts an asterisk before the help of the flags that OnlyOnCommandLine has marked.
func MarkWithoutVariable(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[commandLineOnly] != nil && !strings.HasPrefix(f.Usage, "* ") {
			f.Usage = "* " + f.Usage
		}
	})
}

// Invalid replaces the error for a flag value that can't be parsed. Unlike the errors of package strconv, the new error
// says what a valid value looks like. It begins with the result of given, which formats the flag as the user set it,
// such as "--lease ". Invalid returns any other error unchanged.
func Invalid(err error, given func(*pflag.Flag) string) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	f, want := bad.GetFlag(), ""
	switch f.Value.Type() {
	case "duration":
		want = "must be a duration with a unit, such as 10s or 1m30s"
	case "int", "int64":
		want = "must be a whole number"
	case "bool":
		want = "must be true or false"
	default:
		want = bad.Unwrap().Error()
	}
	if f.Name == "token" {
		want += "; spindle ls shows a lock's token"
	}
	return fmt.Errorf("%s%q: %s", given(f), bad.GetValue(), want)
}

// OnCommandLine formats a flag as on the command line. It is an argument for Invalid.
func OnCommandLine(f *pflag.Flag) string { return "--" + f.Name + " " }

func inEnvironment(f *pflag.Flag) string { return Variable(f) + "=" }

// FromEnvironment sets flags from environment variables. It skips empty variables, and flags that are already set on
// the command line.
func FromEnvironment(flags *pflag.FlagSet) error {
	var wrong []error
	flags.VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(Variable(f))
		if f.Changed || value == "" || !HasVariable(f) {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			wrong = append(wrong, Invalid(err, inEnvironment))
		}
	})
	return errors.Join(wrong...)
}

// Commands calls do for a command and all of its subcommands.
func Commands(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		Commands(sub, do)
	}
}

// CommonCodes is the help for the exit codes that most commands have.
const CommonCodes = `
Exit codes:
  0    success
  1    the command failed; the message says why
  2    the command line is wrong`

// Exactly returns a check for exactly n arguments. Its errors use the second parameter to describe the arguments, for
// example as "a lock's name".
func Exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && n > 0:
			return fmt.Errorf("%s needs %s", c.Name(), what)
		case len(args) != n:
			return fmt.Errorf("%s takes %s, but got %q", c.Name(), what, args)
		}
		return nil
	}
}

// AtMostOne returns a check for at most one argument. Its errors use the parameter as a noun for the argument, such as
// "prefix".
func AtMostOne(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%s takes at most one %s, but got %q", c.Name(), what, args)
		}
		return nil
	}
}
