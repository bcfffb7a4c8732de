package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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
