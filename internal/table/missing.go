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

// Spanner returns the same code for a missing row, table, database, session or transaction, and the texts of these
// errors have changed over time. The protocol relies on such an error only if the error says that a row, a table, a
// database or an instance is missing. If the error contains the type of the missing resource, that type decides.
// Otherwise the beginning of the error's text decides.
var (
	rowMissing = regexp.MustCompile(`(?s)^(Row .* is missing\b|Table \S+: Row .* not found)`)
	goneText   = regexp.MustCompile(`^(Table|Database|Instance) not found`)
	goneKind   = regexp.MustCompile(`\.(Table|Database|Instance)$`)
)

// Missing reports whether err means that a row, the table or the database does not exist. It returns false if a session
// or transaction was lost, or if the error does not say what is missing.
func Missing(err error) bool {
	desc := statusOf(err).Message()
	switch statusOf(err).Code() {
	case codes.NotFound:
		if kind := resourceKind(err); kind != "" {
			return goneKind.MatchString(kind)
		}
		return rowMissing.MatchString(desc) || goneText.MatchString(desc)
	case codes.InvalidArgument: // some commits of mutations return this
		return strings.HasPrefix(desc, "Table not found")
	}
	return false
}

// rowOfTable matches Spanner's text for a missing row, and tableAndRow matches the emulator's. No part of the key can
// be mistaken for the table, because the table comes after the key in Spanner's text and before the key in the
// emulator's.
var (
	rowOfTable  = regexp.MustCompile(`(?s)^Row \[(?P<key>.*)\] in table (?P<table>\S+) is missing\b`)
	tableAndRow = regexp.MustCompile(`(?s)^Table (?P<table>\S+): Row \{String\((?P<key>.*)\)\} not found\b`)
	leaseKey    = regexp.MustCompile(`_[0-9]{16}["']?$`)
)

// LeaseMissing reports whether err means that a lease row in that table does not exist. The row can belong to any lock.
func LeaseMissing(err error, table string) bool {
	if !Missing(err) || statusOf(err).Code() != codes.NotFound {
		return false
	}
	for _, form := range []*regexp.Regexp{rowOfTable, tableAndRow} {
		if is := form.FindStringSubmatch(statusOf(err).Message()); is != nil {
			name := strings.Trim(is[form.SubexpIndex("table")], "\"`")
			return Canonical(name) == Canonical(table) && leaseKey.MatchString(is[form.SubexpIndex("key")])
		}
	}
	return false
}

func rowIsMissing(err error) bool {
	return Missing(err) && rowMissing.MatchString(statusOf(err).Message())
}

// statusOf returns the status in err, without the texts that wrap it. It returns nil, which means OK, if there is none.
func statusOf(err error) *status.Status {
	var said interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &said) {
		return nil
	}
	return said.GRPCStatus()
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
