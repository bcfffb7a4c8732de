package lock

import (
	"net/url"
	"regexp"
	"strings"
)

// leaseLike is the end of a lease row's key, which no lock's name may have.
var leaseLike = regexp.MustCompile(`_([0-9]{16,})$`)

// Name makes the name of a lock from parts, such as a target and a context: Name("router-7", "snmp-query").
// Different parts never make the same name, whatever is in them. The parts are joined by slashes. In each, what
// is not a letter, a digit or one of -_.~$&+=:@ is escaped, and so is a _ before 16 or more digits at the end.
func Name(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return leaseLike.ReplaceAllString(strings.Join(escaped, "/"), "%5F$1")
}
