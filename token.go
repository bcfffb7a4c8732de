package spindle

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Token is the fencing token of one term of one lock: the commit timestamp of the claim that began
// it, in microseconds since 1970. A later term of the same lock always has a larger token, whoever
// holds it. No term has the zero Token.
type Token int64

// Time returns the commit timestamp of the claim, in UTC: when the term began by Spanner's clock.
func (t Token) Time() time.Time { return table.Token(t).Time() }

// String returns the token as a decimal number.
func (t Token) String() string { return table.Token(t).String() }
