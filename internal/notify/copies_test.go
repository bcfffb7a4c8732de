package notify

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

// The second copy of a message, which is there because the first can be lost, causes no second poll, whether it comes before or after the
// first one's poll. Otherwise, each release and each handover would cost all who are told of it two polls.
func TestASecondCopyOfAMessageCausesNoSecondPoll(t *testing.T) {
	for name, m := range map[string]message{"free": {kind: free, token: 1}, "passed on": {kind: free, flags: relayed, token: 1}, "leaving": {kind: leaving, token: 1}} {
		for _, late := range []bool{false, true} {
			inWorld(t, func(w *world) {
				holder, other := w.process(), w.process()
				c := w.chain(holder, other, other.ticket(7))
				time.Sleep(lease)
				c.sends(m, false)
				if !late {
					c.sends(m, false)
				}
				assert.Zero(t, sleeps(c.e, lease/10, lease/10), name)
				c.polls(1, true)
				if late {
					c.sends(m, false)
				}
				assert.Equal(t, lease/10, sleeps(c.e, lease/10, lease/10), "%s, late %v", name, late)
				c.e.Close()
			})
		}
	}
}

// A message about an earlier term that arrives late is no news: a waiter that took it for news would poll in vain, and ignore the message
// that the present holder sends when it frees the lock.
func TestALateMessageAboutAnEarlierTermIsNoNews(t *testing.T) {
	for name, m := range map[string]message{"free": {kind: free, token: 1}, "passed on": {kind: free, flags: relayed, token: 1}, "leaving": {kind: leaving, token: 1}} {
		inWorld(t, func(w *world) {
			holder, other := w.process(), w.process()
			c := w.chain(holder, other, other.ticket(7))
			time.Sleep(lease)
			c.polls(3, true)
			c.sends(m, true)
			assert.Equal(t, lease/10, sleeps(c.e, lease/10, lease/10), name)
			m.token = 3
			c.sends(m, true)
			assert.Zero(t, sleeps(c.e, lease/10, lease/10), name)
			c.e.Close()
		})
	}
}

// What one poll has shown counts until another shows something else: a poll without the lease row takes nothing away, and one that shows
// that the holder is leaving counts at once. Otherwise, a waiter would lose the holder that answers it, or sleep through a handover.
func TestAPollThatShowsLessTakesNothingAway(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		book := holder.holds(1)
		c := w.chain(holder, other)
		slow := func() (is bool) { other.do(func() { is = c.e.slow() }); return is }
		time.Sleep(lease / 10)
		assert.True(t, slow())
		c.seen.Locks[0].Contact = ""
		c.polls(1, true)
		time.Sleep(2 * lease)
		assert.True(t, slow(), "it still asks, and is answered")
		c.seen.Locks[0].Leaving = true
		c.polls(1, true)
		assert.False(t, slow())
		c.seen.Locks[0].Leaving = false // a poll that was sent before
		c.polls(1, true)
		time.Sleep(lease)
		assert.False(t, slow())
		c.polls(3, true)
		c.e.Close()
		book.Free(false)
	})
}

// Only the holder knows whom it has told: a waiter that has only been told by another waiter still leaves the lock to those ahead, and
// tells them. After another has taken the lock, those ahead are the last ones of those before.
func TestAWaiterTellsThoseWhoAreAheadOfItNow(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		ahead := []table.Ticket{holder.ticket(7), holder.ticket(8), holder.ticket(9)}
		passed := func() (to []waiter) {
			for _, m := range w.sent(func(m message) bool { return m.kind == free && m.flags&relayed != 0 }) {
				to = append(to, m.waiter)
			}
			return to
		}
		c := w.chain(holder, other, ahead...)
		c.sends(message{kind: free, flags: relayed, token: 1}, true)
		assert.Equal(t, headStart, c.e.Free("m", 2, ahead, time.Second))
		assert.Len(t, passed(), len(ahead))
		c.e.Close()
		for left := range uint32(3) {
			d := w.chain(holder, other, ahead...)
			w.sent(only(free))
			d.sends(message{kind: taken, token: 3, ahead: 3 - left, after: lease}, true)
			d.sends(message{kind: free, token: 3, after: 10 * time.Millisecond}, true)
			var want []waiter
			for _, one := range ahead[left:] {
				want = append(want, mustWaiter(t, one))
			}
			assert.Equal(t, want, passed(), fmt.Sprint(left))
			d.e.Close()
		}
	})
}

// Whoever is told of something just before its process closes the Notifier is told twice, as always. After that, no timer of the
// Notifier does anything.
func TestWhatWasSaidBeforeCloseIsSaidTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, other := w.process(), w.process()
		holder.holds(1, other.ticket(7)).Free(false)
		holder.Close()
		assert.Len(t, w.sent(only(free)), 2)
		assert.Empty(t, holder.talkers)
		time.Sleep(10 * lease)
		assert.Empty(t, w.sent(func(m message) bool { return m.from == holder.at }))
	})
}
