package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Show formats text from the table for display. If the text contains characters that a terminal does not display, Show
// escapes them, and quotes the result for bash and zsh. Users can then paste a name with such characters into a
// command.
func Show(s string) string {
	if escaped := Escape(s); escaped == s && !strings.HasPrefix(s, "$'") {
		return s
	}
	return "$'" + Escape(strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s)) + "'"
}

// Escape makes a string harmless on a terminal. It is for strings that users don't have to type, such as errors.
func Escape(s string) string {
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

// escapeLines escapes a string but keeps its line breaks.
func escapeLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = Escape(line)
	}
	return strings.Join(lines, "\n")
}

// escaping is a writer for JSON that escapes all characters that a terminal does not display, except line breaks. The
// JSON encoder leaves some of these characters unescaped, but only in strings, where an escape has the same meaning.
type escaping struct {
	io.Writer
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

// PrintJSON writes an object as JSON on one line.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(escaping{Writer: w})
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
