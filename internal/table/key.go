package table

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Token is a time in microseconds since 1970. The token of a term is the commit timestamp of its claim, unless the
// claimant chose the token itself (see FreeClaim).
type Token int64

// TokenAt returns the token for the time t, or 0 if t is the zero time.
func TokenAt(t time.Time) Token {
	if t.IsZero() {
		return 0
	}
	return Token(t.UnixMicro())
}

func (t Token) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }

func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

// MaxName is the maximum length of a lock's name, in bytes. Spanner allows at most 8 KiB for a key after encoding, and
// the key of a lease row is 17 bytes longer than the lock's name.
const MaxName = 4096

const tokenDigits = 16

const MaxKey = MaxName + len("_") + tokenDigits

var (
	leaseLike  = regexp.MustCompile(`_[0-9]{16,}$`)
	longDigits = regexp.MustCompile(`_([0-9]{16,})$`)
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}(\.[A-Za-z_][A-Za-z0-9_]{0,127})?$`)
)

func CheckName(name string) error {
	return cmp.Or(CheckKey(name), checkPrintable("lock name", name))
}

// checkLength returns an error unless s is valid UTF-8 and has 1 to most bytes.
func checkLength(what, s string, most int) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty: it must have 1 to %d bytes", what, most)
	case len(s) > most:
		return fmt.Errorf("%s %.32q... has %d bytes, but at most %d are allowed", what, s, len(s), most)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s %q is not valid UTF-8, which Spanner requires", what, s)
	}
	return nil
}

func checkPrintable(what, s string) error {
	if i := strings.IndexFunc(s, Unprintable); i >= 0 {
		r, _ := utf8.DecodeRuneInString(s[i:])
		return fmt.Errorf("%s %.200q contains %U at byte %d: control characters, line separators and bidirectional marks are not allowed", what, s, r, i)
	}
	return nil
}

// Unprintable reports whether a terminal or a log viewer would interpret a rune instead of showing it.
func Unprintable(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// CheckKey returns an error if no lock row can have this name. It is less strict than CheckName, because the table may
// contain rows that other programs have written.
func CheckKey(name string) error {
	if err := checkLength("lock name", name, MaxName); err != nil {
		return err
	}
	switch {
	case IsTicket(name):
		return fmt.Errorf("lock name %q could be mistaken for a waiter's ticket: it must not begin with %s", name, TicketPrefix)
	case leaseLike.MatchString(name):
		return fmt.Errorf("lock name %q could be mistaken for the lease row of lock %q: it must not end in _ followed by 16 or more digits",
			name, name[:strings.LastIndexByte(name, '_')])
	}
	switch role, lock := RoleOf(name); role {
	case OfPlan:
		return fmt.Errorf("lock name %.64q could be mistaken for a group's plan: it must not end in %s", name, planSuffix)
	case OfDone, OfBreak:
		return fmt.Errorf("lock name %.64q could be mistaken for an auxiliary row of lock %.64q: it must not end in %s or %s",
			name, lock, doneSuffix, brokenSuffix)
	}
	return nil
}

// Join combines parts into one name. Different lists of parts never produce the same name. In each part, every
// character except ASCII letters, digits and -_.~$&+=:@ is escaped. If the name would end in an underscore and 16 or
// more digits, that underscore is escaped too.
func Join(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return longDigits.ReplaceAllString(strings.Join(escaped, "/"), "%5F$1")
}

func CheckTable(table string) error {
	if !identifier.MatchString(table) {
		return fmt.Errorf("table name %q is not an identifier: use at most 128 letters, digits and underscores, and do not start with a digit; a schema name and a dot may come first", table)
	}
	return nil
}

// APIName returns a table's name in the form that Spanner's API expects, without PostgreSQL's default schema public. In
// both dialects, no other schema can have this name.
func APIName(table string) string {
	if schema, name, ok := strings.Cut(table, "."); ok && strings.EqualFold(schema, "public") {
		return name
	}
	return table
}

// Canonical returns the canonical form of a table's name, which is the same for all spellings of the name. Spanner
// ignores case in table names.
func Canonical(table string) string { return strings.ToLower(APIName(table)) }

// LeaseKey returns the key of the lease row that the lock has under the token. If token is not positive, no lease row
// has the returned key, so a fence with such a token always fails.
func LeaseKey(name string, token Token) string {
	return fmt.Sprintf("%s_%0*d", name, tokenDigits, max(token, 0))
}

// recent is the maximum age of an observation on which a claim can be based. newLeaseKeys covers all lease rows that
// may have been inserted within this time.
const recent = time.Hour

// newLeaseKeys returns the range of keys for the lease rows of all terms that began within one hour after the given
// time. It is meant for transactions, so the range contains as few rows of other locks as possible. Another lock's row
// can be in the range only if its key begins with the given name, an underscore, and the first digits of a timestamp in
// that hour.
func newLeaseKeys(name string, then time.Time) Range {
	return Range{From: LeaseKey(name, TokenAt(then)), To: LeaseKey(name, TokenAt(then.Add(recent)))}
}

func tokenOf(leaseKey string) Token {
	n, _ := strconv.ParseInt(leaseKey[len(leaseKey)-tokenDigits:], 10, 64) // digits only: can't fail
	return Token(n)
}
