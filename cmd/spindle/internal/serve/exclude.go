package serve

import (
	"regexp"
	"strings"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
)

// matching returns a function that reports whether a name matches any of the patterns. In a pattern, * matches any text, including slashes, and ? matches one character.
func matching(patterns []string) (func(name string) bool, error) {
	any := []string{"$^"} // matches nothing; no name is empty
	for _, p := range patterns {
		if p == "" {
			return nil, exit.Misuse("--exclude: a pattern is empty; give the name of a lock, or a pattern such as 'order-*'")
		}
		any = append(any, strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(p)))
	}
	return regexp.MustCompile(`(?s)^(` + strings.Join(any, "|") + `)$`).MatchString, nil
}
