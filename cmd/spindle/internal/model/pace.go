package model

import "time"

// quick is the duration of the slowest read that does not lengthen the pause.
const quick = 100 * time.Millisecond

// A Pace determines how often a table is read. A large table is read less often.
type Pace struct {
	Every   time.Duration // the shortest pause
	Longest time.Duration // the longest pause
	Share   int           // slow reads take up at most 1/Share of the time, unless Longest is too short for that

	Pause time.Duration // until the next read
	last  time.Duration // how long the last successful read took
}

// Took records the duration of a successful read. It lengthens the pause only if two reads in a row are slow, because a
// single read that hangs does not mean that the table is large.
func (p *Pace) Took(d time.Duration) {
	slow := min(d, p.last)
	p.last, p.Pause = d, p.Every
	if slow > quick {
		p.Pause = max(p.Every, min(time.Duration(p.Share-1)*slow, p.Longest))
	}
}

// Failed sets the pause after a failed read, which took d. Because the table may be too large to be read within the
// timeout, the pause is as long as the read took, but at least Every and at most Longest.
func (p *Pace) Failed(d time.Duration) { p.Pause = max(p.Every, min(d, p.Longest)) }

// Next returns the expected time between the results of two reads.
func (p *Pace) Next() time.Duration { return max(p.Pause, p.Every) + p.last }
