package serve

import "time"

const (
	// A large table is read less often. If reads take longer than quick, they take up at most one tenth of the time.
	share = 10
	quick = 100 * time.Millisecond

	longestPause = time.Minute
)

// A pace determines how often the table is read.
type pace struct {
	every time.Duration
	last  time.Duration // how long the last successful read took
	pause time.Duration // until the next
}

// took records the duration of a successful read. A single slow read has no effect, but a second one in a row lengthens
// the pause.
func (p *pace) took(d time.Duration) {
	slow := min(d, p.last)
	p.last, p.pause = d, p.every
	if slow > quick {
		p.pause = max(p.every, min((share-1)*slow, longestPause))
	}
}

// failed records the duration of a failed read. The pause becomes at least as long, up to longestPause, because the
// table may be too large to be read within the timeout.
func (p *pace) failed(d time.Duration) { p.pause = max(p.every, min(d, longestPause)) }

// next returns the expected time between the results of two reads.
func (p *pace) next() time.Duration { return max(p.pause, p.every) + p.last }
