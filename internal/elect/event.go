package elect

import (
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Event is something that happened to a lock. The public package describes the kinds.
type Event struct {
	Kind      int
	At        time.Time // by the local clock
	Token     table.Token
	Partition string // for a group; "": the event is about the lock
	Err       error
	Deadline  time.Time         // of a term, by the local clock
	Leader    table.Observation // another holder
}
