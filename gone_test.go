package spindle_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// leads returns a running machine that leads, and the term and context that its leader function got last.
func leads(b *fleet.Fleet, name string) (m *fleet.Machine, term *spindle.Term, work *context.Context) {
	term, work = new(spindle.Term), new(context.Context)
	m = b.Named(name, "a", spindle.WithLeader(func(ctx context.Context, now spindle.Term) { *term, *work = now, ctx; <-ctx.Done() }))
	b.Run(m)
	require.True(b.T, m.Has())
	return m, term, work
}

func gone(b *fleet.Fleet, name string, token spindle.Token) {
	b.Operator(table.Write{Kind: table.Delete, Name: table.LeaseKey(name, table.Token(token))})
}

// Once a fenced write has shown that the token is not valid, nothing else may be done under it, although the next
// heartbeat has not been sent.
func TestARefusedWriteEndsItsTermAtOnce(t *testing.T) {
	for name, write := range map[string]func(*fleet.Machine, *spindle.Term) error{
		"Lock.Apply": func(m *fleet.Machine, term *spindle.Term) error {
			_, err := m.Apply(context.Background(), term.Token(), nil)
			return err
		},
		"Term.Apply": func(_ *fleet.Machine, term *spindle.Term) error {
			_, err := term.Apply(context.Background(), nil)
			return err
		},
		"Term.ReadWriteTransaction": func(_ *fleet.Machine, term *spindle.Term) error {
			_, err := term.ReadWriteTransaction(context.Background(), nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			fleet.InVirtualTime(t, func(b *fleet.Fleet) {
				m, term, work := leads(b, "mylock")
				time.Sleep(fleet.Lease / 20)
				require.NotErrorIs(t, write(m, term), spindle.ErrFenced) // a table in memory runs no transaction
				require.True(t, m.Has())
				gone(b, "mylock", term.Token())
				require.ErrorIs(t, write(m, term), spindle.ErrFenced)
				has, _ := m.HasLock()
				assert.False(t, has)
				assert.Negative(t, term.Left())
				assert.Equal(t, spindle.ErrSuperseded, context.Cause(*work))
				synctest.Wait()
				lost := m.Seen.Last()
				assert.Equal(t, spindle.Lost, lost.Kind)
				require.ErrorIs(t, lost.Err, spindle.ErrSuperseded)
				assert.Equal(t, time.Now(), lost.At.In(time.Now().Location()), "not the deadline")
				b.Until(2*fleet.Lease, m.Has)
				b.End(m)
			})
		})
	}
}

// A refused write says nothing about a term under another token: neither one of no term nor one of an older term.
func TestARefusedWriteOfAnotherTokenEndsNoTerm(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		m, term, work := leads(b, "mylock")
		old := *term
		require.NoError(t, m.StepDown(context.Background()))
		b.Until(fleet.Lease, m.Has)
		for what, apply := range map[string]func() error{
			"the zero token": func() error { _, err := m.Apply(context.Background(), 0, nil); return err },
			"the zero term":  func() error { _, err := (spindle.Term{}).Apply(context.Background(), nil); return err },
			"an old token":   func() error { _, err := m.Apply(context.Background(), old.Token(), nil); return err },
			"an old term":    func() error { _, err := old.Apply(context.Background(), nil); return err },
			"a later token":  func() error { _, err := m.Apply(context.Background(), term.Token()+1, nil); return err },
		} {
			require.ErrorIs(t, apply(), spindle.ErrFenced, what)
			assert.True(t, m.Has(), what)
			assert.NoError(t, (*work).Err(), what)
		}
		time.Sleep(fleet.Lease)
		assert.True(t, m.Has())
		b.End(m)
	})
}

// A commit under several locks that is refused because of one of them ends only that one's term.
func TestARefusedWriteOfSeveralLocksEndsOnlyTheLostTerm(t *testing.T) {
	fleet.InVirtualTime(t, func(b *fleet.Fleet) {
		var ms []*fleet.Machine
		var terms []spindle.Holding
		for _, name := range []string{"first", "second", "third"} {
			m, term, _ := leads(b, name)
			ms, terms = append(ms, m), append(terms, *term)
		}
		gone(b, "second", ms[1].Token())
		_, err := spindle.Apply(context.Background(), terms, nil)
		require.ErrorIs(t, err, spindle.ErrFenced)
		has := func(m *fleet.Machine) bool { yes, _ := m.HasLock(); return yes }
		assert.Equal(t, []bool{true, false, true}, []bool{has(ms[0]), has(ms[1]), has(ms[2])})
		time.Sleep(fleet.Lease / 10)
		assert.True(t, has(ms[0]) && has(ms[2]))
		b.End(ms...)
	})
}
