package terminal

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestADurationIsWhatAPersonUnderstands(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		400 * time.Millisecond: "0.4s", 12 * time.Second: "12s", 185 * time.Second: "3m05s", 130 * time.Minute: "2h10m",
		5*day + 3*time.Hour: "5d03h", 729 * day: "729d00h", 770 * day: "2y040d", 99 * 365 * day: "99y000d",
		math.MaxInt64: ">100y", -time.Second: "0s", -time.Hour: "future", math.MinInt64: "future",
	} {
		assert.Equal(t, want, Short(d))
	}
	assert.Equal(t, "3m05s ago", Ago(185*time.Second))
	assert.Equal(t, "more than 100 years ago, according to its timestamp", Ago(math.MaxInt64))
	assert.Equal(t, "in the future, according to its timestamp", Ago(math.MinInt64))
}

func TestADurationIsWrittenAsPeopleGiveIt(t *testing.T) {
	for want, d := range map[string]time.Duration{"24h": 24 * time.Hour, "1h30m": 90 * time.Minute, "12h7m30s": 12*time.Hour + 450*time.Second,
		"10m": 10 * time.Minute, "1h0m10s": time.Hour + 10*time.Second, "0s": 0, "40s": 40 * time.Second} {
		assert.Equal(t, want, Brief(d))
	}
}
