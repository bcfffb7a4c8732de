package table

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Spanner has one code for a missing row, table, database, session or transaction, and has said so in several ways. An
// error is about the lock only if it shows that: by the kind of resource that it carries, otherwise by how its text
// begins.
var (
	rowMissing = regexp.MustCompile(`(?s)^(Row .* is missing\b|Table \S+: Row .* not found)`)
	gone       = regexp.MustCompile(`^(Table|Database|Instance) not found`)
	goneKind   = regexp.MustCompile(`\.(Table|Database|Instance)$`)
)

// Missing reports whether err says that a row, the table or the database does not exist. It is false for
// a lost session or transaction, and for what can't be told.
func Missing(err error) bool {
	var said interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &said) {
		return false
	}
	desc := said.GRPCStatus().Message()
	switch said.GRPCStatus().Code() {
	case codes.NotFound:
		if kind := resourceKind(err); kind != "" {
			return goneKind.MatchString(kind)
		}
		return rowMissing.MatchString(desc) || gone.MatchString(desc)
	case codes.InvalidArgument: // some commits of mutations answer so
		return strings.HasPrefix(desc, "Table not found")
	}
	return false
}

// A missing row with its table and key, in Spanner's words and in the emulator's. The key can't fake the table,
// whatever is in it: the table comes last in one, and first in the other.
var (
	rowOfTable  = regexp.MustCompile(`(?s)^Row \[(?P<key>.*)\] in table (?P<table>\S+) is missing\b`)
	tableAndRow = regexp.MustCompile(`(?s)^Table (?P<table>\S+): Row \{String\((?P<key>.*)\)\} not found\b`)
	leaseKey    = regexp.MustCompile(`_[0-9]{16}["']?$`)
)

// LeaseMissing reports whether err says that a lease row of that table does not exist, of any lock.
func LeaseMissing(err error, table string) bool {
	var said interface{ GRPCStatus() *status.Status }
	if !Missing(err) || !errors.As(err, &said) || said.GRPCStatus().Code() != codes.NotFound {
		return false
	}
	for _, form := range []*regexp.Regexp{rowOfTable, tableAndRow} {
		if is := form.FindStringSubmatch(said.GRPCStatus().Message()); is != nil {
			name := strings.Trim(is[form.SubexpIndex("table")], "\"`")
			return Canonical(name) == Canonical(table) && leaseKey.MatchString(is[form.SubexpIndex("key")])
		}
	}
	return false
}

func rowIsMissing(err error) bool {
	return Missing(err) && rowMissing.MatchString(status.Convert(err).Message())
}

// SessionLost reports whether err comes from a client whose session is gone. Such a client answers so forever.
func SessionLost(err error) bool {
	return spanner.ErrCode(err) == codes.NotFound && !Missing(err) &&
		(strings.HasSuffix(resourceKind(err), ".Session") || strings.Contains(spanner.ErrDesc(err), "Session"))
}

// DatabaseMissing reports whether err says that the database or instance does not exist.
func DatabaseMissing(err error) bool {
	desc := spanner.ErrDesc(err)
	return spanner.ErrCode(err) == codes.NotFound && (strings.HasPrefix(desc, "Database not found") || strings.HasPrefix(desc, "Instance not found"))
}

// ClientClosed reports whether err comes from a client that this process has closed, in the client's words: at first
// for calls under way, and then for all.
func ClientClosed(err error) bool {
	switch desc := spanner.ErrDesc(err); spanner.ErrCode(err) {
	case codes.InvalidArgument:
		return desc == "invalid session"
	case codes.FailedPrecondition:
		return desc == "SessionClient is closed"
	case codes.Canceled:
		return strings.Contains(desc, "client connection is closing")
	}
	return false
}

// resourceKind returns the type of the resource that err is about, or "".
func resourceKind(err error) string {
	// Only the innermost error has the details: the client's own does not pass them on.
	for ; err != nil; err = errors.Unwrap(err) {
		st, ok := err.(interface{ GRPCStatus() *status.Status })
		if !ok {
			continue
		}
		for _, d := range st.GRPCStatus().Details() {
			if info, ok := d.(interface{ GetResourceType() string }); ok && info.GetResourceType() != "" {
				return info.GetResourceType()
			}
		}
	}
	return ""
}

// missing wraps an error of a commit in ErrMissing, ErrNotFound or ErrExists if it is one of these.
func missing(err error) error {
	switch {
	case Missing(err):
		return fmt.Errorf("%w: %w", ErrMissing, err)
	case spanner.ErrCode(err) == codes.NotFound:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case spanner.ErrCode(err) == codes.AlreadyExists:
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	return err
}
