package spindletest

import (
	"fmt"
	"runtime"
	"testing"
)

// Failing records its failures, and does not fail the test that contains it.
type Failing struct {
	testing.TB
	Said   string
	Errors []string
}

func (f *Failing) Helper() {}

func (f *Failing) Errorf(format string, args ...any) {
	f.Errors = append(f.Errors, fmt.Sprintf(format, args...))
}

func (f *Failing) Fatalf(format string, args ...any) {
	f.Said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *Failing) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

// Failure returns the message that f passes to Fatal or Fatalf, or "" if f calls neither.
func Failure(t *testing.T, f func(testing.TB)) string {
	tb, done := &Failing{TB: t}, make(chan struct{})
	go func() { defer close(done); f(tb) }()
	<-done
	return tb.Said
}
