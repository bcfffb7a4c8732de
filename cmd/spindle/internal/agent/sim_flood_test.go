package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxHoldsIn is how many holds an agent may have in a run with a program that floods it. The other programs have few.
const maxHoldsIn = 60

// flood sends more requests at once than the agent accepts from one program, and hangs up soon. Once the run is calm, it
// asks for no lock of others, who must have their turns although it goes on. What it leaves of a lock that no other program
// wants would stay in the table.
func (p *client) flood(d dice) {
	p.w.fault("program floods its agent")
	wanted := slices.ContainsFunc(p.w.plan.roles, func(r role) bool { return strings.Contains(r.path, "name=a") })
	var open sync.WaitGroup
	for range maxHoldsIn/2 + d.IntN(maxHoldsIn/2) {
		p.w.mu.Lock()
		s, calm := p.host.dial(p.process), p.w.calm
		p.w.mu.Unlock()
		if s == nil {
			break
		}
		query := fmt.Sprint("name=flood", d.IntN(maxHoldsIn)) + pick(d, "", "&wait=0", "&wait=5ms") + "&eof=release"
		if !calm && wanted && d.chance(0.2) {
			query = "name=a" + pick(d, "", "&eof=release")
		}
		_, _ = fmt.Fprintf(s, "POST /v1/locks?%s&lease=%v HTTP/1.0\r\nHost: agent\r\n\r\n", query, p.role.lease)
		stays := d.spread(10*time.Microsecond, p.role.lease/10)
		open.Go(func() {
			p.nap(stays, nil)
			s.closes()
		})
	}
	open.Wait()
	p.nap(p.role.lease/4, nil)
}
