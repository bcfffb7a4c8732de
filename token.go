package spindle

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Token is the fencing token of one term of one lock, in microseconds since 1970. It is the commit timestamp of the
// claim that began the term or, in package lock, a time shortly before that claim. A later term of the same lock always
// has a larger token, no matter which process holds it. No term has the zero Token.
type Token int64

// Time returns the token as a time in UTC. For a term of a Lock, this is when the term began, by Spanner's clock. A
// term of package lock began about a second later, or more if its process was paused before it claimed the lock, so
// data committed after the returned time may still come from the previous holder.
func (t Token) Time() time.Time { return table.Token(t).Time() }

// String returns the token as a decimal number.
func (t Token) String() string { return table.Token(t).String() }
