package agent

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Once a program has not been told in time that it holds its lock, it is told nothing that only a holder is told, in whatever portions
// its lines are sent. Every other line arrives, in its order, and nothing comes after the last one.
func TestWhatAProgramIsToldFollowsFromItsLockAtTheTime(t *testing.T) {
	for _, c := range []struct {
		left    int64
		batches string // of lines, separated by ";"
		told    string
	}{
		{1, "hello waiting;leader;held;until;jeopardy;until;stop;lost", "hello waiting leader held until jeopardy until stop lost"},
		{1, "hello held until jeopardy stop", "hello held until jeopardy stop"},
		{1, "hello held lost", "hello lost"},
		{1, "hello held until jeopardy stop lost", "hello lost"},
		{1, "hello;held;until lost", "hello held lost"},
		{1, "hello;held;until jeopardy leader stop lost", "hello held leader lost"},
		{0, "hello held until jeopardy stop lost", "hello lost"},
		{0, "hello;held;until;jeopardy;stop;lost", "hello lost"},
		{0, "hello;held;until leader;stop;leader;lost", "hello leader leader lost"},
		{0, "hello waiting leader;refused", "hello waiting leader refused"},
		{0, "hello until jeopardy stop", "hello until jeopardy stop"},
		{1, "hello leader leader", "hello leader"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLines()
			ours, theirs := net.Pipe()
			go l.send(ours, func(l *line) {
				if l.Event == "held" {
					l.Left = c.left
				}
			})
			var told []string
			read := make(chan struct{})
			go func() {
				defer close(read)
				r, err := http.ReadResponse(bufio.NewReader(theirs), nil)
				if !assert.NoError(t, err) {
					return
				}
				for lines := bufio.NewScanner(r.Body); lines.Scan(); {
					var l line
					assert.NoError(t, json.Unmarshal(lines.Bytes(), &l), lines.Text())
					told = append(told, l.Event)
				}
			}()
			for _, batch := range strings.Split(c.batches, ";") {
				var all []line
				for _, event := range strings.Fields(batch) {
					all = append(all, line{Event: event})
				}
				l.adds(all)
				synctest.Wait()
			}
			l.end()
			l.add(line{Event: "until"})
			<-read
			assert.Equal(t, c.told, strings.Join(told, " "), c.batches)
		})
	}
}

// adds adds lines before any of them is sent.
func (l *lines) adds(all []line) {
	synctest.Wait()
	news := l.news
	l.news = make(chan struct{}, 1)
	for _, add := range all {
		l.add(add)
	}
	l.news = news
	l.wake()
}

// Something comes every five seconds, so that a program may set a limit on reading: without lines it is an empty one. The response is
// over once its last line is written, or if it can't be written within five seconds.
func TestAProgramHearsSomethingEveryFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLines()
		ours, theirs := net.Pipe()
		over := make(chan struct{})
		go func() { defer close(over); l.send(ours, func(*line) {}) }()
		began := time.Now()
		var at []int // seconds
		reads := make(chan struct{})
		go func() {
			defer close(reads)
			for b := make([]byte, 1000); ; {
				n, err := theirs.Read(b)
				if err != nil {
					return
				}
				if n > 0 { // the end may write nothing
					at = append(at, int(time.Since(began).Seconds()))
				}
			}
		}()
		for _, pause := range []time.Duration{12, 3, 3} {
			time.Sleep(pause * time.Second)
			l.add(line{Event: "until"})
			synctest.Wait()
		}
		l.end()
		<-over
		<-reads
		assert.Equal(t, []int{5, 10, 12, 15, 18}, at)
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLines()
		ours, theirs := net.Pipe() // nobody reads
		over := make(chan struct{})
		go func() { defer close(over); l.send(ours, func(*line) {}) }()
		l.add(line{Event: "lost"})
		time.Sleep(time.Hour)
		assert.False(t, happened(over), "a program may read late while its lock is held")
		ended := time.Now()
		l.end()
		<-over
		assert.Equal(t, lastWords, time.Since(ended))
		_, err := theirs.Read(make([]byte, 1))
		require.Error(t, err, "the connection is closed")
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLines()
		ours, theirs := net.Pipe()
		require.NoError(t, theirs.Close())
		began := time.Now()
		l.send(ours, func(*line) {})
		assert.Equal(t, keepAlive, time.Since(began), "a program that has gone is noticed")
	})
}
