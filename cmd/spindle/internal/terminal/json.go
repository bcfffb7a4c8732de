package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
)

// escaping makes JSON or YAML harmless on a terminal without changing its meaning. The encoders do not escape all the
// characters that a terminal does not display. The remaining ones occur only in quoted strings, where escaping escapes
// them.
type escaping struct {
	io.Writer
	wide string // the format of a rune above 0xffff, or "" for a UTF-16 surrogate pair
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

// PrintJSON writes an object as JSON on one line.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(escaping{Writer: w})
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
