//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
)

// crons are machines whose timers fire every two seconds, each at another time, and the job that they start: it takes
// milliseconds, notes its key and token, and fails now and then.
type crons struct {
	*world
	mu   sync.Mutex
	done map[string]table.Token // what was seen to be recorded: each key, and under which token
	said int                    // how often exec found that it was done already
	dead int                    // how many of them were killed
}

const (
	firesEvery = 2 * time.Second
	jobFails   = 9
	lostLock   = 76
)

// job notes its run in one write, which is appended.
const job = `echo $SPINDLE_KEY $SPINDLE_TOKEN >>runs; case $SPINDLE_TOKEN in *[01]) exit 9; esac`

var (
	recorded = regexp.MustCompile(`released job: (\S+) is done`)
	holding  = regexp.MustCompile(`holding job, token (\d+)`)
	already  = regexp.MustCompile(`job: (\S+ was already done|skipping \S+ because the larger key)`)
)

// fires runs exec as cron does, and kills it after a time, unless that is zero. It reports whether the tick is done.
func (c *crons) fires(kill time.Duration) bool {
	var said bytes.Buffer
	p := exec.Command("spindle", "exec", "--name", "job", "--every", firesEvery.String(), "--lease", "10s", "--", "sh", "-c", job)
	p.Dir, p.Stderr = c.dir, &said
	p.Env = append(os.Environ(), "SPINDLE_DB="+c.path, "SPANNER_EMULATOR_HOST="+c.emulator.Addr())
	p.WaitDelay = patience // the watchdog has the same standard error
	if !assert.NoError(c.t, p.Start()) {
		return false
	}
	if kill > 0 {
		time.AfterFunc(kill, func() { _ = p.Process.Kill() })
	}
	_ = p.Wait()
	code, text := p.ProcessState.ExitCode(), said.String()
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := recorded.FindStringSubmatch(text); m != nil {
		c.record(m[1], holding.FindStringSubmatch(text)[1])
		return true
	}
	if already.MatchString(text) {
		c.said++
		return true
	}
	switch {
	case kill > 0 && code == -1:
		c.dead++
	case code == lostLock: // a machine may be too busy for a lease
	default:
		assert.Equal(c.t, jobFails, code, "%s", text)
	}
	return false
}

func (c *crons) record(key, token string) {
	var n table.Token
	_, err := fmt.Sscan(token, &n)
	assert.NoError(c.t, err)
	if was, ok := c.done[key]; ok {
		assert.Equal(c.t, was, n, "%s was recorded twice", key)
	}
	c.done[key] = n
}

// watch sees what execs have recorded that are killed before they say so.
func (c *crons) watch(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	db, err := spanner.NewClientWithConfig(ctx, c.path, spanner.ClientConfig{DisableNativeMetrics: true}, c.emulator.ClientOptions()...)
	if !assert.NoError(c.t, err) {
		return
	}
	defer db.Close()
	locks := table.Table{Store: table.Spanner{DB: db, Table: "locktable"}}
	for ctx.Err() == nil {
		if d, _, err := locks.Done(ctx, table.Strong, "job"); err == nil && d.Key != "" {
			c.mu.Lock()
			c.record(d.Key, d.Token.String())
			c.mu.Unlock()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A fleet's cron: no job begins for a tick that is recorded, however often exec is killed, and every tick that a machine
// asks for is done in the end.
func TestATickIsDoneOnceByAFleetOfCrons(t *testing.T) {
	c := &crons{world: newWorld(t), done: map[string]table.Token{}}
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go c.watch(ctx, watched)
	var machines sync.WaitGroup
	end := time.Now().Add(6 * firesEvery)
	for i := range 4 {
		machines.Go(func() {
			for next := time.Now().Add(time.Duration(i) * firesEvery / 4); next.Before(end); next = next.Add(firesEvery) {
				time.Sleep(time.Until(next))
				kill := time.Duration(0)
				if rand.N(2) == 0 {
					kill = time.Millisecond + rand.N(60*time.Millisecond)
				}
				c.fires(kill)
			}
			for tries := 0; !c.fires(0); tries++ { // no more faults but those of the job
				if !assert.Less(t, tries, 100) {
					return
				}
			}
		})
	}
	machines.Wait()
	stop()
	<-watched

	text, err := os.ReadFile(filepath.Join(c.dir, "runs"))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var key string
		var token table.Token
		_, err := fmt.Sscan(line, &key, &token)
		require.NoError(t, err, line)
		for was, under := range c.done {
			assert.False(t, key <= was && token > under, "%s ran under token %v, after %s was recorded under %v", key, token, was, under)
		}
	}
	t.Logf("%d runs, %d ticks done, %d found done, %d killed", strings.Count(string(text), "\n"), len(c.done), c.said, c.dead)
	assert.NotZero(t, c.dead)
	assert.NotZero(t, c.said)
	assert.Greater(t, len(c.done), 2)
	for key, token := range c.done {
		assert.Contains(t, string(text), fmt.Sprint(key, " ", token, "\n"), "recorded, and not run")
	}
}
