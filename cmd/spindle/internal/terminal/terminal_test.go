//go:build unix

package terminal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Output has colours and is as wide as the terminal only if it is one, and neither the environment nor an absurd size
// breaks it: a script's pipe gets whole lines, without anything that only a terminal understands.
func TestOutputIsMadeForWhatItGoesTo(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer file.Close()
	p := On(file)
	assert.Equal(t, Terminal{Writer: file}, *p)
	assert.False(t, p.Redraws())
	assert.Equal(t, "held", p.Paint(Green, "held"))

	there, here, err := pty.Open()
	require.NoError(t, err)
	defer there.Close()
	defer here.Close()
	for size, want := range map[pty.Winsize][2]int{
		{Cols: 100, Rows: 30}: {100, 30}, {Cols: 20, Rows: 5}: {20, 5}, {Cols: 19, Rows: 30}: {80, 24}, {Cols: 100, Rows: 4}: {80, 24}, {}: {80, 24}, {Cols: 300, Rows: 100}: {300, 100},
	} {
		require.NoError(t, pty.Setsize(here, &size))
		for _, env := range []struct {
			noColor, term   string
			colour, redraws bool
		}{{"", "xterm", true, true}, {"1", "xterm", false, true}, {"", "dumb", false, false}, {"1", "dumb", false, false}, {"", "", true, true}} {
			t.Setenv("NO_COLOR", env.noColor)
			t.Setenv("TERM", env.term)
			p := On(here)
			assert.Equal(t, Terminal{Writer: here, IsTerminal: true, colour: env.colour, Width: want[0], Height: want[1]}, *p)
			assert.Equal(t, env.redraws, p.Redraws())
			assert.Equal(t, env.colour, p.Paint(Green, "held") == "\x1b[32mheld\x1b[m")
			assert.Empty(t, p.Paint(Green, ""))
		}
	}
}

// Output is written at once, and whole: also what was printed before a failure. Of two failures, the first one counts, and a
// full disk is one even if nothing else has failed.
func TestOutputIsWrittenAtOnceEvenAfterAFailure(t *testing.T) {
	failed, full := errors.New("it failed"), errors.New("no space left")
	for _, c := range []struct{ print, write, want error }{{nil, nil, nil}, {failed, nil, failed}, {nil, full, full}, {failed, full, failed}} {
		w := &counting{err: c.write}
		of := &Terminal{Writer: w, IsTerminal: true, Width: 33, Height: 9, colour: true}
		err := of.Buffered(func(p *Terminal) error {
			assert.Equal(t, Terminal{p.Writer, true, true, 33, 9}, *p)
			for range 10 {
				_, err := io.WriteString(p, "a line\n")
				assert.NoError(t, err)
			}
			assert.Zero(t, w.writes)
			return c.print
		})
		assert.Equal(t, c.want, err)
		assert.Equal(t, 1, w.writes)
		assert.Equal(t, strings.Repeat("a line\n", 10), w.String())
		assert.Equal(t, w, of.Writer)
	}
}

type counting struct {
	bytes.Buffer
	writes int
	err    error
}

func (c *counting) Write(p []byte) (int, error) {
	c.writes++
	_, _ = c.Buffer.Write(p)
	return len(p), c.err
}

// Running text is easy to read: no wider than the terminal, and not as wide as a very wide one.
func TestRunningTextIsNotTooWide(t *testing.T) {
	text := strings.TrimSpace(strings.Repeat("word ", 60))
	for width, want := range map[int]int{0: Readable, 40: 40, Readable - 1: Readable - 1, Readable: Readable, Readable + 1: Readable, 300: Readable} {
		var b bytes.Buffer
		(&Terminal{Writer: &b, Width: width, colour: true}).Say(Red, text)
		var lines []string
		for _, line := range Wrap(text, want) {
			lines = append(lines, Red.Styled(line)+"\n")
		}
		assert.Equal(t, strings.Join(lines, ""), b.String(), width)
	}
}
