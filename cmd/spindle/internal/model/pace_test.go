package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Reads of a large table take up one part in Share of the time. A single read that hangs does not mean that the table is
// large.
func TestALargeTableIsReadAFifthOfTheTime(t *testing.T) {
	for _, c := range []struct{ before, took, want time.Duration }{
		{3 * time.Second, 2 * time.Second, 8 * time.Second},
		{10 * time.Millisecond, 8 * time.Second, time.Second},
		{10 * time.Millisecond, 10 * time.Millisecond, time.Second},
		{time.Minute, time.Minute, 15 * time.Second},
	} {
		p := Pace{Every: time.Second, Longest: 15 * time.Second, Share: 5}
		p.Took(c.before)
		p.Took(c.took)
		assert.Equal(t, c.want, p.Pause, "%+v", c)
	}
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: time.Second, 8 * time.Second: 8 * time.Second, time.Minute: 15 * time.Second} {
		p := Pace{Every: time.Second, Longest: 15 * time.Second}
		p.Failed(took)
		assert.Equal(t, want, p.Pause, "after a failed read of %v", took)
	}
}
