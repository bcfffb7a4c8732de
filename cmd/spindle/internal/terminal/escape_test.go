package terminal

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var hostile = []string{"a\x1b[31mb", "a\nb", "\x00", "a\x7f", "c1\u009b31m", "it's \\ \x1b", "line\u2028end", "abc\u202efdp", "a\xffb", "$'a'", "zero\u200bwidth", "tag\U000e0041"}

// Nothing that acts on a terminal or breaks a line is printed, and two texts are never printed alike. A
// name can be copied from a listing into bash.
func TestWhatIsInTheTableIsShownEscaped(t *testing.T) {
	shown := map[string]string{}
	for _, s := range append(hostile, `a\nb`, `$'a\nb'`, `a\x1b[31mb`) {
		text := Show(s)
		assert.False(t, strings.ContainsAny(text, "\x00\x1b\n\x7f\u009b\u2028\u202e\u200b\U000e0041"), "%q", text)
		assert.True(t, utf8.ValidString(text), "%q", text)
		assert.Empty(t, shown[text], "%q and %q look alike", s, shown[text])
		shown[text] = s
	}
	for _, s := range []string{"nightly", "Zürich/東京 7", `{"a": "b\n"}`, "it's", "50%", "-", "", "\ufffd"} {
		assert.Equal(t, s, Show(s), "what is harmless is left as it is")
	}
	assert.Equal(t, `$'a\x1b[31mb'`, Show("a\x1b[31mb"))
	assert.Equal(t, `$'it\'s \\ \x1b'`, Show("it's \\ \x1b"))
	assert.Equal(t, "can't read \\x1b[2J:\n  why", escapeLines("can't read \x1b[2J:\n  why"))
	if runtime.GOOS != "linux" {
		return
	}
	for _, s := range hostile {
		if strings.ContainsRune(s, 0) {
			continue // no argument of a program can have it
		}
		c := exec.Command("bash", "-c", "printf %s "+Show(s))
		c.Env = []string{"LC_ALL=C.UTF-8"}
		out, err := c.Output()
		require.NoError(t, err)
		assert.Equal(t, s, string(out), Show(s))
	}
}

func TestJSONIsHarmlessAndMeansTheSame(t *testing.T) {
	for _, s := range hostile {
		var b bytes.Buffer
		require.NoError(t, PrintJSON(&b, map[string]string{"name": s}))
		assert.Equal(t, 1, strings.Count(b.String(), "\n"))
		assert.False(t, strings.ContainsAny(b.String(), "\x00\x1b\x7f\u009b\u2028\u202e\u200b\U000e0041"), "%q", b.String())
		var back map[string]string
		require.NoError(t, json.Unmarshal(b.Bytes(), &back))
		assert.Equal(t, strings.ToValidUTF8(s, "\ufffd"), back["name"])
	}
}
