package terminal

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
)

// A format is one of its words, written in full. A script that asks for anything else must be told, because it would get a format
// that it does not expect.
func TestOnlyAWholeWordIsAFormat(t *testing.T) {
	flags := func() (*pflag.FlagSet, *Format) {
		f, set := &Format{}, pflag.NewFlagSet("ls", pflag.ContinueOnError)
		f.Flag(set, AsWide, AsName)
		return set, f
	}
	_, f := flags()
	assert.Equal(t, "table", f.Value)
	for _, word := range f.Options() {
		set, f := flags()
		assert.NoError(t, set.Parse([]string{"-o", word}))
		assert.Equal(t, word, f.Value)
		for i := range word {
			for _, other := range []string{word[:i], word[i+1:], strings.ToUpper(word), word + " ", " " + word, word + "," + word} {
				set, f := flags()
				assert.ErrorContains(t, set.Parse([]string{"-o", other}), "must be table, wide, name or json", "%q", other)
				assert.Equal(t, "table", f.Value, "%q", other)
			}
		}
	}
}
