package terminal

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Columns stay under each other if names are of any script.
func TestATextIsAsWideAsATerminalShowsIt(t *testing.T) {
	for text, want := range map[string]int{"": 0, "nightly": 7, "夜間バッチ": 10, "한국": 4, "🚀 start": 8, "👩‍👩‍👧": 2, "e\u0301te\u0301": 3, "ﾊﾝ": 2, "…": 1} {
		assert.Equal(t, want, Length(text), text)
		assert.Equal(t, 12, Length(Pad(text, 12)), text)
	}
}

// Names differ at their ends: orders/2026-11-22, orders/2026-11-23.
func TestANameIsCutInItsMiddle(t *testing.T) {
	assert.Equal(t, "billing", Fit("billing", 7))
	assert.Equal(t, "ord…1-23", Fit("orders/2026-11-23", 8))
	assert.Equal(t, "…3", Fit("orders/2026-11-23", 2))
	assert.Equal(t, "…", Fit("orders", 1))
	assert.Empty(t, Fit("orders", 0))
	assert.NotEqual(t, Fit("orders/2026-11-22", 9), Fit("orders/2026-11-23", 9))
	assert.Equal(t, "夜…#7", Fit("夜間バッチ処理#7", 6), "no half of a character")
	for _, text := range []string{"orders/2026-11-23", "夜間バッチ処理", "夜間バッチ東京請求", "👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧", strings.Repeat("e\u0301", 9)} {
		for width := range 20 {
			assert.LessOrEqual(t, Length(Fit(text, width)), width, "%s in %d columns", text, width)
		}
	}
}

// A text is wrapped between words, keeps the indent of its lines and what aligns words, and loses nothing. It is wrapped for
// a terminal only.
func TestNoLineOfAWrappedTextIsTooLong(t *testing.T) {
	const text = "nightly is held by 夜間バッチ処理/4711/0d1cbf0e-1111-2222-3333-444455556666, token 1763645616123456"
	for _, width := range []int{20, 30, 80} {
		lines := Wrap(text, width)
		for _, line := range lines {
			assert.LessOrEqual(t, Length(line), width)
		}
		assert.Equal(t, strings.ReplaceAll(text, " ", ""), strings.ReplaceAll(strings.Join(lines, ""), " ", ""))
	}
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"a  b", 20, "a  b"}, {"0123456789 a", 5, "01234\n56789\na"}, {"夜間バッチ", 4, "夜間\nバッ\nチ"}, {"夜", 1, "夜"},
		{"job is held by web-1\n  token 12; last heartbeat\n\nend", 20, "job is held by web-1\n  token 12; last\n  heartbeat\n\nend"},
		{"job is held by web-1\n  token 12; last heartbeat\n", 0, "job is held by web-1\n  token 12; last heartbeat\n"},
	} {
		assert.Equal(t, c.want, Fold(&Terminal{Width: c.width}, c.text))
	}
}

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
	for want, d := range map[string]time.Duration{"24h": 24 * time.Hour, "1h30m": 90 * time.Minute, "12h7m30s": 12*time.Hour + 450*time.Second,
		"10m": 10 * time.Minute, "1h0m10s": time.Hour + 10*time.Second, "0s": 0, "40s": 40 * time.Second} {
		assert.Equal(t, want, Brief(d))
	}
}
