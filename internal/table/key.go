package table

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Token is the commit timestamp of a claim in microseconds since 1970.
type Token int64

// TokenAt returns the token of a claim that was committed at t, or 0 if t is the zero time.
func TokenAt(t time.Time) Token {
	if t.IsZero() {
		return 0
	}
	return Token(t.UnixMicro())
}

// Time returns the token as a time.
func (t Token) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }

// String returns the token as a decimal number.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// MaxName is the maximum length of a lock's name, in bytes. Spanner's limit of 8 KiB applies to an encoded key, and the
// key of a lease row is 17 bytes longer than the lock's name.
const MaxName = 4096

const tokenDigits = 16

// MaxKey is the maximum length of a lease row's key, in bytes.
const MaxKey = MaxName + len("_") + tokenDigits

var (
	leaseLike  = regexp.MustCompile(`_[0-9]{16,}$`)
	longDigits = regexp.MustCompile(`_([0-9]{16,})$`)
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}(\.[A-Za-z_][A-Za-z0-9_]{0,127})?$`)
)

// CheckName returns an error if name can't be the name of a lock.
func CheckName(name string) error {
	if err := CheckKey(name); err != nil {
		return err
	}
	if i := strings.IndexFunc(name, Unprintable); i >= 0 {
		r, _ := utf8.DecodeRuneInString(name[i:])
		return fmt.Errorf("lock name %.200q has %U at byte %d: control characters, line separators and bidirectional marks are not allowed", name, r, i)
	}
	return nil
}

// Unprintable reports whether a terminal or a log viewer would interpret a rune instead of showing it.
func Unprintable(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// CheckKey returns an error if name can't be the name of a lock's row. It accepts some names that CheckName rejects,
// because rows with such names may have been written by other programs.
func CheckKey(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("lock name is empty: it must have 1 to %d bytes", MaxName)
	case len(name) > MaxName:
		return fmt.Errorf("lock name %.32q... has %d bytes, but at most %d are allowed", name, len(name), MaxName)
	case IsTicket(name):
		return fmt.Errorf("lock name %q could be mistaken for the ticket of a waiter: it must not begin with %s", name, ticketPrefix)
	case !utf8.ValidString(name):
		return fmt.Errorf("lock name %q is not valid UTF-8, which Spanner would reject", name)
	case leaseLike.MatchString(name):
		return fmt.Errorf("lock name %q could be mistaken for the lease row of lock %q: it must not end in _ and 16 or more digits",
			name, name[:strings.LastIndexByte(name, '_')])
	}
	if isPlan(name) {
		return fmt.Errorf("lock name %.64q could be mistaken for the plan of a group: it must not end in %s", name, planSuffix)
	}
	if lock, ok := beside(name); ok {
		return fmt.Errorf("lock name %.64q could be mistaken for an auxiliary row of lock %.64q: it must not end in %s or %s",
			name, lock, doneSuffix, brokenSuffix)
	}
	return nil
}

// Join combines parts into one name. Different parts never produce the same name. In each part, every character except
// letters, digits and -_.~$&+=:@ is escaped. If the name would end in an underscore and 16 or more digits, that
// underscore is escaped too.
func Join(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return longDigits.ReplaceAllString(strings.Join(escaped, "/"), "%5F$1")
}

// CheckTable returns an error if table can't be the name of a table.
func CheckTable(table string) error {
	if !identifier.MatchString(table) {
		return fmt.Errorf("table name %q is not an identifier: use letters, digits and _, and do not begin with a digit; a schema and a dot can precede the name", table)
	}
	return nil
}

// apiName returns the name of a table in Spanner's API, which omits PostgreSQL's schema public. No other schema can be
// named public in either dialect.
func apiName(table string) string {
	if schema, name, ok := strings.Cut(table, "."); ok && strings.EqualFold(schema, "public") {
		return name
	}
	return table
}

// Canonical returns a form of a table's name that is the same for all names of that table. Spanner ignores the case of
// table names.
func Canonical(table string) string { return strings.ToLower(apiName(table)) }

// LeaseKey returns the key of the lease row of name under token. If token is not positive, there is no lease row with
// that key, so a fence with such a token always fails.
func LeaseKey(name string, token Token) string {
	return fmt.Sprintf("%s_%0*d", name, tokenDigits, max(token, 0))
}

// leaseKeys returns a range of keys that contains all lease rows that name can have at that time. The range also
// contains rows of other locks, such as job_1 to job_179 if name is job. It is for snapshot reads, which do not
// conflict with any commit.
func leaseKeys(name string, at time.Time) Range {
	return Range{From: LeaseKey(name, 0), To: LeaseKey(name, TokenAt(at.Add(24*time.Hour)))}
}

// recent is how long after an observation a claim can be made. Until then, newLeaseKeys covers the lease rows of all
// terms that have begun since the observation.
const recent = time.Hour

// newLeaseKeys returns a range of keys that contains the lease rows of terms that began between then and one hour
// later. It is for transactions, so it is narrow. It contains rows of a different lock only if that lock's name
// consists of name, an underscore and more than six digits with which timestamps of that hour begin.
func newLeaseKeys(name string, then time.Time) Range {
	return Range{From: LeaseKey(name, TokenAt(then)), To: LeaseKey(name, TokenAt(then.Add(recent)))}
}

// isLeaseKey reports whether key is the key of one of name's lease rows. The ranges of leaseKeys and newLeaseKeys can
// also contain the rows of other locks, such as name_b and name_12, and the lease rows of those locks.
func isLeaseKey(name, key string) bool {
	digits, ok := strings.CutPrefix(key, name+"_")
	return ok && len(digits) == tokenDigits && strings.Trim(digits, "0123456789") == ""
}

// tokenOf returns the token in a lease row's key.
func tokenOf(leaseKey string) Token {
	n, _ := strconv.ParseInt(leaseKey[len(leaseKey)-tokenDigits:], 10, 64) // digits only: can't fail
	return Token(n)
}
