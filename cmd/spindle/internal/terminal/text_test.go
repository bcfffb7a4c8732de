package terminal

import (
	"strings"
	"testing"

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

func TestNoLineOfAWrappedTextIsTooLong(t *testing.T) {
	const text = "nightly is held by 夜間バッチ処理/4711/0d1cbf0e-1111-2222-3333-444455556666, token 1763645616123456"
	for _, width := range []int{20, 30, 80} {
		lines := Wrap(text, width)
		for _, line := range lines {
			assert.LessOrEqual(t, Length(line), width)
		}
		assert.Equal(t, strings.ReplaceAll(text, " ", ""), strings.ReplaceAll(strings.Join(lines, ""), " ", ""), "nothing is lost")
	}
	assert.Equal(t, []string{"a  b"}, Wrap("a  b", 20), "what aligns words stays")
}

func TestATextIsFoldedForATerminalOnly(t *testing.T) {
	const text = "nightly is held by web-1\n  token 1763645616123456, for 2.0s\n"
	assert.Equal(t, text, Fold(&Terminal{}, text))
	assert.Equal(t, text, Fold(&Terminal{Width: 80}, text))
	assert.Equal(t, "nightly is held by\nweb-1\n  token\n  1763645616123456,\n  for 2.0s\n", Fold(&Terminal{Width: 20}, text))
}

func TestTextIsWrappedBetweenWordsAndKeepsItsIndent(t *testing.T) {
	assert.Equal(t, []string{"job is held by web-1", "  token 12; last", "  heartbeat", "", "end"}, WrapLines("job is held by web-1\n  token 12; last heartbeat\n\nend", 20))
	assert.Equal(t, []string{"01234", "56789", "a"}, WrapLines("0123456789 a", 5))
	assert.Equal(t, []string{"夜間", "バッ", "チ"}, WrapLines("夜間バッチ", 4))
	assert.Equal(t, []string{"夜"}, WrapLines("夜", 1), "it ends")
}
