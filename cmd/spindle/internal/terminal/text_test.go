package terminal

import (
	"math"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
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

// Of a name that is cut, exactly as much is left as fits, of both ends: compared with a plain cut for all lengths and widths.
func TestACutNameFillsItsWidth(t *testing.T) {
	const text = "abcdefghijklmnopqrst"
	for n := range len(text) + 1 {
		for width := range len(text) + 3 {
			want := text[:n]
			if width < 1 && n > 0 {
				want = ""
			} else if n > width {
				want = text[:width-1-width/2] + "…" + text[n-width/2:n]
			}
			assert.Equal(t, want, Fit(text[:n], width), "%d in %d columns", n, width)
		}
	}
}

// Each line of a wrapped text is as long as it can be, loses nothing, and a word is broken only if it is longer than a line.
func TestWrappedLinesAreAsLongAsTheyCanBe(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		width := 2 + random.IntN(20)
		words := make([]string, 1+random.IntN(10))
		for i := range words {
			words[i] = strings.Repeat("x", 1+random.IntN(width))
		}
		text := strings.Join(words, " ")
		lines := Wrap(text, width)
		assert.Equal(t, text, strings.Join(lines, " "))
		for i, line := range lines {
			assert.LessOrEqual(t, len(line), width)
			if i+1 < len(lines) {
				next, _, _ := strings.Cut(lines[i+1], " ")
				assert.Greater(t, len(line)+1+len(next), width, "%q in %d columns", lines, width)
			}
		}
		long := strings.Repeat("0123456789", 1+random.IntN(5))
		lines = Wrap(long+" end", width)
		for i, line := range lines[:len(long)/width] {
			assert.Equal(t, long[i*width:(i+1)*width], line)
		}
		assert.Equal(t, long+"end", strings.ReplaceAll(strings.Join(lines, ""), " ", ""))
		n, per := 1+random.IntN(30), width/2 // of characters that are two columns wide
		last := strings.Repeat("夜", (n-1)%per+1)
		lines = Wrap(strings.Repeat("夜", n)+" end", width)
		rest := append(slices.Repeat([]string{strings.Repeat("夜", per)}, (n-1)/per), last)
		if 2*((n-1)%per+1)+len(" end") <= width {
			rest[len(rest)-1] += " end"
		} else {
			rest = append(rest, Wrap("end", width)...)
		}
		assert.Equal(t, rest, lines, "%d in %d columns", n, width)
		indent := strings.Repeat(" ", random.IntN(12))
		kept := indent[:min(len(indent), width/2)]
		want := Wrap(text, width-len(kept))
		for i := range want {
			want[i] = kept + want[i]
		}
		assert.Equal(t, append(append([]string{"a"}, want...), "b"), WrapLines("a\n"+indent+text+"\nb", width))
	}
	assert.Equal(t, []string{""}, Wrap("", 10))
}

// A duration is never shown as longer than it is, nor as shorter by a whole unit, and a text grows with the duration.
func TestADurationIsShownToItsLastUnit(t *testing.T) {
	const day, instant = 24 * time.Hour, time.Microsecond // Spanner's
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": day, "y": 365 * day}
	random := rand.New(rand.NewPCG(9, 10))
	check := func(d time.Duration) {
		t.Helper()
		text := Short(d)
		parts := regexp.MustCompile(`(\d+(?:\.\d)?)([smhdy])`).FindAllStringSubmatch(text, -1)
		if !assert.NotEmpty(t, parts, text) {
			return
		}
		sum, last := time.Duration(0), time.Duration(0)
		for _, p := range parts {
			n, err := strconv.ParseFloat(p[1], 64)
			assert.NoError(t, err)
			last = units[p[2]]
			sum += time.Duration(n * float64(last))
		}
		if d < 10*time.Second {
			last /= 10
		}
		assert.LessOrEqual(t, sum, d, text)
		assert.Less(t, d-sum, last, text)
		assert.Regexp(t, `^(\d\.\ds|\d\ds|\d+m\d\ds|\d+h\d\dm|\d+d\d\dh|\d+y\d\d\dd)$`, text)
		assert.Equal(t, text+" ago", Ago(d))
	}
	for _, most := range []time.Duration{10 * time.Second, time.Minute, time.Hour, day, 730 * day, 100 * 365 * day} {
		for range 200 {
			check(time.Duration(random.Int64N(int64(most))))
		}
		check(most - instant)
	}
	for d, want := range map[time.Duration]string{
		0: "0.0s", -instant: "0s", -time.Minute: "0s", -time.Minute - instant: "future", 10 * time.Second: "10s", time.Minute - instant: "59s", time.Minute: "1m00s", time.Hour - instant: "59m59s", time.Hour: "1h00m",
		day - instant: "23h59m", day: "1d00h", 730*day - instant: "729d23h", 730 * day: "2y000d", 36500*day - instant: "99y364d", 36500 * day: ">100y",
	} {
		assert.Equal(t, want, Short(d), d)
		ago := map[string]string{"future": "in the future, according to its timestamp", ">100y": "more than 100 years ago, according to its timestamp"}[want]
		if ago == "" {
			ago = want + " ago"
		}
		assert.Equal(t, ago, Ago(d), "a sentence says the same as a list")
	}
	for range 2000 {
		d := time.Duration(random.IntN(200_000)) * []time.Duration{time.Second, time.Minute, time.Hour, time.Millisecond}[random.IntN(4)]
		text := Brief(d)
		back, err := time.ParseDuration(text)
		assert.NoError(t, err)
		assert.Equal(t, d, back, text)
		assert.NotRegexp(t, `\d[hm]0[ms]$`, text)
	}
}

// What is counted or listed is said in good English, and an address is one that a browser can open.
func TestWordsAreJoinedAsPeopleDo(t *testing.T) {
	assert.Equal(t, "a", OneOf([]string{"a"}))
	assert.Equal(t, "a or b", OneOf([]string{"a", "b"}))
	assert.Equal(t, "a, b or c", OneOf([]string{"a", "b", "c"}))
	for n, want := range map[int]string{0: "0 locks", 1: "1 lock", 2: "2 locks", 11: "11 locks"} {
		assert.Equal(t, want, Count(n, "lock"))
	}
	for want, texts := range map[string][]string{"": {"", ""}, "a": {"", "a", ""}, "a, b": {"a", "", "b"}, "a, b, c": {"a", "b", "c"}} {
		assert.Equal(t, want, Join(", ", texts...))
	}
	for addr, want := range map[string]string{
		"0.0.0.0:80": "http://localhost:80", "[::]:80": "http://localhost:80", ":80": "http://localhost:80", "127.0.0.1:7700": "http://127.0.0.1:7700",
		"[::1]:7700": "http://[::1]:7700", "10.0.0.7:1": "http://10.0.0.7:1", "[fe80::1%eth0]:80": "http://[fe80::1%25eth0]:80",
	} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		assert.NoError(t, err)
		assert.Equal(t, want, URL(a), addr)
	}
}
