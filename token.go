package spindle

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Token is the fencing token of one term of one lock, in microseconds since 1970. It is the commit timestamp of the
// term's claim or, in package lock, possibly an earlier time (see Time). A later term of the same lock always has a
// larger token, no matter which process holds the lock. No term has the zero Token.
type Token int64

// Time returns the token as a time in UTC. For a term of a Lock, this is when the lock was claimed, by Spanner's clock.
//
// For a term of package lock, the returned time can be earlier than the claim. The difference is usually about a second,
// or more if the process was paused before it claimed the lock. Data that was committed after the returned time may
// therefore come from the previous holder.
func (t Token) Time() time.Time { return table.Token(t).Time() }

// String returns the token as a decimal number.
func (t Token) String() string { return table.Token(t).String() }
