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
	"strings"
	"time"
)

// A *ticket* is a row with the key "!wait/QUEUE/TIME/NONCE", which a waiter inserts into the table. Tickets determine
// which process tries to claim a lock next. They do not determine whether a claim succeeds, because no claim checks
// them. A lost, late, repeated or forged ticket therefore costs only time.
//
// All tickets have a common key prefix, so their key range contains no other rows. If the keys of tickets began with
// the lock's name, the first poll of "job" would also read the tickets for "job_1".

const (
	TicketPrefix = "!wait/"
	hashMark     = "#" // the prefix of hashed queue names, which no escaped name has
)

// MaxGrace is the maximum grace of a ticket. If a ticket asks for more, it gets MaxGrace.
const MaxGrace = 5 * time.Second

// defaultGrace is the grace of a ticket that does not specify one or can't be read.
const defaultGrace = 200 * time.Millisecond

// lastsOfSet is the lifetime of a set's tickets, including tickets of older versions, which do not write Lasts.
const lastsOfSet = time.Minute

// Slots is the end of the name of a semaphore's queue. The names of the semaphore's slots have four more digits.
const Slots = "/slot/"

// QueueOfSlot returns the queue of the semaphore that has a slot with that name, or "" if no slot can have the name.
func QueueOfSlot(name string) string {
	i := max(len(name)-4, 0)
	if !strings.HasSuffix(name[:i], Slots) || strings.Trim(name[i:], "0123456789") != "" {
		return ""
	}
	return name[:i]
}

// Ticket identifies a waiter in a queue and records when it began to wait. A waiter for a set of locks waits in several
// queues, one for each lock. Its tickets have the same time and nonce in all these queues, so that every process sees
// the same order.
type Ticket struct {
	Queue string `json:"-"` // the lock's name, or the common prefix of a semaphore's slots
	Time  Token  `json:"-"` // its turn, see TurnFor
	Nonce string `json:"-"` // identifies the process

	ID        string        `json:"id,omitempty"`     // the waiter's id
	Grace     time.Duration `json:"-"`                // how long the waiter may take to claim a free lock once it is first
	RoundTrip time.Duration `json:"-"`                // how long a poll of the waiter takes; zero: unknown
	Rank      int           `json:"rank,omitempty"`   // how far the waiter's priority is below the highest
	Key       string        `json:"key,omitempty"`    // for a Once, the key to complete
	Slots     int           `json:"slots,omitempty"`  // for a semaphore, its size
	Set       bool          `json:"set,omitempty"`    // the waiter also waits for other locks
	Ready     bool          `json:"ready,omitempty"`  // for a set, whether it is first in all its queues
	Notify    string        `json:"notify,omitempty"` // how to notify the waiter: an address and a secret, which must not be shown
	Beat      time.Time     `json:"-"`                // the time of the commit that last wrote it
	Lasts     time.Duration `json:"-"`                // how long it counts after Beat; zero means until it is deleted
}

type ticketJSON struct {
	V     int    `json:"v,omitempty"` // the format version
	Grace string `json:"grace,omitempty"`
	Lasts string `json:"lasts,omitempty"`
	Trip  string `json:"trip,omitempty"`
	Ticket
}

// LastsFor returns how long a ticket counts after the commit that last wrote it, for a waiter with the given lease. The
// waiter renews the ticket after a third of that time, so it keeps its place even if one renewal fails. Unless it waits
// for a set of locks, it also keeps its place if it is suspended for one lease.
func LastsFor(lease time.Duration, set bool) time.Duration {
	if set {
		return lastsOfSet
	}
	return max(3*lease, 30*time.Second)
}

// Expired reports whether the ticket no longer counts at the given time by Spanner's clock. If the waiter renews the
// ticket late, the ticket counts again, at its old place.
func (t Ticket) Expired(at time.Time) bool { return t.Lasts > 0 && at.Sub(t.Beat) > t.Lasts }

// TurnFor returns a ticket's Time for a wait that begins at the given time. Waiters of lower priority come after all
// waiters of higher priority, as if they had arrived later. As a result, every version of this program puts the tickets
// in the right order by sorting their keys.
func TurnFor(began Token, rank int) Token { return began + Token(rank)*behindAll }

// behindAll is how much later a waiter appears to have arrived than a waiter of the next higher priority: about 20
// years, which is longer than any wait. Until the year 2100, the time in a ticket's key still fits into 16 digits.
const behindAll = Token(20 * 365 * 24 * time.Hour / time.Microsecond)

// Since returns when the wait began, by Spanner's clock.
func (t Ticket) Since() time.Time { return (t.Time - TurnFor(0, t.Rank)).Time() }

func (t Ticket) Row() string {
	return fmt.Sprintf("%s%0*d/%s", QueuePrefix(t.Queue), tokenDigits, max(t.Time, 0), t.Nonce)
}

// Same reports whether t and other are the same ticket, even if it was rewritten in the meantime.
func (t Ticket) Same(other Ticket) bool { return t.Time == other.Time && t.Nonce == other.Nonce }

// Compare orders the tickets of one queue by their keys, which means first come, first served within one priority.
func (t Ticket) Compare(other Ticket) int {
	return cmp.Or(cmp.Compare(t.Time, other.Time), cmp.Compare(t.Nonce, other.Nonce))
}

// Put returns a write that inserts the ticket, or replaces it if it exists.
func (t Ticket) Put() Write { return t.write(Put) }

// Renew returns a write that replaces the ticket. Its commit fails with ErrMissing if the ticket has been deleted, so a
// late renewal does not bring the ticket back.
func (t Ticket) Renew() Write { return t.write(Update) }

func (t Ticket) write(kind Kind) Write {
	j := ticketJSON{V: format, Grace: t.Grace.String(), Lasts: orNothing(t.Lasts), Trip: orNothing(t.RoundTrip), Ticket: t}
	said, _ := json.Marshal(j) // can't fail
	return Write{Kind: kind, Name: t.Row(), Set: []Cell{{ColHeartbeat, Now}, {ColToken, nil}, {ColWriter, string(said)}}}
}

func (t Ticket) Delete() Write { return Write{Kind: Delete, Name: t.Row()} }

// placeLength is the maximum length of what follows the queue in a key: the time, and a nonce of 63 bits in base 36.
const placeLength = len("/") + tokenDigits + len("/") + 13

// QueuePrefix returns the prefix of the keys of all tickets in a queue. It escapes the queue's name, so that the prefix
// of one queue is never the beginning of another queue's prefix. If a key would be too long, QueuePrefix uses a hash of
// the name instead.
func QueuePrefix(queue string) string {
	escaped := url.PathEscape(queue)
	if len(TicketPrefix)+len(escaped)+placeLength > MaxKey {
		sum := sha256.Sum256([]byte(queue))
		escaped = hashMark + hex.EncodeToString(sum[:])
	}
	return TicketPrefix + escaped + "/"
}

// Waiting returns the key range of a queue's tickets. If last is not empty, the range ends at that key.
func Waiting(queue string, last string) Range {
	prefix := QueuePrefix(queue)
	return Range{From: prefix, To: cmp.Or(last, prefix+"\U0010FFFF")}
}

func IsTicket(key string) bool { return strings.HasPrefix(key, TicketPrefix) }

// Tickets returns the tickets of a queue, in queue order.
func Tickets(queue string, rows []Row) (tickets []Ticket) {
	for _, row := range rows {
		if t, prefix, ok := TicketOf(row); ok && prefix == QueuePrefix(queue) {
			t.Queue = queue
			tickets = append(tickets, t)
		}
	}
	slices.SortFunc(tickets, Ticket.Compare)
	return tickets
}

// TicketOf decodes a ticket, and returns the key prefix of its queue. The field Queue is empty if the key contains only
// a hash of the queue's name. If the content can't be read, TicketOf uses default values, with which other waiters soon
// overtake this one. If the key is not valid, TicketOf reports false, and sets no field from the key.
func TicketOf(row Row) (t Ticket, prefix string, ok bool) {
	t = content(row)
	parts := strings.SplitN(strings.TrimPrefix(row.Name, TicketPrefix), "/", 3)
	if !IsTicket(row.Name) || len(parts) < 3 || parts[2] == "" || len(parts[1]) != tokenDigits || strings.Trim(parts[1], "0123456789") != "" {
		return t, "", false
	}
	t.Time, t.Nonce = tokenOf(parts[1]), parts[2]
	if queue, err := url.PathUnescape(parts[0]); err == nil && !strings.HasPrefix(parts[0], hashMark) {
		t.Queue = queue
	}
	return t, TicketPrefix + parts[0] + "/", true
}

// content returns a ticket without the fields that are in its key.
func content(row Row) Ticket {
	var j ticketJSON
	if json.Unmarshal([]byte(row.Writer), &j) != nil || j.V > format {
		j = ticketJSON{}
	}
	grace, err := time.ParseDuration(j.Grace)
	if err != nil {
		grace = defaultGrace
	}
	lasts, err := time.ParseDuration(j.Lasts)
	if err != nil && j.Set {
		lasts = lastsOfSet
	}
	trip, _ := time.ParseDuration(j.Trip)
	t := j.Ticket
	t.Grace, t.RoundTrip = min(max(grace, time.Millisecond), MaxGrace), min(max(trip, 0), MaxGrace)
	t.Beat, t.Lasts = row.Heartbeat, min(max(lasts, 0), 3*MaxLease)
	t.Slots, t.Rank, t.Ready = max(t.Slots, 0), min(max(t.Rank, 0), MaxRank), t.Set && t.Ready
	return t
}

// MostTickets is how many tickets at the front of a queue a waiter takes into account. A poll may read more of them.
const MostTickets = 32

// readQueues reads the keys, and at least the first MostTickets tickets of each queue. It usually makes one request. If
// the reply reaches the limit of rows, readQueues reads the keys again, and then the tickets in further requests, which
// may read later snapshots.
func readQueues(ctx context.Context, s Store, step string, bound Bound, keys Keys, queues ...Range) ([]Row, time.Time, error) {
	all := Keys{Names: keys.Names, Ranges: slices.Concat(keys.Ranges, queues), Limit: 100 + 8*len(keys.Names) + 2*MostTickets*len(queues)}
	rows, at, err := s.Read(ctx, step, bound, all)
	if err != nil || len(rows) < all.Limit {
		return rows, at, err
	}
	if rows, at, err = s.Read(ctx, step, bound, keys); err != nil {
		return nil, at, err
	}
	tickets, err := readTickets(ctx, s, bound, queues)
	return append(rows, tickets...), at, err
}

// readTickets reads the first tickets of each queue. It bisects the queues to find the few that are long. If it read
// each queue of a large set separately, the poll could time out.
func readTickets(ctx context.Context, s Store, bound Bound, queues []Range) ([]Row, error) {
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

func (t Table) Queue(ctx context.Context, writes ...Write) error {
	if len(writes) == 0 {
		return nil
	}
	return t.Store.Commit(ctx, "queue", writes)
}
