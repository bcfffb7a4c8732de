package serve

import "time"

const (
	// A large table is read less often: a read that is not quick may take one part in ten of the time.
	share = 10
	quick = 100 * time.Millisecond

	longestPause = time.Minute
)

// A pace says how often the table is read.
type pace struct {
	every time.Duration
	last  time.Duration // how long the last successful read took
	pause time.Duration // until the next
}

// took takes in how long a read took. One slow read changes nothing: two in a row do.
func (p *pace) took(d time.Duration) {
	slow := min(d, p.last)
	p.last, p.pause = d, p.every
	if slow > quick {
		p.pause = max(p.every, min((share-1)*slow, longestPause))
	}
}

// failed takes in how long a failed read took: the table may be too large for its timeout.
func (p *pace) failed(d time.Duration) { p.pause = max(p.every, min(d, longestPause)) }

// next returns the time from one answer to the next.
func (p *pace) next() time.Duration { return max(p.pause, p.every) + p.last }
