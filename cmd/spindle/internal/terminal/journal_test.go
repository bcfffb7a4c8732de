package terminal

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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
		assert.Regexp(t, `spindle: 1999 messages were dropped because they were not read\n`, all.String())
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
