// Package flags has what the flags, arguments and help of all commands share, and sets flags from the environment.
package flags

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandLineOnly marks flags that no environment variable sets.
const commandLineOnly = "command-line-only"

// OnlyOnCommandLine keeps environment variables from setting these flags: a forgotten variable would do harm, or is meant
// for another command's flag.
func OnlyOnCommandLine(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		_ = f.SetAnnotation(name, commandLineOnly, []string{}) // fails only if there is no such flag
	}
}

// Variable names the environment variable that sets a flag.
func Variable(f *pflag.Flag) string {
	return "SPINDLE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// HasVariable reports whether an environment variable sets the flag.
func HasVariable(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "version" && f.Annotations[commandLineOnly] == nil
}

// NameVariables adds the variables to the help of the flags.
func NameVariables(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if note := " [" + Variable(f) + "]"; HasVariable(f) && !strings.HasSuffix(f.Usage, note) {
			f.Usage += note
		}
	})
}

// Invalid returns an error that says what a flag wants, if its value can't be read: errors of package strconv don't. Given
// returns how the user gave the flag.
func Invalid(err error, given func(*pflag.Flag) string) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	f, want := bad.GetFlag(), ""
	switch f.Value.Type() {
	case "duration":
		want = "want a duration with its unit, such as 10s or 1m30s"
	case "int", "int64":
		want = "want a whole number"
	case "float64":
		want = "want a number, such as 0.25"
	case "bool":
		want = "want true or false"
	default:
		want = bad.Unwrap().Error()
	}
	if f.Name == "token" {
		want += ": spindle ls shows a lock's token"
	}
	return fmt.Errorf("%s%q: %s", given(f), bad.GetValue(), want)
}

// OnCommandLine writes a flag as on the command line: see Invalid.
func OnCommandLine(f *pflag.Flag) string { return "--" + f.Name + " " }

func inEnvironment(f *pflag.Flag) string { return Variable(f) + "=" }

// FromEnvironment sets the flags that are not on the command line.
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

// Commands calls do with a command, and with all below it.
func Commands(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		Commands(sub, do)
	}
}

// CommonCodes is the help about the exit codes of most commands.
const CommonCodes = `
Exit codes:
  0    done
  1    it failed; the message says why
  2    the command line is wrong`

// Exactly wants n arguments, and says what they are if there are more or fewer.
func Exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && n > 0:
			return fmt.Errorf("%s needs %s", c.Name(), what)
		case len(args) != n:
			return fmt.Errorf("%s takes %s: got %q", c.Name(), what, args)
		}
		return nil
	}
}
