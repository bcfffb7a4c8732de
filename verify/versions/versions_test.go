//go:build versions && unix

package versions

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/iterator"
)

const (
	lease = 2 * time.Second
	some  = 5 * time.Second // after a lease, on a busy machine
)

// Both orders of a rolling update, and of its reversal. A process that is notifying is one of this version with notifications.
func eachOrder(t *testing.T, test func(t *testing.T, first, second string)) {
	for _, v := range [][2]string{{"previous", "this"}, {"this", "previous"}, {"previous", "notifying"}, {"notifying", "previous"}, {"notifying", "this"}} {
		t.Run(fmt.Sprintf("%s and then %s", v[0], v[1]), func(t *testing.T) {
			t.Parallel()
			test(t, v[0], v[1])
		})
	}
}

// A holder that is paused or killed is replaced by a process of the other version, once its lease has expired, under a
// larger token. What it writes under its old token is fenced.
func TestACandidateOfTheOtherVersionTakesOver(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"elect", "mutex"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			eachOrder(t, func(t *testing.T, first, second string) {
				s := newScene(t, lease)
				a := s.start(mode, first)
				a.asks()
				one := a.gets()
				b := s.start(mode, second)
				b.asks()
				b.waits(lease + lease/2)
				a.writes(one, "wrote")

				a.signal(syscall.SIGSTOP)
				paused := time.Now()
				two := b.gets()
				assert.Less(t, time.Since(paused), lease+some)
				a.signal(syscall.SIGCONT)
				a.says("lost")
				a.writes(one, "fenced")
				b.writes(one, "fenced")
				b.writes(two, "wrote")

				if mode == "mutex" {
					a.order("unlock")
					a.says("unlocked", "failed", "fenced") // the lock was lost
					a.asks()
				}
				b.end()
				killed := time.Now()
				three := a.gets()
				assert.Less(t, time.Since(killed), lease+some)
				a.writes(two, "fenced")
				a.writes(three, "wrote")
			})
		})
	}
}

// A leader that stops hands the lock over to a candidate of the other version, which does not wait for the lease.
func TestALeaderHandsOverToTheOtherVersion(t *testing.T) {
	t.Parallel()
	eachOrder(t, func(t *testing.T, first, second string) {
		s := newScene(t, 12*time.Second)
		a := s.start("handover", first)
		a.gets()
		b := s.start("handover", second)
		b.waits(time.Second)
		a.order("stop")
		a.says("stopped")
		stopped := time.Now()
		b.gets()
		assert.Less(t, time.Since(stopped), s.lease/2)
	})
}

// Waiters of both versions take turns at a mutex: each gets all its turns, and no count is lost.
func TestWaitersOfBothVersionsTakeTurns(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10*time.Second)
	s.count(0)
	const turns = 5
	for range 2 {
		s.start("mutex", "previous")
		s.start("mutex", "this")
		s.start("mutex", "notifying")
	}
	for _, p := range s.processes {
		p.order("turns %d", turns)
	}
	for _, p := range s.processes {
		p.says("took")
	}
	assert.EqualValues(t, turns*len(s.processes), s.counted())
}

// A mutex that one version released is free for the other at once, and leaves no rows of terms that have ended. This
// version claims with one commit what this version has released: that must not change what the previous one may do.
func TestAReleasedMutexIsFreeForTheOtherVersion(t *testing.T) {
	t.Parallel()
	eachOrder(t, func(t *testing.T, first, second string) {
		s := newScene(t, 30*time.Second)
		a, b := s.start("mutex", first), s.start("mutex", second)
		for range 3 {
			for _, p := range []*process{a, a, b, b} {
				asked := time.Now()
				p.order("lock")
				token := p.gets()
				assert.Less(t, time.Since(asked), s.lease/2)
				p.writes(token, "wrote")
				p.order("unlock")
				p.says("unlocked")
				assert.LessOrEqual(t, s.rows("job_%"), 1, "at most the free row")
			}
		}
	})
}

// A row of a format that a version does not know keeps the lock held for this version, also long after the lease, until the
// lock is released. A leader of a future version wrote the rows.
func TestALockOfAFutureVersionIsLeftToIt(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"previous", "this"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, lease)
			a := s.start("elect", "this")
			token := a.gets()
			s.apply(spanner.Update(s.table, []string{"name", "writer"}, []any{s.lock + "_" + token, `{"v":2,"lease":[2]}`}))
			b := s.start("elect", version)
			a.end()
			b.waits(4 * lease)
			if version == "this" {
				assert.Contains(t, b.logged(), "was written by a newer version of spindle (it has format 2")
			}
			s.apply(spanner.Delete(s.table, spanner.Key{s.lock + "_" + token}),
				spanner.Update(s.table, []string{"name", "heartbeat", "token", "writer"}, []any{s.lock, nil, spanner.CommitTimestamp, nil}))
			assert.Less(t, token, b.gets())
		})
	}
}

func (s *scene) apply(ms ...*spanner.Mutation) {
	s.Helper()
	_, err := s.db.Client.Apply(s.Context(), ms)
	require.NoError(s, err)
}

func (s *scene) count(n int64) {
	s.apply(spanner.InsertOrUpdate("register", []string{"id", "value"}, []any{1, n}))
}

func (s *scene) counted() (n int64) {
	row, err := s.db.Client.Single().ReadRow(s.Context(), "register", spanner.Key{1}, []string{"value"})
	require.NoError(s, err)
	require.NoError(s, row.Columns(&n))
	return n
}

// rows counts the rows whose names match a pattern of SQL.
func (s *scene) rows(like string) (n int) {
	rows := s.db.Client.Single().Query(s.Context(), spanner.Statement{
		SQL: "SELECT name FROM " + s.table + " WHERE name LIKE @like", Params: map[string]any{"like": like}})
	defer rows.Stop()
	for {
		_, err := rows.Next()
		if err == iterator.Done {
			return n
		}
		require.NoError(s, err)
		n++
	}
}
