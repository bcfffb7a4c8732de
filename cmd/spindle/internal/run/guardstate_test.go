package run

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/elect"
)

// story is what a service has heard.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (o *story) add(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, line)
}

// take returns what the service has heard since the last call.
func (o *story) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := o.lines
	o.lines = nil
	return lines
}

func (o *story) Seen(elect.Step)   {}
func (o *story) Begin(*elect.Term) { o.add("elected") }
func (o *story) Lost(err error)    { o.add(fmt.Sprintf("lost: %v", err)) }
func (o *story) Over()             { o.add("over") }
func (o *story) Changed(s State)   { o.add(string(s)) }

// A service hears each change in its order, and of a loss only if the lock was not given up.
func TestAServiceHearsOfEachChange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		first := w.start("a")
		w.until("a")
		assert.Equal(t, []string{string(Deactivating), string(Competing), "elected", string(Activating), string(Working)}, first.take())

		second := w.start("b")
		time.Sleep(guardLease)
		assert.Equal(t, []string{string(Deactivating), string(Competing)}, second.take())
		first.Cut()
		w.until("b")
		lost := first.take()
		assert.True(t, strings.HasPrefix(lost[0], "lost: "+elect.ErrExpired.Error()+"; the last heartbeat failed: "), lost[0])
		assert.Equal(t, []string{string(Deactivating), "over", string(Competing)}, lost[1:])
		assert.Equal(t, []string{"elected", string(Confirming), string(Activating), string(Working)}, second.take())
		first.Mend()

		second.end()
		assert.Equal(t, []string{string(Deactivating), "over"}, second.take(), "what is released is not lost")
		first.end()
	})
}

func TestAServiceHearsThatADeactivationFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		s := w.start("a")
		w.until("a")
		s.take()
		s.set(func() { s.sick, s.broken = true, 2 })
		time.Sleep(2 * renew)
		s.set(func() { s.sick = false })
		time.Sleep(2 * guardLease)
		assert.Equal(t, []string{string(Deactivating), "over", string(Stuck), string(Competing), "elected", string(Confirming), string(Activating), string(Working)}, s.take())
		s.set(func() { s.sick = true })
		time.Sleep(2 * renew)
		s.set(func() { s.sick = false })
		time.Sleep(2 * guardLease)
		assert.Equal(t, []string{string(Deactivating), "over", string(Competing), "elected", string(Activating), string(Working)}, s.take(), "nothing failed this time")
		s.end()
	})
}

// Others ask the loop whether it runs. It answers whatever it waits for: an activation, an announcement, its turn.
func TestTheLoopAnswersWhateverItWaitsFor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *guardWorld) {
		asks := make(chan struct{})
		asked := func(what string) {
			t.Helper()
			select {
			case asks <- struct{}{}:
			case <-time.After(time.Second):
				assert.Fail(t, "no answer", what)
			}
		}
		s := w.start("a", func(g *Guard) { g.Asks, g.Handover = asks, true })
		s.set(func() { s.turnOn, s.turnOff = 10*time.Second, renew })
		asked("a deactivation")
		time.Sleep(2 * guardLease)
		asked("an activation")
		w.until("a")
		time.Sleep(10 * time.Second)
		asked("the service's work")
		s.stop()
		time.Sleep(guardLease / 6)
		asked("an announcement")
		<-s.done
	})
}
