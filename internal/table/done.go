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

// What was done last under a lock is a row of its own beside the lock's: "nightly!done". Its heartbeat is when that was,
// its token the one under which it was done, its writer what and by whom. Only who holds the lock writes it, so what is
// done last only grows. It never expires, and Prune leaves it alone.

const doneSuffix = "!done"

// MaxDone is the longest key of what was done, in bytes.
const MaxDone = 1 << 10

var (
	// ErrGarbled says that a row does not say what was done.
	ErrGarbled = errors.New("what was done last is not known")

	// ErrUnordered says that a key is neither before nor after what was done last.
	ErrUnordered = errors.New("one is a tick of a schedule, and the other is not")
)

// Done is what was done last under a lock.
type Done struct {
	Key   string // "": nothing was
	By    string
	Token Token
	At    time.Time // of the commit that says so
}

type doneJSON struct {
	Key string `json:"done"`
	By  string `json:"by,omitempty"`
}

// Covers reports whether key is done: itself, or a later one. It fails with ErrUnordered for a tick among other keys, or
// the other way around: a key such as "again" would be after every tick, and no tick be done any more.
func (d Done) Covers(key string) (bool, error) {
	if d.Key == "" {
		return false, nil
	}
	if isTick(d.Key) != isTick(key) {
		return false, fmt.Errorf("key %q can't be compared with what was done last, %q: %w: use another name for it", key, d.Key, ErrUnordered)
	}
	return key <= d.Key, nil
}

// CheckDone says why a key can't be that of what is done, or nil.
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
	rows, at, err := t.Store.Read(ctx, "done", bound, Keys{Names: []string{name + doneSuffix}})
	if err != nil || len(rows) == 0 {
		return Done{}, at, err
	}
	d, err := decodeDone(rows[0])
	return d, at, err
}

// decodeDone refuses what it can't read: taken for nothing, it would be done again.
func decodeDone(row Row) (Done, error) {
	var j doneJSON
	if err := json.Unmarshal([]byte(row.Writer), &j); err != nil || j.Key == "" {
		return Done{}, fmt.Errorf("%w: row %q says %q where JSON such as {\"done\":\"42\"} was expected: correct it, or delete the row if nothing was done", ErrGarbled, row.Name, row.Writer)
	}
	return Done{Key: j.Key, By: j.By, Token: TokenAt(row.Token), At: row.Heartbeat}, nil
}

// Record are the writes that say that key is done, by id, and that fail their commit unless name is held under token.
func Record(name string, token Token, key, id string) []Write {
	return []Write{good(name, token), record(name, token, key, id)}
}

func record(name string, token Token, key, id string) Write {
	said, _ := json.Marshal(doneJSON{key, id}) // strings: this can't fail
	return Write{Kind: Put, Name: name + doneSuffix, Set: []Cell{{ColHeartbeat, Now}, {ColToken, token.Time()}, {ColWriter, string(said)}}}
}

// Finish is Release that also records key as done, by id. It fails with ErrSuperseded if the token is not good any more:
// nothing is recorded then, unless an earlier attempt did.
func (t Table) Finish(ctx context.Context, token Token, name, key, id string) error {
	writes := append(release(Hold{name, token}), record(name, token, key, id))
	return t.superseded(ctx, token, []string{name}, t.Store.Commit(ctx, "finish", writes))
}

// doneUnder returns the lock that a row says of what was done.
func doneUnder(key string) (string, bool) { return strings.CutSuffix(key, doneSuffix) }
