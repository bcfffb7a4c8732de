package elect

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/table"
)

// A Step is what came of looking at the locks once and claiming what could be claimed.
type Step struct {
	Seen        []LockView    // what was seen, or nil
	Term        *Term         // of the locks that were claimed, or nil
	Pause       time.Duration // until the next step, if there is no term
	Err         error         // why nothing was seen or claimed, unless another was first, and not again and again
	CoolingDown bool          // the candidate leaves the locks to others, since it could not confirm
}

// Choose says which of the locks that were seen are to be claimed: none if it has to wait, and then for how
// long. Its error ends the competition.
type Choose func(seen []LockView) (claim []LockView, wait time.Duration, err error)

// All chooses every lock, once all of them are free at one instant.
func All(seen []LockView) ([]LockView, time.Duration, error) {
	var wait time.Duration
	for _, s := range seen {
		wait = max(wait, s.FreeIn)
	}
	if wait > 0 {
		return nil, wait, nil
	}
	return seen, 0, nil
}

// Try takes one step. MaxPause is the longest pause between two looks at a lock that another holds: if its
// lease can end before that, the next look is then, or a little later, at random. Zero is a third of the
// shorter lease, the holder's or the candidate's. The end of ctx ends the look; of a claim, see Claim.
func (c *Candidate) Try(ctx context.Context, choose Choose, maxPause time.Duration) Step {
	seen, err := c.Look(ctx)
	if maxPause == 0 {
		maxPause = c.shortest(seen) / 3
	}
	c.retry.Max = maxPause
	if err != nil {
		return Step{Err: err, Pause: c.retry.Pause(c.Clock)}
	}
	if slices.ContainsFunc(seen, func(s LockView) bool { return s.Confirmed() && s.FreeIn > 0 }) {
		c.contests = 0
	}
	if c.disown(ctx, seen) {
		return Step{Seen: seen, Pause: min(Jitter(c.Clock, maxPause), c.coolDownLeft()), CoolingDown: true}
	}
	claim, wait, err := choose(seen)
	if err != nil {
		return Step{Seen: seen, Err: err, Pause: c.retry.Pause(c.Clock)}
	}
	if claim == nil {
		c.retry.Reset()
		pause := min(Jitter(c.Clock, maxPause), wait+c.spread(seen), c.watch(seen))
		return Step{Seen: seen, Pause: c.signal(ctx, seen, pause), CoolingDown: c.coolDownLeft() > 0}
	}
	t, err := c.Claim(ctx, claim...)
	switch {
	case err == nil:
		c.retry.Reset()
		c.contests = 0
		return Step{Seen: seen, Term: t}
	case First(err):
		c.contests++
		step := Step{Seen: seen, Pause: min(maxPause, c.spread(seen))} // who was first will be seen by the next look
		if c.contests >= lostInARow {
			step.Err = fmt.Errorf("%d claims in a row came to nothing, and nobody holds the lock: %w", c.contests, err)
		}
		return step
	}
	return Step{Seen: seen, Err: err, Pause: c.retry.Pause(c.Clock)}
}

// lostInARow is how many claims another may be first with, before that is a problem: with a thousand candidates, one of
// them holds the lock after a few.
const lostInARow = 10

// longestSpread is enough for thousands of candidates, however long the lease is.
const longestSpread = time.Second

// spread is a short pause at random, since many candidates know the instant at which a lease ends: up to a
// fiftieth of the last holder's lease, or a second. It doubles with each claim that was lost, until somebody holds the
// lock: so many that this is too short for them do not go on to collide.
func (c *Candidate) spread(seen []LockView) time.Duration {
	lease := c.LeaseRecord.Lease
	for i, s := range seen {
		if last := c.history(s.Name).paceOr(lease); i == 0 || last < lease {
			lease = last
		}
	}
	return c.Clock.Random(min(min(lease/50, longestSpread)<<min(c.contests, 8), lease/4, longestPause) + 1)
}

// shortest is the shortest lease, of the candidate and the holders.
func (c *Candidate) shortest(seen []LockView) time.Duration {
	lease := c.LeaseRecord.Lease
	for _, s := range seen {
		if s.LeaseRecord != nil {
			lease = min(lease, s.LeaseRecord.Lease)
		}
	}
	return lease
}

// Lasting reports whether an error will not go away by itself: something is missing, not allowed or wrong,
// and it is not just a transaction that is lost.
func Lasting(err error) bool {
	if errors.Is(err, table.ErrGroup) || errors.Is(err, table.ErrGarbled) || errors.Is(err, table.ErrUnordered) {
		return true
	}
	switch spanner.ErrCode(err) {
	case codes.PermissionDenied, codes.OutOfRange, codes.Unimplemented:
		return true
	case codes.Unauthenticated: // unless the credentials could not be fetched just now
		return !strings.HasPrefix(spanner.ErrDesc(err), "transport:")
	case codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument:
		return !transactionIsLost(spanner.ErrDesc(err)) || Nested(err)
	}
	return false
}

// lostTransaction matches what Spanner, its client and the emulator say of a transaction that is gone. The names of
// databases, tables and columns, which may have the word in them too, come after a colon, or after what they are.
var (
	lostTransaction = regexp.MustCompile(`^(?i)[^:]*\btransaction\b`)
	named           = regexp.MustCompile(`^(?i)[^:]*\b(database|table|column|index|instance)\b`)
)

func transactionIsLost(desc string) bool {
	return lostTransaction.MatchString(desc) && !named.MatchString(desc)
}

// Nested reports whether err says that the ctx is that of a transaction's function.
func Nested(err error) bool { return strings.Contains(spanner.ErrDesc(err), "nested transactions") }
