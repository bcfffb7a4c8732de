package network

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// Datagram is a datagram that arrives after a delay.
type Datagram struct {
	Bytes    []byte
	From, To netip.AddrPort
	After    time.Duration
}

// Faults contains the probability of each fault of a datagram. The zero value delivers each datagram once.
type Faults struct {
	Lost, Twice, Late     float64
	Cut, Forged           float64 // shortened, and changed in one bit
	Replayed              float64 // it arrives again later, from another address
	Redirected, Reflected float64 // it arrives elsewhere, or at its sender
	Longest               time.Duration
}

// Drawn returns random faults. Each of them is absent, rare or frequent.
func Drawn(random *rand.Rand, longest time.Duration) Faults {
	f := Faults{Longest: longest}
	for _, p := range []*float64{&f.Lost, &f.Twice, &f.Late, &f.Cut, &f.Forged, &f.Replayed, &f.Redirected, &f.Reflected} {
		if random.IntN(2) == 0 {
			*p = []float64{0.02, 0.1, 0.5}[random.IntN(3)]
		}
	}
	return f
}

// Arriving returns the datagrams that arrive after d was sent. They can be redirected to, or come from, other addresses.
func (f Faults) Arriving(d Datagram, others []netip.AddrPort, random *rand.Rand) (all []Datagram) {
	happens := func(p float64) bool { return p > 0 && random.Float64() < p }
	elsewhere := func() netip.AddrPort { return others[random.IntN(len(others))] }
	if happens(f.Late) {
		d.After += time.Duration(random.Float64() * float64(f.Longest))
	}
	again := d
	again.After += time.Duration(random.Float64() * float64(f.Longest))
	if happens(f.Twice) {
		all = append(all, again)
	}
	if happens(f.Replayed) {
		again.From, again.After = elsewhere(), 3*again.After
		all = append(all, again)
	}
	if happens(f.Reflected) {
		all = append(all, Datagram{d.Bytes, d.To, d.From, d.After})
	}
	if happens(f.Cut) {
		d.Bytes = d.Bytes[:random.IntN(len(d.Bytes))]
	}
	if happens(f.Forged) && len(d.Bytes) > 0 {
		d.Bytes = slices.Clone(d.Bytes)
		d.Bytes[random.IntN(len(d.Bytes))] ^= 1 << random.IntN(8)
	}
	if happens(f.Redirected) {
		d.To = elsewhere()
	}
	if !happens(f.Lost) {
		all = append(all, d)
	}
	return all
}
