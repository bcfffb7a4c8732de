package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/spindletest"
)

// lines is a log that the test waits on.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	next chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { close(l.next); l.next = make(chan struct{}) }()
	return l.text.Write(p)
}

func (l *lines) await(t *testing.T, part string) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		l.mu.Lock()
		has, next := strings.Contains(l.text.String(), part), l.next
		l.mu.Unlock()
		if has {
			return
		}
		select {
		case <-next:
		case <-limit:
			require.FailNow(t, "waited in vain", "for %q", part)
		}
	}
}

// The example leads, and gives the lock back when it is stopped.
func TestTheExampleLeads(t *testing.T) {
	db := spindletest.New(t)
	for _, env := range db.Env() {
		name, value, _ := strings.Cut(env, "=")
		t.Setenv(name, value)
	}
	said := &lines{next: make(chan struct{})}
	log.SetOutput(said)
	defer log.SetOutput(os.Stderr)
	for range 2 { // the second leads at once
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, db.Path) }()
		said.await(t, "leading under token")
		said.await(t, "the leader is ")
		stop()
		require.NoError(t, <-ended)
		said.await(t, "not leading")
		said.mu.Lock()
		said.text.Reset()
		said.mu.Unlock()
	}
}
