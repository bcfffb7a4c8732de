package serve

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// In frames, times are milliseconds since 1970 by Spanner's clock, and durations are in milliseconds. Only
// model.LockJSON uses other units.

// A snapshotFrame has all locks that pages show. A page first gets one, and gets another if it falls too far behind.
type snapshotFrame struct {
	At       int64      `json:"at"`
	Next     int64      `json:"next"` // the expected time until the next read
	Database string     `json:"database"`
	Table    string     `json:"table"`
	Prefix   string     `json:"prefix,omitempty"`
	Released bool       `json:"released,omitempty"` // released locks are included
	Locks    []lockWire `json:"locks"`
	Away     *awayFrame `json:"away,omitempty"`
}

// A lookFrame has the changes that one read of the table has shown.
type lookFrame struct {
	At        int64      `json:"at"`
	Next      int64      `json:"next"`
	Beats     []int64    `json:"beats,omitempty"` // pairs: an id, and the age of the last heartbeat
	Locks     []lockWire `json:"locks,omitempty"`
	Forgotten []int      `json:"forgotten,omitempty"`
}

// A tickFrame gives the time since the last successful read of the table. It follows each snapshot, because the same
// snapshot is sent to all pages until the next read, and therefore can't contain this time. If there is nothing else to
// send, a tickFrame tells a page that the server is still running.
type tickFrame struct {
	Old int64 `json:"old"`
}

// An awayFrame says that the table can't be read.
type awayFrame struct {
	For   int64  `json:"for"` // since the last successful read or, if there was none, since the server was created
	Error string `json:"error"`
}

// A lockWire is a lock in a frame. It has the fields of model.LockJSON, and others that only the page shows.
type lockWire struct {
	ID int `json:"id"`
	model.LockJSON
	Kind      string `json:"kind,omitempty"`
	Expected  bool   `json:"expected,omitempty"`
	Successor string `json:"successor,omitempty"`
	historyWire
}

// historyWire has the history of a lock. Unless All is true, Terms has only the terms that have changed. They replace
// the page's terms with the same keys.
type historyWire struct {
	Known      int64      `json:"known"`
	Changes    int        `json:"changes,omitempty"`
	Jeopardies int        `json:"jeopardies,omitempty"`
	Terms      []termWire `json:"terms,omitempty"`
	All        bool       `json:"all,omitempty"` // Terms has all of the lock's terms
}

type termWire struct {
	Key    string    `json:"key"` // distinguishes the term from the lock's other terms: its token or, if that is unknown, its end
	Holder string    `json:"holder,omitempty"`
	From   int64     `json:"from"`
	To     int64     `json:"to,omitempty"`
	End    model.End `json:"end,omitempty"`
	Seen   int64     `json:"seen"`
	Count  int       `json:"count,omitempty"` // the number of terms that were merged, if more than one
	Held   int64     `json:"held,omitempty"`
}

// millis returns milliseconds since 1970, or 0 for the zero time. No time that Spanner can store causes an overflow.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func (k *lock) wire(tail int) lockWire {
	w := lockWire{ID: k.id, LockJSON: model.JSONOf(k.Listing), Kind: string(k.kind), Expected: k.expected,
		historyWire: historyWire{Known: millis(k.known), Changes: k.changes, Jeopardies: k.jeopardies, All: tail == len(k.terms)}}
	w.Holder = k.holder()
	if id, named := k.Successor(); named {
		w.Successor = id
	}
	for _, t := range k.terms[len(k.terms)-tail:] {
		w.Terms = append(w.Terms, t.wire())
	}
	return w
}

// waitingSince returns when the waiter that came first began to wait. This need not be the first in the queue, because
// waiters have priorities.
func waitingSince(l operator.Listing) (first time.Time) {
	for _, w := range l.Waiters {
		if since := w.Since(); first.IsZero() || since.Before(first) {
			first = since
		}
	}
	return first
}

func (t term) wire() termWire {
	w := termWire{Key: fmt.Sprint(t.token), Holder: t.holder, From: millis(t.from), To: millis(t.to), End: t.end, Seen: millis(t.seen)}
	if t.token == 0 {
		w.Key = fmt.Sprint("at ", table.TokenAt(t.to))
	}
	if t.count > 1 {
		w.Count, w.Held = t.count, t.held.Milliseconds()
	}
	return w
}

func lookOf(at time.Time, next time.Duration, touched []touch, forgotten []int) lookFrame {
	f := lookFrame{At: millis(at), Next: next.Milliseconds(), Forgotten: forgotten}
	for _, t := range touched {
		if t.whole {
			f.Locks = append(f.Locks, t.wire(t.tail))
		} else {
			f.Beats = append(f.Beats, int64(t.id), at.Sub(t.Heartbeat).Milliseconds())
		}
	}
	return f
}

// frame encodes a server-sent event. JSON without indentation has no line breaks, so the event has one line of data.
func frame(event string, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers: can't fail
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, data)
}
