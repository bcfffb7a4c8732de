package spindle

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Token is the fencing token of one term of one lock, in microseconds since 1970: the commit timestamp of the claim
// that began the term, or, in package lock, a time shortly before it. A later term of the same lock always has a larger
// token, under any holder. No term has the zero Token.
type Token int64

// Time returns the token as a time, in UTC. For a Lock's term, it is when the term began by Spanner's clock. A term of
// package lock began later: about a second, and more if its process stood still before it claimed the lock. So what was
// committed after that time may be the previous holder's.
func (t Token) Time() time.Time { return table.Token(t).Time() }

// String returns the token as a decimal number.
func (t Token) String() string { return table.Token(t).String() }
