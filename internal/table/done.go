package table

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// What was done last under a lock is a row of its own beside the lock's: "nightly!done". Its heartbeat is when that
// was, its token the one under which it was done, its writer what and by whom. Only the lock's holder writes it, so
// what is done last only grows. It never expires, and Prune leaves it alone.

const doneSuffix = "!done"

// MaxDone is the longest key of what was done, in bytes.
const MaxDone = 1 << 10

var (
	// ErrGarbled says that a row does not say what was done.
	ErrGarbled = errors.New("what was done last is not known")

	// ErrUnordered says that a key is neither before nor after what was done last.
	ErrUnordered = errors.New("one is a tick of a schedule, and the other is not")

	// ErrDone says that a key is done.
	ErrDone = errors.New("it is done already")

	// ErrPassed says that a larger key is done: nothing is known of this one, and it must not run any more.
	ErrPassed = errors.New("a larger key is done")
)

// Due is what is to be done: a key, and, for the tick of a schedule, the schedule's period.
type Due struct {
	Key    string
	Period time.Duration // zero: no known schedule
}

// Done is what was done last under a lock.
type Done struct {
	Due   // no key: nothing was done
	By    string
	Token Token
	At    time.Time // of the commit that says so
}

type doneJSON struct {
	V      int    `json:"v,omitempty"` // its format
	Key    string `json:"done"`
	Period string `json:"period,omitempty"`
	By     string `json:"by,omitempty"`
}

// Forbids returns why a key must not run, or nil: ErrDone, ErrPassed, or, for a tick among other keys and for another
// key among ticks, ErrUnordered: a key such as "again" would be after every tick, and no tick would run any more.
//
// A tick that was done may be ahead of the time by half its period. If the schedule has another period now, its ticks
// would wait for that time: so only ticks that were due when it was recorded are passed.
func (d Done) Forbids(due Due) error {
	switch {
	case d.Key == "":
		return nil
	case !Comparable(d.Key, due.Key):
		return fmt.Errorf("key %q can't be compared with what was done last, %q: %w: use another name for it", due.Key, d.Key, ErrUnordered)
	case due.Key == d.Key:
		return ErrDone
	case due.Key > d.Key, d.OtherPeriod(due) && d.At.Before(timeOf(due.Key)):
		return nil
	}
	return fmt.Errorf("key %q is not run any more, and it is not known whether it ran: %w: %q", due.Key, ErrPassed, d.Key)
}

// OtherPeriod reports whether what was done last was on a schedule with another period.
func (d Done) OtherPeriod(due Due) bool {
	return d.Period != 0 && due.Period != 0 && d.Period != due.Period
}

// CheckDone returns why a key can't be recorded as done, or nil.
func CheckDone(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("key is empty: give it 1 to %d bytes", MaxDone)
	case len(key) > MaxDone:
		return fmt.Errorf("key %.32q... has %d bytes: at most %d are allowed", key, len(key), MaxDone)
	case !utf8.ValidString(key):
		return fmt.Errorf("key %q is not valid UTF-8", key)
	case strings.ContainsFunc(key, Unprintable):
		return fmt.Errorf("key %q: control characters, line separators and what turns the direction of text are not allowed", key)
	}
	return nil
}

// Done reads what was done last under a lock, and the snapshot's timestamp: see Bound.
func (t Table) Done(ctx context.Context, bound Bound, name string) (Done, time.Time, error) {
	rows, at, err := t.Store.Read(ctx, "done", bound, Keys{Names: []string{DoneRow(name)}})
	if err != nil {
		return Done{}, at, err
	}
	d, err := DoneIn(rows)
	return d, at, err
}

// DoneRow returns the key of the row that says what was done last under a lock.
func DoneRow(name string) string { return name + doneSuffix }

// DoneIn returns what the first of the rows says, or nothing if there is none.
func DoneIn(rows []Row) (Done, error) {
	if len(rows) == 0 {
		return Done{}, nil
	}
	return decodeDone(rows[0])
}

// decodeDone refuses a row that it can't read: if it counted as nothing, the work would be done again.
func decodeDone(row Row) (Done, error) {
	j := doneJSON{Period: "0s"} // rows may say none
	err := json.Unmarshal([]byte(row.Writer), &j)
	if newer := known(row.Name, j.V); newer != nil {
		return Done{}, fmt.Errorf("%w: %w", ErrGarbled, newer)
	}
	period, unreadable := time.ParseDuration(j.Period)
	if err != nil || unreadable != nil || j.Key == "" {
		return Done{}, fmt.Errorf("%w: row %q says %q where JSON such as {\"done\":\"42\"} was expected: correct it, or delete the row if nothing was done", ErrGarbled, row.Name, row.Writer)
	}
	return Done{Due: Due{j.Key, period}, By: j.By, Token: TokenAt(row.Token), At: row.Heartbeat}, nil
}

// Record returns the writes that record due as done, by id. They fail their commit unless name is held under token.
func Record(name string, token Token, due Due, id string) []Write {
	return []Write{requireLease(name, token), record(name, token, due, id)}
}

func record(name string, token Token, due Due, id string) Write {
	j := doneJSON{V: format, Key: due.Key, By: id}
	if due.Period != 0 {
		j.Period = due.Period.String()
	}
	said, _ := json.Marshal(j) // strings: this can't fail
	return Write{Kind: Put, Name: name + doneSuffix, Set: []Cell{{ColHeartbeat, Now}, {ColToken, token.Time()}, {ColWriter, string(said)}}}
}

// Finish is Release that also records due as done, by id. It fails with ErrSuperseded if the token is not valid any
// more: nothing is recorded then, unless an earlier attempt recorded it.
func (t Table) Finish(ctx context.Context, token Token, name string, due Due, id string) error {
	writes := append(release(LeaseRef{name, token}), record(name, token, due, id))
	return t.superseded(ctx, token, []string{name}, t.Store.Commit(ctx, "finish", writes))
}
