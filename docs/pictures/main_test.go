package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/spindletest"
)

// Each picture is what its description says, and a document shows it with its text, for those who can't see it.
func TestThePicturesAreDrawnFromTheirDescriptions(t *testing.T) {
	documents, err := filepath.Glob("../*.md")
	require.NoError(t, err)
	var shown string
	for _, d := range documents {
		text, err := os.ReadFile(d)
		require.NoError(t, err)
		shown += strings.Join(strings.Fields(string(text)), " ")
	}
	descriptions, err := filepath.Glob("*.txt")
	require.NoError(t, err)
	require.Len(t, descriptions, 4)
	for _, path := range descriptions {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		drawn, err := draw(string(text))
		require.NoError(t, err, path)
		name := strings.TrimSuffix(path, ".txt") + ".svg"
		recorded, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.True(t, string(recorded) == drawn, "%s is out of date: go run ./docs/pictures", name)
		about := regexp.MustCompile(`(?m)^text: (.*)$`).FindStringSubmatch(string(text))[1]
		assert.Contains(t, shown, "!["+about+"](pictures/"+name+")")
	}
}

// What does not fit, or is misspelled, is not drawn in silence.
func TestWhatCanNotBeDrawnIsSaid(t *testing.T) {
	for text, want := range map[string]string{
		"lane: a\nbar: 0 1 holds much longer than its bar": "wider", "lane: a\nboc: 0 1": "can't draw", "lane: a": "text: is missing", "lane: a\ntell: 1 b 2": "can't draw",
	} {
		_, err := draw(text)
		assert.ErrorContains(t, err, want, text)
	}
}

// at returns when a lane's leader begins to lead in a picture.
func at(t *testing.T, file, bar string) time.Duration {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	m := regexp.MustCompile(bar).FindSubmatch(text)
	require.NotNil(t, m)
	d, err := time.ParseDuration(string(m[1]) + "s")
	require.NoError(t, err)
	return d
}

// The times in the pictures are those of the real loops, to half a second.
func TestTheTimesInThePicturesAreThoseOfARun(t *testing.T) {
	run := func(t *testing.T, stopped func(first *spindle.Lock, p *spindletest.Process), work time.Duration) time.Duration {
		fake, began := spindletest.NewFake(t), time.Now()
		var leads atomic.Int64
		lead := func(ctx context.Context, _ spindle.Term) { <-ctx.Done(); time.Sleep(work) }
		start := func(id string, lead func(context.Context, spindle.Term)) (*spindle.Lock, *spindletest.Process) {
			p := fake.Process(id)
			l := spindle.New(p.Client, p.Table, "lock", p.Option(), spindle.WithHandover(), spindle.WithLeader(lead))
			require.NoError(t, l.Run(t.Context()))
			synctest.Wait()
			return l, p
		}
		first, p := start("web-1", lead)
		start("web-2", func(ctx context.Context, _ spindle.Term) { leads.Store(int64(time.Since(began))); <-ctx.Done() })
		stopped(first, p)
		time.Sleep(30 * time.Second)
		return time.Duration(leads.Load())
	}
	synctest.Test(t, func(t *testing.T) {
		taken := run(t, func(_ *spindle.Lock, p *spindletest.Process) { time.Sleep(8 * time.Second); p.Cut() }, 0)
		assert.InDelta(t, at(t, "takeover.txt", `bar: ([\d.]+) 20 holds leads`).Seconds(), taken.Seconds(), 0.5)
	})
	synctest.Test(t, func(t *testing.T) {
		handed := run(t, func(l *spindle.Lock, _ *spindletest.Process) {
			time.Sleep(2 * time.Second)
			go func() { _ = l.StepDown(context.Background()) }()
		}, at(t, "handover.txt", `mark: ([\d.]+) work`)-at(t, "handover.txt", `mark: ([\d.]+) ctx`))
		assert.InDelta(t, at(t, "handover.txt", `bar: ([\d.]+) 9 holds leads`).Seconds(), handed.Seconds(), 0.5)
	})
}
