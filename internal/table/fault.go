package table

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
)

// FaultKind says whether a request that failed may succeed later.
type FaultKind int

const (
	// Unclassified errors do not come from Spanner, or are answers. For example, another candidate was first.
	Unclassified FaultKind = iota

	// Outage means that Spanner can't answer now. Waiting helps.
	Outage

	// Refusal means that something is missing or not permitted. That can pass: permissions change, credentials are
	// renewed, and databases are restored.
	Refusal

	// Lasting means that the request, the table or the client is wrong. Waiting does not help.
	Lasting
)

// Fault is one of the things that can be wrong with a request to Spanner.
type Fault struct {
	Kind    FaultKind
	Setup   bool   // if even the first request fails this way, somebody has probably made a mistake
	Hint    string // advice for programmers
	Command string // the same advice, for users of the command
}

// The faults. FaultOf tells them apart.
var (
	NotAFault     = &Fault{}
	Passing       = &Fault{Kind: Outage}
	Unreachable   = &Fault{Kind: Outage, Command: "the database can't be reached"}
	Exhausted     = &Fault{Kind: Outage, Hint: overloaded, Command: overloaded}
	NoToken       = &Fault{Kind: Outage, Hint: credentials, Command: credentials + login}
	NoCredentials = &Fault{Kind: Refusal, Hint: credentials, Command: credentials + login}
	NoPermission  = &Fault{Kind: Refusal, Setup: true, Hint: "the client needs roles/spanner.databaseUser on the database",
		Command: "to see the required roles, run spindle init --print"}
	NoDatabase = &Fault{Kind: Refusal, Setup: true, Hint: "check the database path that was given to the Spanner client",
		Command: "check --db; to list the databases of an instance, run gcloud spanner databases list"}
	NoTable = &Fault{Kind: Refusal, Setup: true, Hint: "check that the table exists; ddl.Create creates it",
		Command: "check --table, or create the table with spindle init"}
	NoSession = &Fault{Kind: Refusal, Hint: "the Spanner client has lost its session, for example because the database was dropped and created again; create a new client"}
	NotFound  = &Fault{Kind: Refusal}
	NoClient  = &Fault{Kind: Lasting, Hint: "the Spanner client was closed while it was still in use; close it only after Run has ended and all locks are released"}
	Nested    = &Fault{Kind: Lasting, Hint: "ctx is the context of a transaction's function; use a context from outside the transaction"}
	BadTable  = &Fault{Kind: Lasting, Hint: "check that it is a lock table; ddl.Verify says what is wrong with it",
		Command: "this might not be a lock table; to check its schema, run spindle init"}
	Wrong = &Fault{Kind: Lasting} // the error says what is wrong, for example with a row
)

const (
	overloaded  = "Spanner refuses requests because a quota or the instance's capacity is used up"
	credentials = "check the client's credentials: they are missing, have expired, or can't be renewed"
	login       = "; to get credentials, run gcloud auth application-default login; to use an emulator, set SPANNER_EMULATOR_HOST"
)

// FaultOf returns the fault that err reports. It never returns nil.
func FaultOf(err error) *Fault {
	switch said := statusOf(err); {
	case err == nil:
		return NotAFault
	case errors.Is(err, ErrGroup), errors.Is(err, ErrGarbled), errors.Is(err, ErrUnordered):
		return Wrong
	case strings.Contains(err.Error(), "default credentials"):
		return NoCredentials
	case said != nil:
		return faultOf(err, said.Code(), said.Message())
	case errors.Is(err, context.DeadlineExceeded):
		return Unreachable
	}
	return NotAFault
}

// Refused reports whether Spanner does not permit a request, now or at all.
func Refused(err error) bool { return FaultOf(err).Kind >= Refusal }

func faultOf(err error, code codes.Code, desc string) *Fault {
	switch code {
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
		return faultByText(err, code, desc)
	case codes.OutOfRange, codes.Unimplemented:
		return Wrong
	}
	return NotAFault
}

// faultByText tells apart the faults that share a code.
func faultByText(err error, code codes.Code, desc string) *Fault {
	switch {
	case closedTexts[code] != "" && strings.Contains(desc, closedTexts[code]):
		return NoClient
	case code == codes.Aborted, code == codes.Internal, code == codes.Canceled:
		return Passing
	case strings.Contains(desc, "nested transactions"):
		return Nested
	case transactionIsLost(desc):
		return Passing
	case strings.HasPrefix(desc, "Table not found"):
		return NoTable
	case code != codes.NotFound, strings.HasPrefix(desc, "Column not found"):
		return BadTable
	case rowIsMissing(err):
		return NotAFault
	case goneText.MatchString(desc), goneKind.MatchString(resourceKind(err)):
		return NoDatabase
	case strings.HasSuffix(resourceKind(err), ".Session"), strings.Contains(desc, "Session"):
		return NoSession
	}
	return NotFound
}

// closedTexts are the texts of a client that this process has closed. The client itself creates these errors. Some are
// only returned by calls that were in progress when the client was closed.
var closedTexts = map[codes.Code]string{
	codes.InvalidArgument: "invalid session", codes.FailedPrecondition: "SessionClient is closed", codes.Canceled: "client connection is closing",
}

// lostTransaction matches messages about a lost transaction, from Spanner, its client or the emulator. The name of a
// database, table or column can contain the word "transaction" too. In messages about those, the name follows a colon
// or a word such as "table".
var (
	lostTransaction = regexp.MustCompile(`^(?i)[^:]*\btransaction\b`)
	named           = regexp.MustCompile(`^(?i)[^:]*\b(database|table|column|index|instance)\b`)
)

func transactionIsLost(desc string) bool {
	return lostTransaction.MatchString(desc) && !named.MatchString(desc)
}
