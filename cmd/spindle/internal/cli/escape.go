package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// show writes a text from the table for people: characters that a terminal does not show are escaped. The text is then
// quoted as bash and zsh read it back, so that a lock with such a name can be repaired.
func show(s string) string {
	if escaped := escape(s); escaped == s && !strings.HasPrefix(s, "$'") {
		return s
	}
	return "$'" + escape(strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s)) + "'"
}

// escape makes a text harmless that nobody needs to type, such as an error.
func escape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if broken := r == utf8.RuneError && n == 1; broken || !strconv.IsGraphic(r) {
			quoted := strconv.QuoteToASCII(s[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// escapeLines leaves the ends of lines as they are.
func escapeLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = escape(line)
	}
	return strings.Join(lines, "\n")
}

// escaping writes JSON or YAML that is harmless on a terminal and means the same. Their encoders leave some characters as they
// are that a terminal does not show; they can only be in strings with quotes.
type escaping struct {
	io.Writer
	wide string // the format of a rune above 0xffff, or "" if it is two of UTF-16
}

// Write implements io.Writer.
func (w escaping) Write(p []byte) (int, error) {
	var b strings.Builder
	for _, r := range string(p) {
		switch {
		case r == '\n' || strconv.IsGraphic(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		case w.wide != "":
			fmt.Fprintf(&b, w.wide, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	if _, err := io.WriteString(w.Writer, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}
