package spindletest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// logged is a test whose log is read.
type logged struct {
	testing.TB
	lines []string
}

func (l *logged) Logf(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func TestASlowEmulatorIsSaidToBeSlow(t *testing.T) {
	if testing.Short() {
		t.Skip("needs an emulator")
	}
	tb := &logged{TB: t}
	db := New(tb)
	db.tellIfSlow(time.Second)
	assert.Empty(t, tb.lines)
	db.tellIfSlow(0)
	assert.Len(t, tb.lines, 1)
	assert.Contains(t, tb.lines[0], "the emulator at "+db.Host+" takes ")
	assert.Contains(t, tb.lines[0], "spindletest.Private()")
	db.Client.Close()
	db.tellIfSlow(0)
	assert.Len(t, tb.lines, 1, "what can't be read is not slow")
}
