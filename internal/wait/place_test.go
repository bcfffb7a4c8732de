package wait

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/fair"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// tickets returns n tickets of a queue, one after the other. The first of them are of sets.
func tickets(now time.Time, n, sets int) (all []table.Ticket) {
	for i := range n {
		all = append(all, table.Ticket{Queue: "q", Time: table.TokenAt(now.Add(time.Duration(i) * time.Millisecond)), Nonce: fmt.Sprint("n", i),
			Beat: now, Grace: time.Second, Lasts: time.Minute, Set: i < sets})
	}
	return all
}

// A waiter behind more tickets than one poll reads learns that it is first, although those of sets that wait for other locks, too,
// stay before it and do not count.
func TestAWaiterBehindSetsLearnsThatItIsFirst(t *testing.T) {
	const sets = 20
	var c options.Config
	c.Clock, c.Lease = elect.SystemClock{}, 10*time.Second
	p := New(&c, table.Table{}, "q")
	now := time.Now()
	all := tickets(now, table.MostTickets+1, sets)
	p.Own = all[table.MostTickets]
	poll := func(tickets ...table.Ticket) {
		b := p.Asks()
		b.At = now
		for _, ticket := range tickets {
			if ticket.Row() <= b.Queues[0].To {
				b.Rows = append(b.Rows, rowOf(ticket, now))
			}
		}
		p.Learns(b)
	}
	poll(all...)
	assert.Equal(t, table.MostTickets, p.Ahead())
	for range 2 { // the first learns that waiters have gone
		poll(append(slices.Clone(all[:sets]), p.Own)...)
	}
	assert.Zero(t, p.Ahead())
}

// A process's claims share a gate, where the first waiter of a queue precedes waiters whose claim nobody waits for.
func TestTheClaimOfAQueuesFirstWaiterIsInTurn(t *testing.T) {
	now := time.Now()
	queue := tickets(now, 3, 0)
	claim := func(own table.Ticket, tickets ...table.Ticket) elect.Decision {
		var c options.Config
		c.Clock, c.Lease = elect.SystemClock{}, 10*time.Second
		p := New(&c, table.Table{}, "q")
		p.Own = own
		b := p.Asks()
		b.At = now
		for _, ticket := range tickets {
			b.Rows = append(b.Rows, rowOf(ticket, now))
		}
		p.Learns(b)
		return p.InOrder(func(seen []elect.LockView) elect.Decision { return elect.Decision{Claim: seen} })(make([]elect.LockView, 1))
	}

	first := claim(queue[0], queue...)
	require.NotEmpty(t, first.Claim)
	assert.Equal(t, elect.InTurn, first.Urgency)
	alone := claim(queue[0], queue[0])
	require.NotEmpty(t, alone.Claim)
	assert.Equal(t, elect.Patient, alone.Urgency, "nobody waits for it")
	newcomer := claim(table.Ticket{})
	require.NotEmpty(t, newcomer.Claim)
	assert.Equal(t, elect.Patient, newcomer.Urgency)
}

// A poll reads a long queue only up to the last ticket that it has read before, because reading all of it takes more requests. It reads on
// once most of these tickets have gone, or if the waiter could otherwise not learn that it is first.
func TestHowFarALongQueueIsRead(t *testing.T) {
	now := time.Now()
	late := table.Ticket{Queue: "q", Time: table.TokenAt(now.Add(time.Hour)), Nonce: "late", Beat: now, Lasts: time.Minute}
	for _, c := range []struct {
		n, sets int // how many tickets the poll has read, and how many of them count for nothing
		beyond  bool
		limited bool
	}{
		{n: 32, limited: true}, {n: 32, beyond: true, limited: true}, {n: 32, sets: 32, beyond: true, limited: true},
		{n: 31, limited: true}, {n: 31, beyond: true, limited: true}, {n: 31, sets: 15, beyond: true, limited: true}, {n: 31, sets: 16, beyond: true}, {n: 31, sets: 31, limited: true},
		{n: 16, limited: true}, {n: 16, beyond: true, limited: true}, {n: 16, sets: 1, beyond: true}, {n: 16, sets: 1, limited: true},
		{n: 15}, {n: 15, beyond: true}, {n: 1}, {n: 0, beyond: true},
	} {
		for queue := range 2 {
			var config options.Config
			config.Clock, config.Lease = elect.SystemClock{}, 10*time.Second
			p := New(&config, table.Table{}, "other", "q")
			assert.Equal(t, []table.Range{table.Waiting("other", ""), table.Waiting("q", "")}, p.Asks().Queues, "the first poll reads all")
			own, end := late, "!wait/q/limit"
			if all := tickets(now, c.n, c.sets); len(all) > 0 {
				if end = all[len(all)-1].Row(); !c.beyond {
					own = all[len(all)-1]
				}
			}
			p.seen = make([]fair.Line, 2)
			p.seen[queue] = fair.Line{Own: own, Tickets: tickets(now, c.n, c.sets), End: end, At: now}
			limit := ""
			if c.limited {
				limit = end
			}
			b := p.Asks()
			assert.Equal(t, table.Waiting(p.Queues[queue], limit), b.Queues[queue], "%+v", c)
			assert.Equal(t, table.Waiting(p.Queues[1-queue], ""), b.Queues[1-queue], "the other queue is short")
		}
	}
}
