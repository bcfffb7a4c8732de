package elect

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Patience decides how long a caller keeps trying while Spanner refuses its requests (see table.Refusal). Callers that
// send requests one after the other can share it. A caller gives up when a step has been refused for a whole lease duration, or for 10 s if that is longer.
type Patience struct {
	Clock Clock
	Lease time.Duration

	began   bool
	refused map[string]refusals // by step
}

// refusals are the first and the last refusal of a step that has not succeeded in between.
type refusals struct{ first, last Instant }

// Passed notes that a step has succeeded.
func (p *Patience) Passed(step string) {
	p.began = true
	delete(p.refused, step)
}

// Ends reports whether the caller should give up because a step has failed with err. It returns true immediately if the
// fault is lasting. It also does so if the caller's first request is refused because a table, a database or a
// permission is missing: in that case, waiting rarely helps.
//
// If a step is rarely tried, two refusals can be far apart, and nothing is known about the time in between. A refusal
// therefore counts only if the next one follows within two lease durations, or within 20 s if that is longer.
func (p *Patience) Ends(step string, err error) bool {
	fault := table.FaultOf(err)
	if fault.Kind == table.Lasting || fault.Kind == table.Refusal && fault.Setup && !p.began {
		return true
	}
	if p.began = true; fault.Kind != table.Refusal {
		return false
	}
	now, limit := p.Clock.Now(), max(p.Lease, 10*time.Second)
	r, before := p.refused[step]
	if !before || now.Ran(r.last) > 2*limit {
		r.first = now
	}
	if p.refused == nil {
		p.refused = map[string]refusals{}
	}
	r.last = now
	p.refused[step] = r
	return now.Ran(r.first) >= limit
}
