package lock

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spindle-lock/spindle/internal/elect"
)

// A program can forget to unlock: a goroutine returns early, or its panic is recovered. When the value that it locked has
// become garbage, nothing can unlock it any more. Package lock then says so, but does not release the lock, because a
// program may rely on holding it until it ends.

// origin says where the locks of a held were acquired, and whether the program has forgotten them.
type origin struct {
	clock   elect.Clock
	at      elect.Instant
	callers []uintptr
	garbage *atomic.Bool
	next    func() // makes way for the next goroutine of the process
	said    sync.Once
}

// forget records that a value has become garbage. The runtime calls it in a goroutine of its own.
func forget(garbage *atomic.Bool) { garbage.Store(true) }

func newOrigin(c elect.Clock, garbage *atomic.Bool, next func()) origin {
	callers := make([]uintptr, 16)
	return origin{clock: c, at: c.Now(), callers: callers[:runtime.Callers(3, callers)], garbage: garbage, next: next}
}

// text says, for errors, since when and where the locks were acquired.
func (o *origin) text() string {
	return fmt.Sprintf("it was locked %v ago, at %s", o.age(), o.place())
}

func (o *origin) age() time.Duration { return o.clock.Now().Since(o.at).Round(time.Millisecond) }

var ownFunctions = reflect.TypeFor[Mutex]().PkgPath() + "."

// place returns the line of the program that acquired the locks: the innermost one outside this package.
func (o *origin) place() string {
	for frames := runtime.CallersFrames(o.callers); ; {
		f, more := frames.Next()
		own := strings.HasPrefix(f.Function, ownFunctions) && !strings.HasSuffix(f.File, "_test.go")
		if !own || !more {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
}

// warnIfForgotten warns, once, if nothing can unlock the value any more. It is called after each heartbeat.
func (h *held) warnIfForgotten() {
	if h.garbage.Load() && !h.left.Load() {
		h.said.Do(func() {
			h.log(h.term).Warn("a value was locked and then dropped without being unlocked; nothing can unlock it any more, so the lock stays held until this process ends or an operator releases it",
				"held", h.age(), "locked_at", h.place())
		})
	}
}

// makeWay gives up a forgotten lock that was lost, so that it is no obstacle to other goroutines of this process.
func (h *held) makeWay() {
	if h.isLost() && h.leave() {
		_ = h.keeper.Stop()
		h.next()
	}
}
