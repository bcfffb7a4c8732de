package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
)

// escaping is a writer for JSON that escapes all characters that a terminal does not display. The encoder
// leaves some of these characters unescaped, but only within quoted strings, where escaping them does not change the
// meaning.
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
