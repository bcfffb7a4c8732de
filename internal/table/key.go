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

// TokenAt returns the token of a claim that was committed at t. The zero time is no token.
func TokenAt(t time.Time) Token {
	if t.IsZero() {
		return 0
	}
	return Token(t.UnixMicro())
}

// Time returns the commit timestamp.
func (t Token) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }

// String returns the token as a decimal number.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// MaxName is the longest name a lock may have, in bytes. Spanner's own limit of 8 KiB is for a whole key with its
// encoding, and a lease row's key is 17 bytes longer than the name.
const MaxName = 4096

const tokenDigits = 16

// MaxKey is the longest key of a lease row.
const MaxKey = MaxName + len("_") + tokenDigits

var (
	leaseLike  = regexp.MustCompile(`_[0-9]{16,}$`)
	longDigits = regexp.MustCompile(`_([0-9]{16,})$`)
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}(\.[A-Za-z_][A-Za-z0-9_]{0,127})?$`)
)

// CheckName returns why name can't be a lock's, or nil.
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

// Unprintable reports whether a terminal or a log would act on a rune rather than show it.
func Unprintable(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// CheckKey returns why name can't name a lock's row, or nil. A row that others wrote may have a name that CheckName
// refuses.
func CheckKey(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("lock name is empty: give it a name of 1 to %d bytes", MaxName)
	case len(name) > MaxName:
		return fmt.Errorf("lock name %.32q... has %d bytes: at most %d are allowed", name, len(name), MaxName)
	case IsTicket(name):
		return fmt.Errorf("lock name %q could be taken for the place of one that waits for a lock: it must not begin with %s", name, ticketPrefix)
	case !utf8.ValidString(name):
		return fmt.Errorf("lock name %q is not valid UTF-8: Spanner would refuse it", name)
	case leaseLike.MatchString(name):
		return fmt.Errorf("lock name %q could be taken for the lease row of lock %q: it must not end in _ and 16 or more digits",
			name, name[:strings.LastIndexByte(name, '_')])
	}
	if isPlan(name) {
		return fmt.Errorf("lock name %.64q could be taken for the plan of a group: it must not end in %s", name, planSuffix)
	}
	if lock, ok := beside(name); ok {
		return fmt.Errorf("lock name %.64q could be taken for a row beside that of lock %.64q: it must not end in %s, nor in %s",
			name, lock, doneSuffix, brokenSuffix)
	}
	return nil
}

// Join makes one name of parts. Different parts never make the same name. In each part, every character except letters,
// digits and -_.~$&+=:@ is escaped, and so is a _ before 16 or more digits at the end.
func Join(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return longDigits.ReplaceAllString(strings.Join(escaped, "/"), "%5F$1")
}

// CheckTable returns why table can't be a table's name, or nil.
func CheckTable(table string) error {
	if !identifier.MatchString(table) {
		return fmt.Errorf("table name %q is not an identifier: want letters, digits and _, with no digit first; a schema and a dot may come before", table)
	}
	return nil
}

// apiName returns a table's name in Spanner's API. It has tables of PostgreSQL's schema public without the schema; no
// schema of another kind can be called public, in either dialect.
func apiName(table string) string {
	if schema, name, ok := strings.Cut(table, "."); ok && strings.EqualFold(schema, "public") {
		return name
	}
	return table
}

// Canonical is the same for two names of one table: Spanner ignores their case.
func Canonical(table string) string { return strings.ToLower(apiName(table)) }

// LeaseKey returns the key of the lease row of name under token. No lease row has the key of a token
// that is not positive, so a fence on one always fails.
func LeaseKey(name string, token Token) string {
	return fmt.Sprintf("%s_%0*d", name, tokenDigits, max(token, 0))
}

// leaseKeys returns the keys that the lease rows of name can have at that time, and some others in between, such as
// those of job_1 to job_179 if name is job. They are for snapshots, which conflict with nobody.
func leaseKeys(name string, at time.Time) Range {
	return Range{From: LeaseKey(name, 0), To: LeaseKey(name, TokenAt(at.Add(24*time.Hour)))}
}

// recent is how long after an observation a claim may come, and still find in newLeaseKeys all lease rows of terms that
// began in between.
const recent = time.Hour

// newLeaseKeys returns the keys of lease rows of terms that began between then and an hour later. They are for
// transactions: other locks are between them only if their names end in _ and more than six digits, which must be the
// first of that hour's microseconds.
func newLeaseKeys(name string, then time.Time) Range {
	return Range{From: LeaseKey(name, TokenAt(then)), To: LeaseKey(name, TokenAt(then.Add(recent)))}
}

// isLeaseKey tells the lease rows of name from other locks' rows in these ranges: name_b and name_12 are locks of their
// own, with their own lease rows.
func isLeaseKey(name, key string) bool {
	digits, ok := strings.CutPrefix(key, name+"_")
	return ok && len(digits) == tokenDigits && strings.Trim(digits, "0123456789") == ""
}

// tokenOf reads the token out of a lease row's key.
func tokenOf(leaseKey string) Token {
	n, _ := strconv.ParseInt(leaseKey[len(leaseKey)-tokenDigits:], 10, 64) // digits only: can't fail
	return Token(n)
}
