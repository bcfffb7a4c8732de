package table

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// FaultKind says whether a request that failed may succeed later.
type FaultKind int

const (
	Unclassified FaultKind = iota // not from Spanner, or an expected answer, for example that another candidate was first
	Outage                        // Spanner can't carry out the request now; waiting usually helps
	Refusal                       // something is missing or not permitted; this may change, for example when credentials are renewed
	Lasting                       // the request, the table or the client is wrong; waiting does not help
)

// Fault is one of the things that can be wrong with a request to Spanner.
type Fault struct {
	Kind    FaultKind
	Setup   bool   // if the first request fails this way, the setup is probably wrong
	Hint    string // advice for programmers
	Command string // advice for users of the command
}

// These are the faults that FaultOf returns.
var (
	NotAFault     = &Fault{}
	noRow         = &Fault{} // an expected answer too: a row does not exist, usually because the token is no longer valid
	Passing       = &Fault{Kind: Outage}
	Unreachable   = &Fault{Kind: Outage, Command: "the database can't be reached"}
	Exhausted     = &Fault{Kind: Outage, Hint: overloaded, Command: overloaded}
	NoToken       = &Fault{Kind: Outage, Hint: credentials, Command: credentials + login}
	NoCredentials = &Fault{Kind: Refusal, Hint: credentials, Command: credentials + login}
	NoPermission  = &Fault{Kind: Refusal, Setup: true, Hint: "the client needs roles/spanner.databaseUser on the database",
		Command: "to see the required roles, run spindle init --print"}
	NoDatabase = &Fault{Kind: Refusal, Setup: true, Hint: "check the database path that was given to the Spanner client",
		Command: "check --db; to list the databases of an instance, run gcloud spanner databases list --instance=INSTANCE"}
	NoTable = &Fault{Kind: Refusal, Setup: true, Hint: "check that the table exists; ddl.Create creates it",
		Command: "check --table, or create the table with spindle init"}
	NoSession = &Fault{Kind: Refusal, Hint: "the Spanner client has lost its session, for example because the database was dropped and created again; create a new client"}
	NotFound  = &Fault{Kind: Refusal}
	NoClient  = &Fault{Kind: Lasting, Hint: "the Spanner client was closed while it was still in use; close it only after Run has ended and all locks are released"}
	Nested    = &Fault{Kind: Lasting, Hint: "ctx is the context that a transaction passed to its function; use a context from outside the transaction"}
	BadTable  = &Fault{Kind: Lasting, Hint: "the table might not be a lock table; ddl.Verify says what is wrong with it",
		Command: "this might not be a lock table; to check its schema, run spindle init"}
	Wrong = &Fault{Kind: Lasting} // the error says what is wrong, for example with a row
)

const (
	overloaded  = "Spanner is refusing requests because a quota or the instance's capacity is used up"
	credentials = "check the client's credentials: they are missing, have expired, or can't be renewed"
	login       = "; to get credentials, run gcloud auth application-default login; to use an emulator, set SPANNER_EMULATOR_HOST"
)

// FaultOf returns the fault that err reports. It never returns nil.
func FaultOf(err error) *Fault {
	switch {
	case err == nil:
		return NotAFault
	case errors.Is(err, ErrGroup), errors.Is(err, ErrGarbled), errors.Is(err, ErrUnordered):
		return Wrong
	case strings.Contains(err.Error(), "default credentials"):
		return NoCredentials
	case statusOf(err) != nil:
		return answered(err)
	case errors.Is(err, context.DeadlineExceeded):
		return Unreachable
	}
	return NotAFault
}

func Refused(err error) bool { return FaultOf(err).Kind >= Refusal }

// answered returns the fault in Spanner's answer.
func answered(err error) *Fault {
	desc := statusOf(err).Message()
	switch code := statusOf(err).Code(); code {
	case codes.Unavailable, codes.DeadlineExceeded:
		return Unreachable
	case codes.ResourceExhausted:
		return Exhausted
	case codes.PermissionDenied:
		return NoPermission
	case codes.Unauthenticated:
		if strings.HasPrefix(desc, "transport:") { // the credentials could not be fetched
			return NoToken
		}
		return NoCredentials
	case codes.Aborted, codes.Internal, codes.Canceled, codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument:
		return faultByText(code, desc, resourceKind(err))
	case codes.OutOfRange, codes.Unimplemented:
		return Wrong
	}
	return NotAFault
}

// Spanner returns the same code whether a row, table, database, session or transaction is missing, and its error texts
// have changed over time. From such an error, a holder concludes that it has lost its lock only if a row, table,
// database or instance is missing. If the error names the type of the missing resource, that type must be a table, a
// database or an instance. A missing table is recognized by the text alone.
//
// A database, table or column can be named "transaction". Such a name always follows a colon or a word such as "table",
// so the patterns ignore the word "transaction" there.
var (
	rowMissing      = regexp.MustCompile(`(?s)^(Row .* is missing\b|Table \S+: Row .* not found)`)
	goneText        = regexp.MustCompile(`^(Table|Database|Instance) not found`)
	goneKind        = regexp.MustCompile(`\.(Table|Database|Instance)$`)
	lostTransaction = regexp.MustCompile(`^(?i)[^:]*\btransaction\b`)
	named           = regexp.MustCompile(`^(?i)[^:]*\b(database|table|column|index|instance)\b`)
)

// closedTexts contains parts of the errors that a Spanner client itself returns after this process has closed it. Some
// of these errors occur only if the client was closed during a call or before its first call.
var closedTexts = map[codes.Code][]string{
	codes.InvalidArgument: {"invalid session"}, codes.FailedPrecondition: {"SessionClient is closed"},
	codes.Canceled: {"client connection is closing", "Session client closed"},
}

// faultByText uses the text and the type of the missing resource to distinguish faults that share a code.
func faultByText(code codes.Code, desc, kind string) *Fault {
	switch {
	case slices.ContainsFunc(closedTexts[code], func(text string) bool { return strings.Contains(desc, text) }):
		return NoClient
	case code == codes.Aborted, code == codes.Internal, code == codes.Canceled:
		return Passing
	case code == codes.NotFound && rowMissing.MatchString(desc) && (kind == "" || goneKind.MatchString(kind)):
		return noRow
	case strings.Contains(desc, "nested transactions"):
		return Nested
	case lostTransaction.MatchString(desc) && !named.MatchString(desc):
		return Passing
	case strings.HasPrefix(desc, "Table not found"):
		return NoTable
	case code != codes.NotFound, strings.HasPrefix(desc, "Column not found"):
		return BadTable
	case goneKind.MatchString(kind), kind == "" && goneText.MatchString(desc):
		return NoDatabase
	case strings.HasSuffix(kind, ".Session"), strings.Contains(desc, "Session"):
		return NoSession
	}
	return NotFound
}

// Missing reports whether err means that a row, the table, the database or its instance does not exist. It returns
// false if a session or transaction was lost, or if the error does not say what is missing.
func Missing(err error) bool {
	switch answered(err) {
	case noRow, NoDatabase:
		return true
	case NoTable: // NotFound, or InvalidArgument from some commits of mutations
		return statusOf(err).Code() != codes.FailedPrecondition
	}
	return false
}

// namedRow matches the messages with which Spanner and the emulator report a missing row. No part of the key can be
// mistaken for the table, because the table follows the key in Spanner's message and precedes the key in the
// emulator's.
var (
	namedRow = regexp.MustCompile(`(?s)^(?:Row \[(.*)\] in table (\S+) is missing\b|Table (\S+): Row \{String\((.*)\)\} not found\b)`)
	leaseKey = regexp.MustCompile(`_[0-9]{16}["']?$`)
)

// LeaseMissing reports whether err means that a lease row of some lock does not exist in the given table.
func LeaseMissing(err error, table string) bool {
	is := namedRow.FindStringSubmatch(statusOf(err).Message())
	return is != nil && answered(err) == noRow && leaseKey.MatchString(is[1]+is[4]) &&
		Canonical(strings.Trim(is[2]+is[3], "\"`")) == Canonical(table)
}

// The emulator runs only one transaction at a time, and may discard another one that is waiting. For a discarded
// transaction, it may return NOT_FOUND or FAILED_PRECONDITION with one of these messages, where Spanner would return
// ABORTED.
var dropped = regexp.MustCompile(`^(Transaction not found|Invalid transaction ID|Cannot read or query using a transaction ` +
	`after it has been committed or rolledback|Cannot commit a transaction after it has been rolled back)`)

// Dropped reports whether err means that the emulator has discarded the request's transaction without applying any of
// it.
//
// Dropped returns false if the client sent the request more than once. In that case, an earlier attempt may have
// committed the transaction, and the error may mean only that a later attempt no longer found it. The number of the
// attempt is the last number in the request's id.
func Dropped(err error) bool {
	//lint:ignore SA1019 no other type in the client has the request id
	var said *spanner.Error
	code := spanner.ErrCode(err)
	return (code == codes.NotFound || code == codes.FailedPrecondition) && errors.As(err, &said) &&
		strings.HasSuffix(said.RequestID, ".1") && dropped.MatchString(said.Desc)
}

// statusOf returns the status in err, without the messages that wrap it. If there is none, it returns nil, meaning OK.
func statusOf(err error) *status.Status {
	var said interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &said) {
		return nil
	}
	return said.GRPCStatus()
}

// resourceKind returns the type of the resource that err is about, or "" if err does not say. Only the innermost error
// has the details, because the client's own error does not pass them on.
func resourceKind(err error) string {
	for ; err != nil; err = errors.Unwrap(err) {
		said, ok := err.(interface{ GRPCStatus() *status.Status })
		if !ok {
			continue
		}
		for _, d := range said.GRPCStatus().Details() {
			if info, ok := d.(interface{ GetResourceType() string }); ok && info.GetResourceType() != "" {
				return info.GetResourceType()
			}
		}
	}
	return ""
}

// missing wraps the error of a commit in ErrMissing, ErrNotFound or ErrExists if one of them applies.
func missing(err error) error {
	switch code := spanner.ErrCode(err); {
	case Missing(err):
		return fmt.Errorf("%w: %w", ErrMissing, err)
	case code == codes.NotFound:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case code == codes.AlreadyExists:
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	return err
}

// Ended returns the error of a context that has ended: its cause, and also ctx.Err if the cause does not wrap it.
func Ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return context.Cause(ctx)
}
