package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

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

// fromEnvironment sets the flags that are not on the command line.
func fromEnvironment(flags *pflag.FlagSet) error {
	var wrong []error
	flags.VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(variable(f))
		if f.Changed || value == "" || !hasVariable(f) {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			wrong = append(wrong, fmt.Errorf("%s=%q: %w", variable(f), value, err))
		}
	})
	return errors.Join(wrong...)
}
