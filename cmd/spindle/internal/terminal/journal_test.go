package terminal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A guard that waits for the reader of its messages does not deactivate its service.
func TestNobodyWaitsForTheReaderOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		j := NewJournal(out)
		attach := j.Detach()
		for n := range 3 * room {
			j.Log(0, fmt.Sprint("message ", n))
			if n == 0 {
				synctest.Wait() // until it is being written
			}
		}
		var all bytes.Buffer
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(&all, in)
		}()
		synctest.Wait()
		j.Log(0, "the last one")
		j.Flush()
		synctest.Wait()
		assert.Contains(t, all.String(), "the last one", "what is said before exec is stopped is read before")
		attach()
		assert.Equal(t, out, j.out)
		_ = out.Close()
		<-read
		assert.Contains(t, all.String(), "spindle: message 0\n")
		assert.Contains(t, all.String(), "spindle: dropped 1999 messages that nothing has read\n")
		assert.LessOrEqual(t, strings.Count(all.String(), "\n"), room+3)

		in, out = io.Pipe() // and a process ends even if nobody reads
		j = NewJournal(out)
		attach = j.Detach()
		j.Log(0, "first")
		began := time.Now()
		attach()
		j.Log(0, "second")
		assert.Equal(t, time.Second, time.Since(began))
		assert.NotPanics(t, j.Flush, "it drops messages, and has none to wait for")
		_ = in.Close()
	})
}

// Programs that read the messages as JSON can read each line.
func TestDroppedMessagesAreReportedInTheFormatOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		j := NewJournal(out)
		require.NoError(t, j.Format.Set("json"))
		attach := j.Detach()
		for range 3 * room {
			j.Log(0, "a message")
		}
		var all bytes.Buffer
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(&all, in)
		}()
		attach()
		_ = out.Close()
		<-read
		reported := false
		for line := range strings.Lines(all.String()) {
			var j struct{ Level, Msg string }
			require.NoError(t, json.Unmarshal([]byte(line), &j), line)
			reported = reported || j.Level == "WARN" && strings.HasPrefix(j.Msg, "dropped ")
		}
		assert.True(t, reported)
	})
}

// Each message is one line in the order in which it was said, in text as in JSON, also if it is written in the background
// while the next one is made, and then directly.
func TestMessagesAreWrittenWholeAndInOrder(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		for _, timed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				in, out := io.Pipe()
				j := NewJournal(out)
				require.NoError(t, j.Format.Set(format))
				if timed {
					j.Time()
				}
				attach := j.Detach()
				line := []byte("spindle: a line\n")
				_, err := j.out.Write(line)
				require.NoError(t, err)
				copy(line, "its caller uses it again")
				long := strings.Repeat("x", 20)
				for n := range 20 {
					j.Log(slog.LevelWarn, fmt.Sprintf("message %d %s\u009b", n, long[:20-n]), slog.Int("n", n), slog.String("lock", "a\u202e"))
				}
				var all bytes.Buffer
				read := make(chan struct{})
				go func() {
					defer close(read)
					_, _ = io.Copy(&all, in)
				}()
				attach()
				j.Log(slog.LevelInfo, "message 20 \u009b")
				j.Flush()
				_ = out.Close()
				<-read
				lines := strings.Split(strings.TrimSuffix(all.String(), "\n"), "\n")
				require.Len(t, lines, 22)
				require.Equal(t, "spindle: a line", lines[0])
				for n, line := range lines[1:] {
					text := fmt.Sprintf("message %d %s", n, long[:20-n])
					if format == "text" {
						want := "spindle: " + text + `\u009b`
						if timed {
							want = "2000-01-01T00:00:00.000Z " + want
						}
						require.Equal(t, want, line)
						continue
					}
					require.False(t, strings.ContainsAny(line, "\u009b\u202e"), line)
					var m struct {
						Time             time.Time
						Level, Msg, Lock string
						N                int
					}
					require.NoError(t, json.Unmarshal([]byte(line), &m))
					require.Equal(t, text+"\u009b", m.Msg)
					require.Equal(t, map[bool]string{true: "WARN", false: "INFO"}[n < 20], m.Level)
					require.True(t, m.Time.Equal(time.Now()))
					if n < 20 {
						require.Equal(t, []any{n, "a\u202e"}, []any{m.N, m.Lock})
					}
				}
			})
		}
	}
}

// Messages are dropped only if there is no room for them, and each that was dropped is counted once, before what is said
// after it.
func TestDroppedMessagesAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		j := NewJournal(out)
		attach := j.Detach()
		said := 0
		say := func(n int) {
			for range n {
				said++
				j.Log(0, fmt.Sprint("message ", said))
			}
		}
		lines := bufio.NewScanner(in)
		reads := func(want string) {
			t.Helper()
			require.True(t, lines.Scan())
			require.Equal(t, "spindle: "+want, lines.Text())
			synctest.Wait()
		}
		say(1)
		synctest.Wait() // until it is being written
		say(room)
		reads("message 1")
		reads("message 2")
		say(2) // there is room for two
		for n := 3; n <= room+3; n++ {
			reads(fmt.Sprint("message ", n))
		}
		for range 2 {
			first := said + 1
			say(1)
			synctest.Wait()
			say(room + 1)
			reads(fmt.Sprint("message ", first))
			reads("dropped 1 message that nothing has read")
			for n := first + 1; n <= first+room; n++ {
				reads(fmt.Sprint("message ", n))
			}
		}
		say(1)
		reads(fmt.Sprint("message ", said))
		attach()
		_ = out.Close()
	})
}

// A message with a hint keeps its lines, of which each is harmless, and its time is in UTC on every machine.
func TestAMessageKeepsItsLines(t *testing.T) {
	defer func(zone *time.Location) { time.Local = zone }(time.Local)
	time.Local = time.FixedZone("", 3600)
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		j := NewJournal(&out)
		j.Time()
		j.Log(0, "can't read\x1b\n  a hint\x1b")
		assert.Equal(t, "2000-01-01T00:00:00.000Z spindle: can't read\\x1b\n  a hint\\x1b\n", out.String())
	})
}

// A process that hands over to another waits for its messages, but no longer than a tenth of a second if nobody reads them,
// and a journal that writes directly has none.
func TestFlushWaitsForMessagesButNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		j := NewJournal(out)
		attach := j.Detach()
		takes := func(f func()) time.Duration {
			began := time.Now()
			f()
			return time.Since(began)
		}
		assert.Zero(t, takes(j.Flush), "there are none")
		j.Log(0, "one")
		assert.Equal(t, 100*time.Millisecond, takes(j.Flush))
		for range 2 * room {
			j.Log(0, "more")
		}
		assert.Equal(t, 100*time.Millisecond, takes(j.Flush))
		go func() {
			time.Sleep(50 * time.Millisecond)
			_, _ = io.Copy(io.Discard, in)
		}()
		assert.Equal(t, 50*time.Millisecond, takes(j.Flush))
		attach()
		assert.Zero(t, takes(j.Flush))
		_ = out.Close()

		in, out = io.Pipe() // nobody reads, and there is room for no message more
		j = NewJournal(out)
		attach = j.Detach()
		j.Log(0, "one")
		synctest.Wait() // until it is being written
		for range room {
			j.Log(0, "more")
		}
		assert.Equal(t, time.Second, takes(attach))
		assert.NotEqual(t, out, j.out, "or the process could not say anything more, and not end")
		_ = in.Close()
	})
}
