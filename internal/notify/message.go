package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"strconv"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// Size is the size of every message, in bytes. An answer is as long as its question, so that an answer to a forged
// address does not amplify an attack.
const Size = 128

// version is the first byte of every message.
const version = 1

// kind is what a message says.
type kind uint8

const (
	waiting kind = iota + 1 // to the holder: the sender waits for the lock; is the holder alive?
	heard                   // to a waiter: the holder is alive and has noted the waiter
	gone                    // to the holder: the waiter has given up
	leaving                 // to a follower: the leader is about to hand the lock over
	free                    // to a waiter: the lock is free; poll once After has passed
	taken                   // to a waiter: the sender has claimed the lock
	kinds                   // the number of kinds, plus one
)

// flags say more about a message.
type flags uint8

const (
	toHolder flags = 1 << iota // the direction, so that a message that is sent back to its sender is not valid
	byTicket                   // it is signed with the key of the waiter's ticket instead of the key of the holder's lease row
	relayed                    // free: another waiter passes it on
	handover                   // heard: the holder is leaving
	unready                    // waiting: the sender waits for several locks, and is not yet first in every queue
)

// message is a datagram. It contains a hash of the lock's name, not the name.
type message struct {
	kind   kind
	flags  flags
	lock   id
	token  table.Token    // of the term that it is about
	seq    uint64         // of the question; an answer repeats it
	after  time.Duration  // free: how long to wait before the poll
	waiter waiter         // the sender of a question, or the receiver of another message
	ahead  uint32         // heard, taken: how many waiters are ahead
	rank   uint8          // waiting: the follower's rank
	trip   time.Duration  // waiting: how long a poll of the waiter takes
	from   netip.AddrPort // the sender's announced address
}

// id identifies a lock.
type id [16]byte

func idOf(p Place, lock string) id {
	sum := sha256.Sum256([]byte(string(p) + strconv.Quote(lock)))
	return id(sum[:16])
}

// waiter identifies one of the waiters for a lock, by the time and the nonce of its ticket. A follower of an elector
// has no ticket, only a nonce.
type waiter struct {
	time  table.Token
	nonce uint64
}

// waiterOf returns the waiter that a ticket belongs to, or false if the ticket's nonce does not have the form that this
// program uses.
func waiterOf(t table.Ticket) (waiter, bool) {
	nonce, err := strconv.ParseUint(t.Nonce, 36, 64)
	return waiter{t.Time, nonce}, err == nil
}

// key signs messages. It is valid for one row of the table.
type key [16]byte

// signed returns the message as bytes with its signature.
func (m message) signed(k key) []byte {
	b := make([]byte, 0, Size)
	b = append(b, version, byte(m.kind), byte(m.flags), m.rank)
	b = append(b, m.lock[:]...)
	for _, n := range []uint64{uint64(m.token), m.seq, uint64(m.after), uint64(m.waiter.time), m.waiter.nonce, uint64(m.trip)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = binary.BigEndian.AppendUint32(b, m.ahead)
	addr := m.from.Addr().As16()
	b = append(b, addr[:]...)
	b = binary.BigEndian.AppendUint16(b, m.from.Port())
	b = append(b, make([]byte, Size-len(key{})-len(b))...)
	sum := k.sign(b)
	return append(b, sum[:]...)
}

func (k key) sign(b []byte) key {
	mac := hmac.New(sha256.New, k[:])
	mac.Write(b)
	return key(mac.Sum(nil)[:len(key{})])
}

// isFrom reports whether a message is signed with the key. No message is signed with the zero key.
func (k key) isFrom(b []byte) bool {
	sum := k.sign(b[:Size-len(key{})])
	return k != key{} && hmac.Equal(sum[:], b[Size-len(key{}):])
}

// decode decodes a message, but does not check its signature.
func decode(b []byte) (m message, ok bool) {
	if len(b) != Size || b[0] != version || b[1] == 0 || kind(b[1]) >= kinds {
		return message{}, false
	}
	m = message{kind: kind(b[1]), flags: flags(b[2]), rank: b[3], lock: id(b[4:20])}
	n := func(at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }
	m.token, m.seq, m.after = table.Token(n(20)), n(28), time.Duration(n(36))
	m.waiter, m.trip = waiter{table.Token(n(44)), n(52)}, time.Duration(n(60))
	m.ahead = binary.BigEndian.Uint32(b[68:])
	m.from = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[72:88])).Unmap(), binary.BigEndian.Uint16(b[88:]))
	return m, m.after >= 0 && m.after <= table.MaxLease && m.trip >= 0 && m.trip <= table.MaxLease
}
