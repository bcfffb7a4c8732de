package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commandLineOnly marks flags that no environment variable sets: a forgotten one would do harm.
const commandLineOnly = "command-line-only"

func variable(f *pflag.Flag) string {
	return "SPINDLE_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

func hasVariable(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "version" && f.Annotations[commandLineOnly] == nil
}

// nameVariables adds the variables to the help of the flags.
func nameVariables(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if note := " [" + variable(f) + "]"; hasVariable(f) && !strings.HasSuffix(f.Usage, note) {
			f.Usage += note
		}
	})
}

// invalid says what a flag wants if its value can't be read, as the errors of package strconv don't. Given is how the
// user gave it.
func invalid(err error, given func(*pflag.Flag) string) error {
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

func onCommandLine(f *pflag.Flag) string { return "--" + f.Name + " " }

func inEnvironment(f *pflag.Flag) string { return variable(f) + "=" }

// fromEnvironment sets the flags that are not on the command line.
func fromEnvironment(flags *pflag.FlagSet) error {
	var wrong []error
	flags.VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(variable(f))
		if f.Changed || value == "" || !hasVariable(f) {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			wrong = append(wrong, invalid(err, inEnvironment))
		}
	})
	return errors.Join(wrong...)
}

func commands(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		commands(sub, do)
	}
}

const commonCodes = `
Exit codes:
  0    done
  1    it failed; the message says why
  2    the command line is wrong`

// exactly wants n arguments, and says what they are if there are more or fewer.
func exactly(n int, what string) cobra.PositionalArgs {
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
