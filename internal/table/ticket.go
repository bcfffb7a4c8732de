package table

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A waiter puts a *ticket* into the table: a row of its own, "!wait/QUEUE/TIME/NONCE". Tickets decide who tries to
// claim a lock, and never who may: no guard depends on one. So a lost, late, repeated or made-up ticket costs time
// only.
//
// Tickets have a region of their own. Among a lock's own keys, the first look at "job" would read those of "job_1",
// too.

const (
	ticketPrefix = "!wait/"
	hashMark     = "#" // begins a hashed queue name, and no escaped name
)

// MaxGrace is the longest time that those behind a waiter leave it, however long its ticket asks for.
const MaxGrace = 5 * time.Second

// defaultGrace is the grace of a ticket that does not say it, or can't be read.
const defaultGrace = 200 * time.Millisecond

// Ticket says who waits for a lock, and since when. A set's tickets have one time and one nonce in the queues of all
// its locks: so all processes see one order.
type Ticket struct {
	Queue string // the lock that it waits for, or the slots of a semaphore
	Time  Token  // since when, by Spanner's clock
	Nonce string // of the process

	ID    string        // who waits
	Grace time.Duration // how long it may take to claim a lock that is free, once it is first
	Key   string        // for a Once: what it is to do
	Slots int           // for a semaphore: its size
	Set   bool          // it waits for other locks, too
	Ready bool          // for a set: it is first in all its queues
	Beat  time.Time     // the commit that wrote it last
}

type ticketJSON struct {
	V     int    `json:"v,omitempty"` // its format
	ID    string `json:"id,omitempty"`
	Grace string `json:"grace,omitempty"`
	Key   string `json:"key,omitempty"`
	Slots int    `json:"slots,omitempty"`
	Set   bool   `json:"set,omitempty"`
	Ready bool   `json:"ready,omitempty"`
}

// Row returns the key of the ticket.
func (t Ticket) Row() string {
	return fmt.Sprintf("%s%0*d/%s", queuePrefix(t.Queue), tokenDigits, max(t.Time, 0), t.Nonce)
}

// Same reports whether two are one ticket, even if it was rewritten.
func (t Ticket) Same(other Ticket) bool { return t.Time == other.Time && t.Nonce == other.Nonce }

// Compare orders the tickets of one queue as their keys are ordered: first come, first served.
func (t Ticket) Compare(other Ticket) int {
	return cmp.Or(cmp.Compare(t.Time, other.Time), cmp.Compare(t.Nonce, other.Nonce))
}

// Put writes the ticket, whether it is there or not.
func (t Ticket) Put() Write {
	said, _ := json.Marshal(ticketJSON{format, t.ID, t.Grace.String(), t.Key, t.Slots, t.Set, t.Ready}) // strings and numbers: this can't fail
	return Write{Kind: Put, Name: t.Row(), Set: []Cell{{ColHeartbeat, Now}, {ColToken, nil}, {ColWriter, string(said)}}}
}

// Delete deletes the ticket.
func (t Ticket) Delete() Write { return Write{Kind: Delete, Name: t.Row()} }

// placeLength is the longest text after the queue in a key: the time and a nonce of 63 bits.
const placeLength = len("/") + tokenDigits + len("/") + 13

// queuePrefix returns the prefix of the keys of all tickets of a queue. A name is escaped, so that no queue's prefix is
// the beginning of another's, and hashed if the key would be too long.
func queuePrefix(queue string) string {
	escaped := url.PathEscape(queue)
	if len(ticketPrefix)+len(escaped)+placeLength > MaxKey {
		sum := sha256.Sum256([]byte(queue))
		escaped = hashMark + hex.EncodeToString(sum[:])
	}
	return ticketPrefix + escaped + "/"
}

// Waiting returns the keys of the tickets of a queue, up to the last one's, or all.
func Waiting(queue string, last string) Range {
	prefix := queuePrefix(queue)
	return Range{From: prefix, To: cmp.Or(last, prefix+"\U0010FFFF")}
}

// IsTicket reports whether a row is in the region of tickets.
func IsTicket(key string) bool { return strings.HasPrefix(key, ticketPrefix) }

// Tickets returns the tickets of a queue among rows, in their order. It skips rows whose keys are no tickets'. A ticket
// that can't be read, as after a change by hand, has the defaults: it is passed soon.
func Tickets(queue string, rows []Row) (tickets []Ticket) {
	prefix := queuePrefix(queue)
	for _, row := range rows {
		if place, ok := strings.CutPrefix(row.Name, prefix); ok {
			if t, ok := ticket(queue, place, row); ok {
				tickets = append(tickets, t)
			}
		}
	}
	slices.SortFunc(tickets, Ticket.Compare)
	return tickets
}

func ticket(queue, place string, row Row) (Ticket, bool) {
	digits, nonce, ok := strings.Cut(place, "/")
	if !ok || nonce == "" || len(digits) != tokenDigits || strings.Trim(digits, "0123456789") != "" {
		return Ticket{}, false
	}
	n, _ := strconv.ParseInt(digits, 10, 64)
	var j ticketJSON
	if json.Unmarshal([]byte(row.Writer), &j) != nil || j.V > format {
		j = ticketJSON{}
	}
	grace, err := time.ParseDuration(j.Grace)
	if err != nil {
		grace = defaultGrace
	}
	return Ticket{Queue: queue, Time: Token(n), Nonce: nonce, ID: j.ID, Grace: min(max(grace, time.Millisecond), MaxGrace),
		Key: j.Key, Slots: max(j.Slots, 0), Set: j.Set, Ready: j.Set && j.Ready, Beat: row.Heartbeat}, true
}

// queueOf returns the queue that a ticket belongs to, unless its name is too long to be in the key.
func queueOf(key string) (queue string, ok bool) {
	rest, ok := strings.CutPrefix(key, ticketPrefix)
	if !ok {
		return "", false
	}
	escaped, _, ok := strings.Cut(rest, "/")
	if strings.HasPrefix(escaped, hashMark) {
		return "", false
	}
	queue, err := url.PathUnescape(escaped)
	return queue, ok && err == nil
}

// MostTickets is how many tickets of a queue are read.
const MostTickets = 32

// ReadQueues reads keys with the first tickets of queues, whose keys are the ranges, or a few more. It takes one
// request unless there are many tickets: then it reads the queues separately, because they need not be in the snapshot.
func ReadQueues(ctx context.Context, s Store, step string, bound Bound, keys Keys, queues ...Range) ([]Row, time.Time, error) {
	all := Keys{Names: keys.Names, Ranges: slices.Concat(keys.Ranges, queues), Limit: 100 + 8*len(keys.Names) + 2*MostTickets*len(queues)}
	rows, at, err := s.Read(ctx, step, bound, all)
	if err != nil || len(rows) < all.Limit {
		return rows, at, err
	}
	first := rows
	if rows, at, err = s.Read(ctx, step, bound, keys); err != nil {
		return nil, at, err
	}
	end := first[len(first)-1].Name
	if slices.ContainsFunc(queues, func(q Range) bool { return q.To >= end }) {
		tickets, err := readTickets(ctx, s, bound, queues)
		return append(rows, tickets...), at, err
	}
	for _, row := range first { // rows come in the order of their keys: all tickets were read, and other rows were too many
		if IsTicket(row.Name) {
			rows = append(rows, row)
		}
	}
	return rows, at, nil
}

// readTickets reads the first tickets of each queue. It finds the few long queues by halves: to read each queue of a
// large set separately would take longer than a look may.
func readTickets(ctx context.Context, s Store, bound Bound, queues []Range) ([]Row, error) {
	if len(queues) == 0 {
		return nil, nil
	}
	limit := 2 * MostTickets * len(queues)
	if len(queues) == 1 {
		limit = MostTickets
	}
	rows, _, err := s.Read(ctx, "queue", bound, Keys{Ranges: queues, Limit: limit})
	if err != nil || len(queues) == 1 || len(rows) < limit {
		return rows, err
	}
	half := len(queues) / 2
	first, err := readTickets(ctx, s, bound, queues[:half])
	if err != nil {
		return nil, err
	}
	second, err := readTickets(ctx, s, bound, queues[half:])
	return append(first, second...), err
}

// Queue writes and deletes tickets.
func (t Table) Queue(ctx context.Context, writes ...Write) error {
	if len(writes) == 0 {
		return nil
	}
	return t.Store.Commit(ctx, "queue", writes)
}
