package terminal

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An environment variable sets a flag unless the command line does, or the flag is one that would do harm if its variable
// were forgotten. All variables with wrong values are said, with what they should be.
func TestAVariableSetsAFlagThatTheCommandLineDoesNot(t *testing.T) {
	flags := func(args ...string) (*pflag.FlagSet, error) {
		f := pflag.NewFlagSet("x", pflag.ContinueOnError)
		for _, name := range []string{"given", "on-hook-timeout", "empty", "kill", "help", "version", "unset"} {
			f.String(name, "default", "")
		}
		f.Int("count", 7, "")
		f.Duration("lease", time.Second, "")
		OnlyOnCommandLine(f, "kill", "no-such-flag")
		require.NoError(t, f.Parse(args))
		return f, FromEnvironment(f)
	}
	for _, name := range []string{"GIVEN", "ON_HOOK_TIMEOUT", "KILL", "HELP", "VERSION"} {
		t.Setenv("SPINDLE_"+name, "variable")
	}
	t.Setenv("SPINDLE_EMPTY", "")
	t.Setenv("SPINDLE_LEASE", "5s")
	f, err := flags("--given", "line")
	require.NoError(t, err)
	for name, want := range map[string]string{"given": "line", "on-hook-timeout": "variable", "empty": "default", "kill": "default", "help": "default", "version": "default", "unset": "default", "lease": "5s", "count": "7"} {
		assert.Equal(t, want, f.Lookup(name).Value.String(), name)
		assert.Equal(t, name != "kill" && name != "help" && name != "version", HasVariable(f.Lookup(name)), name)
	}
	f, err = flags("--kill", "line", "--given", "default")
	require.NoError(t, err)
	assert.Equal(t, "line", f.Lookup("kill").Value.String())
	assert.Equal(t, "default", f.Lookup("given").Value.String(), "the command line sets it to what it was")

	t.Setenv("SPINDLE_LEASE", "soon")
	t.Setenv("SPINDLE_COUNT", "many")
	f, err = flags()
	assert.EqualError(t, err, `SPINDLE_COUNT="many": must be a whole number`+"\n"+`SPINDLE_LEASE="soon": must be a duration with a unit, such as 10s or 1m30s`)
	assert.Equal(t, "variable", f.Lookup("on-hook-timeout").Value.String(), "the others are set")
	_, err = flags("--lease", "1s", "--count", "1")
	assert.NoError(t, err, "their variables do not count")
}

// The help has an asterisk at the flags without a variable, and only one even if two commands share a flag.
func TestAFlagWithoutAVariableHasOneAsterisk(t *testing.T) {
	f := pflag.NewFlagSet("x", pflag.ContinueOnError)
	f.Bool("yes", false, "go on")
	f.Bool("other", false, "stop")
	OnlyOnCommandLine(f, "yes")
	for range 2 {
		MarkWithoutVariable(f)
		assert.Equal(t, "* go on", f.Lookup("yes").Usage)
		assert.Equal(t, "stop", f.Lookup("other").Usage)
	}
}

// Somebody who has mistyped a value is told what a valid one looks like, whatever its type.
func TestAWrongValueIsSaidWithWhatIsWanted(t *testing.T) {
	f := pflag.NewFlagSet("x", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Int("priority", 0, "")
	f.Int64("token", 0, "")
	f.Bool("try", false, "")
	f.Duration("lease", 0, "")
	word := Choose("choice", "a", "b")
	f.Var(&word, "sort", "")
	for arg, want := range map[string]string{
		"--priority=high": `--priority "high": must be a whole number`, "--token=x": `--token "x": must be a whole number; spindle ls shows a lock's token`,
		"--try=perhaps": `--try "perhaps": must be true or false`, "--lease=5": `--lease "5": must be a duration with a unit, such as 10s or 1m30s`, "--sort=c": `--sort "c": must be a or b`,
	} {
		assert.EqualError(t, Invalid(f.Parse([]string{arg}), OnCommandLine), want)
	}
	other := errors.New("unknown flag: --x")
	assert.Equal(t, other, Invalid(other, OnCommandLine))
	assert.NoError(t, Invalid(nil, OnCommandLine))
}

// A command takes as many arguments as it says, and reports the others rather than ignoring them.
func TestACommandTakesItsNumberOfArguments(t *testing.T) {
	c := &cobra.Command{Use: "do"}
	for _, x := range []struct {
		check cobra.PositionalArgs
		args  string
		wrong string
	}{
		{Exactly(1, "one name"), "", "do needs one name"}, {Exactly(1, "one name"), "a", ""}, {Exactly(1, "one name"), "a b", `do takes one name, but got ["a" "b"]`},
		{Exactly(2, "two names"), "", "do needs two names"}, {Exactly(2, "two names"), "a", `do takes two names, but got ["a"]`}, {Exactly(2, "two names"), "a b", ""},
		{Exactly(0, "no arguments"), "", ""}, {Exactly(0, "no arguments"), "a", `do takes no arguments, but got ["a"]`},
		{AtMostOne("prefix"), "", ""}, {AtMostOne("prefix"), "a", ""}, {AtMostOne("prefix"), "a b", `do takes at most one prefix, but got ["a" "b"]`},
	} {
		if err := x.check(c, strings.Fields(x.args)); x.wrong == "" {
			assert.NoError(t, err)
		} else {
			assert.EqualError(t, err, x.wrong)
		}
	}
	inner, outer := &cobra.Command{Use: "inner"}, &cobra.Command{Use: "outer"}
	outer.AddCommand(inner, &cobra.Command{Use: "last"})
	c.AddCommand(outer, &cobra.Command{Use: "next"})
	names := map[string]int{}
	Commands(c, func(c *cobra.Command) { names[c.Name()]++ })
	assert.Equal(t, map[string]int{"do": 1, "outer": 1, "inner": 1, "last": 1, "next": 1}, names)
}
