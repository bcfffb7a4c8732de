package lock

import (
	"net/url"
	"regexp"
	"strings"
)

// leaseLike is the end of a lease row's key, which no lock's name may have.
var leaseLike = regexp.MustCompile(`_([0-9]{16,})$`)

// Name composes the name of a lock of parts, such as a target and a context: Name("router-7", "snmp-query").
// Different parts never make the same name, whatever is in them, and no name of parts is one of fewer:
// in each part, what is not a letter, a digit or one of -_.~$&+=:@ is escaped, and a slash goes between.
// A _ before 16 or more digits at the end is escaped too.
func Name(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return leaseLike.ReplaceAllString(strings.Join(escaped, "/"), "%5F$1")
}
