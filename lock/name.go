package lock

import (
	"net/url"
	"strings"
)

// Name composes the name of a lock of parts, such as a target and a context: Name("router-7", "snmp-query").
// Different parts never make the same name, whatever is in them, and no name of parts is one of fewer:
// in each part, what is not a letter, a digit or one of -_.~$&+=:@ is escaped, and a slash goes between.
func Name(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return strings.Join(escaped, "/")
}
