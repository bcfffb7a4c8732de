//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/moments"
)

// execs are the machine, and the execs before and behind it.
type execs struct{ before, own, next *site }

// Exec waits for the lock, runs its program, and releases the lock, between two others. Whatever happens at whatever moment:
// two programs never run, each program ends before a watchdog would kill it, exec ends, it reports success only if its program
// did, and another exec gets the lock.
func TestExecAtEachMoment(t *testing.T) {
	for name, change := range map[string]func(*site){"plain": func(*site) {}, "handover": handingOver, "once": onceEach, "slots": func(s *site) { s.exec.slots = 1 }} {
		t.Run(name, func(t *testing.T) {
			moments.AtEachMoment(t, moments.Machine{
				Live: func(w *moments.World) { liveExec(w, change) },
				Events: moments.Common(map[string]func(*moments.World){
					"two signals":             func(w *moments.World) { ofExec(w).signal(syscall.SIGINT); ofExec(w).signal(syscall.SIGTERM) },
					"its program exits":       func(w *moments.World) { ofExec(w).exitAll(0) },
					"its program fails":       func(w *moments.World) { ofExec(w).exitAll(3) },
					"it ignores signals":      func(w *moments.World) { ofExec(w).change(func(p *program) { p.ignores = true }) },
					"the holder's ends":       func(w *moments.World) { w.Values.(*execs).before.exitAll(0) },
					"an operator releases it": moments.Operator("job"),
					"it is requested":         moments.Requested("job"),
				}),
				After: func(w *moments.World) {
					next := newSite(w.T, w.Store, "after", change).start()
					select {
					case p := <-next.began:
						p.exit(0)
					case <-time.After(3 * lease):
						w.Errorf("the lock is not to be had")
					}
					next.signal(syscall.SIGTERM)
					<-next.done
				},
			})
		})
	}
}

// onceEach lets each exec have work of its own.
func onceEach(s *site) {
	doingOnce(s)
	s.exec.once.schedule = map[string]table.Named{"before": "1", "own": "2", "next": "3", "after": "4"}[s.exec.id]
}

func ofExec(w *moments.World) *site { return w.Values.(*execs).own }

func (s *site) signal(sig os.Signal) {
	select {
	case s.signals <- sig:
	default:
	}
}

func (s *site) change(f func(*program)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.ran {
		f(p)
	}
}

func (s *site) exitAll(code int) { s.change(func(p *program) { p.exit(code) }) }

// runs reports whether a program runs.
func (s *site) runs() (runs bool) {
	s.change(func(p *program) {
		select {
		case <-p.done:
		default:
			runs = true
		}
	})
	return runs
}

// works lets each program of the site exit with 0 after a while.
func (s *site) works(w *moments.World, d time.Duration) {
	w.Others.Go(func() {
		for {
			select {
			case p := <-s.began:
				select {
				case <-time.After(d):
					p.exit(0)
				case <-p.done:
				}
			case <-s.done:
				return
			}
		}
	})
}

func liveExec(w *moments.World, change func(*site)) {
	x := &execs{before: newSite(w.T, w.Store, "before", change), own: newSite(w.T, w.Table(), "own", change), next: newSite(w.T, w.Store, "next", change)}
	w.Values = x
	x.own.exec.candidate.Clock, x.own.exec.config.Clock = w.Clock, w.Clock
	defer w.Apart(x.before.runs, x.own.runs, x.next.runs)()
	var expired time.Time // since when the program has run although the lease has expired by the machine's clock
	defer w.Always(func() error {
		var t *elect.Term
		x.own.exec.with(func(s *state) { t = s.term })
		switch {
		case t == nil || !x.own.runs() || t.Left() > 0 || context.Cause(t.Over()) != nil && !errors.Is(context.Cause(t.Over()), elect.ErrExpired):
			expired = time.Time{}
		case expired.IsZero():
			expired = time.Now()
		case time.Since(expired) > lease/20:
			return fmt.Errorf("its program runs for %v although the lease has expired by its clock", time.Since(expired))
		}
		return nil
	})()
	x.before.start().works(w, lease)
	time.Sleep(lease / 100)
	stop := context.AfterFunc(w.Ctx, func() { x.own.signal(syscall.SIGTERM) })
	defer stop()
	x.own.start().works(w, lease)
	w.Others.Go(func() {
		time.Sleep(lease + lease/2)
		x.next.start().works(w, lease/2)
		<-x.next.done
	})
	select {
	case <-x.own.done:
	case <-time.After(10 * lease):
		w.Errorf("exec does not end")
		x.own.stop()
	}
	<-x.before.done
	succeeded := false
	x.own.change(func(p *program) {
		succeeded = p.code == 0
		if until := *p.allowed.Load(); p.ended.After(until) {
			w.Errorf("a program ran until %v after a watchdog would have killed it", p.ended.Sub(until))
		}
	})
	if x.own.end.Code == 0 && !succeeded {
		w.Errorf("exec reports success")
	}
}
