package elect

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Event is an event in the life of a lock. The public package documents the kinds.
type Event struct {
	Kind      int
	At        time.Time // by the local clock
	Token     table.Token
	Partition string // in a group; "": the event is about the lock
	Err       error
	Deadline  time.Time         // the term's, by the local clock
	Leader    table.Observation // the other holder
}
