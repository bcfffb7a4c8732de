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

// Spanner uses the same code for a missing row, table, database, session or transaction, and has used various texts for
// each of them. The protocol may draw conclusions from an error only if the error shows that a row, a table, a database
// or an instance is missing. It shows this by the type of resource that it carries or, if it carries none, by the
// beginning of its text.
var (
	rowMissing = regexp.MustCompile(`(?s)^(Row .* is missing\b|Table \S+: Row .* not found)`)
	gone       = regexp.MustCompile(`^(Table|Database|Instance) not found`)
	goneKind   = regexp.MustCompile(`\.(Table|Database|Instance)$`)
)

// Missing reports whether err means that a row, the table or the database does not exist. It returns false for a lost
// session or transaction, and if the error does not show what is missing.
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
	case codes.InvalidArgument: // some commits of mutations return this
		return strings.HasPrefix(desc, "Table not found")
	}
	return false
}

// These match a missing row, with its table and its key, in the texts of Spanner and of the emulator. Whatever the key
// contains, it can't be mistaken for the table, because the table comes after the key in one text and before it in the
// other.
var (
	rowOfTable  = regexp.MustCompile(`(?s)^Row \[(?P<key>.*)\] in table (?P<table>\S+) is missing\b`)
	tableAndRow = regexp.MustCompile(`(?s)^Table (?P<table>\S+): Row \{String\((?P<key>.*)\)\} not found\b`)
	leaseKey    = regexp.MustCompile(`_[0-9]{16}["']?$`)
)

// LeaseMissing reports whether err means that a lease row in that table does not exist. The row can belong to any lock.
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

// SessionLost reports whether err comes from a client that has lost its session. Such a client returns this error
// forever.
func SessionLost(err error) bool {
	return spanner.ErrCode(err) == codes.NotFound && !Missing(err) &&
		(strings.HasSuffix(resourceKind(err), ".Session") || strings.Contains(spanner.ErrDesc(err), "Session"))
}

// DatabaseMissing reports whether err means that the database or the instance does not exist.
func DatabaseMissing(err error) bool {
	desc := spanner.ErrDesc(err)
	return spanner.ErrCode(err) == codes.NotFound && (strings.HasPrefix(desc, "Database not found") || strings.HasPrefix(desc, "Instance not found"))
}

// ClientClosed reports whether err comes from a client that this process has closed. It recognizes the client's own
// error texts, some of which are only returned for calls that were in progress when the client was closed.
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

// resourceKind returns the type of the resource that err is about, or "" if err does not contain one.
func resourceKind(err error) string {
	// Only the innermost error has the details, because the client's own error does not pass them on.
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

// missing wraps the error of a commit in ErrMissing, ErrNotFound or ErrExists if one of them applies.
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
