package table

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A lock can have a row such as "nightly!done", which records the last completed key. The row's token is the token of
// the holder that did the work, and its heartbeat is the time of the commit. The writer column contains the key and the
// holder's id. Only the current holder of the lock can write the row, so a late write can't replace a newer key. The
// row never expires, and Prune does not delete it.

const doneSuffix = "!done"

const MaxDone = 1 << 10

var (
	ErrGarbled = errors.New("the key that was done last is not known")

	// ErrUnordered means that a key can't be compared with the last completed key.
	ErrUnordered = errors.New("only one of the keys is a tick of a schedule")

	ErrDone = errors.New("the key is already done")

	// ErrPassed means that the work for a larger key is already done. The work for the smaller key must not run any
	// more, although it may have run before.
	ErrPassed = errors.New("a larger key is already done")
)

type Due struct {
	Key    string
	Period time.Duration // zero if no schedule is known
}

// Done is the last completed key of a lock, and who completed it.
type Done struct {
	Due   // without a Key if nothing was done
	By    string
	Token Token
	At    time.Time // the time of the commit that recorded it
}

type doneJSON struct {
	V      int    `json:"v,omitempty"` // the format version
	Key    string `json:"done"`
	Period string `json:"period,omitempty"`
	By     string `json:"by,omitempty"`
}

// Forbids returns ErrDone, ErrPassed or ErrUnordered if the work for the key that is due must not run. Keys are
// compared as text, but a tick is never compared with another kind of key. Otherwise, a key such as "again" would be
// larger than every tick and block all later ones.
//
// There is one exception. The last completed tick can be up to half a period in the future. If the schedule's period
// changes, the new ticks should not have to wait until that time. So Forbids allows a smaller tick if it has a
// different period and was not yet due when the last completed tick was recorded.
func (d Done) Forbids(due Due) error {
	switch {
	case d.Key == "":
		return nil
	case !Comparable(d.Key, due.Key):
		return fmt.Errorf("key %q can't be compared with %q, the last completed key, because %w; use a different lock name", due.Key, d.Key, ErrUnordered)
	case due.Key == d.Key:
		return ErrDone
	case due.Key > d.Key, d.OtherPeriod(due) && d.At.Before(timeOf(due.Key)):
		return nil
	}
	return fmt.Errorf("the work for key %q will not run, and may never have run, because %w: %q", due.Key, ErrPassed, d.Key)
}

// OtherPeriod reports whether the last completed key belongs to a schedule with a different period.
func (d Done) OtherPeriod(due Due) bool {
	return d.Period != 0 && due.Period != 0 && d.Period != due.Period
}

func CheckDone(key string) error {
	return cmp.Or(checkLength("key", key, MaxDone), checkPrintable("key", key))
}

// Done reads the last completed key of a lock. It also returns the timestamp of the snapshot that bound selects.
func (t Table) Done(ctx context.Context, bound Bound, name string) (Done, time.Time, error) {
	rows, err := t.Read(ctx, "done", bound, Keys{Names: []string{DoneRow(name)}})
	if err != nil {
		return Done{}, rows.At, err
	}
	d, err := rows.Done(name)
	return d, rows.At, err
}

func DoneRow(name string) string { return name + doneSuffix }

// decodeDone returns an error if it can't read the row. If such a row counted as empty, the work would be done again.
func decodeDone(row Row) (Done, error) {
	j := doneJSON{Period: "0s"} // for rows without a period
	err := json.Unmarshal([]byte(row.Writer), &j)
	if newer := known(row.Name, j.V); newer != nil {
		return Done{}, fmt.Errorf("%w: %w", ErrGarbled, newer)
	}
	period, unreadable := time.ParseDuration(j.Period)
	if err != nil || unreadable != nil || j.Key == "" {
		return Done{}, fmt.Errorf("%w: row %q contains %q, but JSON such as {\"done\":\"42\"} was expected; correct the row, or delete it if no key was ever done", ErrGarbled, row.Name, row.Writer)
	}
	return Done{Due: Due{j.Key, period}, By: j.By, Token: TokenAt(row.Token), At: row.Heartbeat}, nil
}

// Record returns writes that set the lock's last completed key on behalf of the holder with this id. A commit that
// contains them fails unless the lock is held under the token.
func Record(name string, token Token, due Due, id string) []Write {
	return []Write{requireLease(name, token), record(name, token, due, id)}
}

func record(name string, token Token, due Due, id string) Write {
	said, _ := json.Marshal(doneJSON{V: format, Key: due.Key, Period: orNothing(due.Period), By: id}) // can't fail
	return Write{Kind: Put, Name: DoneRow(name), Set: []Cell{{ColHeartbeat, Now}, {ColToken, token.Time()}, {ColWriter, string(said)}}}
}
