package spindle_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

func TestBadArgumentsAreRefusedAndSayWhy(t *testing.T) {
	db := &spanner.Client{}
	long := strings.Repeat("x", 5000)
	lead := func(context.Context, spindle.Term) {}
	for _, c := range []struct {
		lock *spindle.Lock
		says []string
	}{
		{spindle.New(nil, "locktable", "mylock"), []string{"client is nil", "spindle.Open"}},
		{spindle.New(nil, "locktable", "mylock", spindle.WithSharedRequests()), []string{"client is nil"}},
		{spindle.New(db, "locktable", ""), []string{"name is empty"}},
		{spindle.New(db, "locktable", long), []string{"5000 bytes", "at most 4096"}},
		{spindle.New(db, "locktable", "a\xffb"), []string{`"a\xffb"`, "UTF-8"}},
		{spindle.New(db, "locktable", "mylock_1700000000000000"), []string{`lease row of lock "mylock"`, "16 or more digits"}},
		{spindle.New(db, "locktable", "mylock_17000000000000001"), []string{"lease row"}},
		{spindle.New(db, "", "mylock"), []string{`table name ""`, "identifier"}},
		{spindle.New(db, "lock table", "mylock"), []string{`"lock table"`, "identifier"}},
		{spindle.New(db, "t;DROP TABLE x", "mylock"), []string{"identifier"}},
		{spindle.New(db, "1locks", "mylock"), []string{"identifier"}},
		{spindle.New(db, "a.b.c", "mylock"), []string{"identifier"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithLease(5000)), []string{"WithLease(5µs)", "at least 100ms", "nanoseconds", "WithDuration(5000)"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithDuration(99)), []string{"WithDuration(99)", "at least 100ms"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithDuration(0)), []string{"WithDuration(0)", "at least 100ms"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithDuration(-5000)), []string{"WithDuration(-5000)"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithDuration(math.MaxInt64)), []string{"milliseconds", "24h"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithLease(25*time.Hour)), []string{"WithLease(25h0m0s)", "at most 24h"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithHeartbeat(10*time.Second)), []string{"WithHeartbeat(10s)", "at most nine tenths of the lease of 10s"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithHeartbeat(-1)), []string{"WithHeartbeat(-1ns)"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithLease(time.Second), spindle.WithPoll(2*time.Second)), []string{"WithPoll(2s)", "shorter than the lease of 1s"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithPoll(0)), []string{"WithPoll(0s)"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithLockDelay(-time.Second)), []string{"WithLockDelay(-1s)"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithID("")), []string{"WithID"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithID("\xff")), []string{"WithID", "UTF-8"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithValue("\xff")), []string{"WithValue", "UTF-8"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithValue(strings.Repeat("x", 1<<20))), []string{"WithValue", "65536"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithReclaim()), []string{"WithReclaim", "WithID"}},
		{spindle.New(db, "locktable", "mylock", nil), []string{"option 1 is nil"}},
		{spindle.New(db, "locktable", "mylock", spindle.Options(spindle.WithID("a"), nil)), []string{"option 2 is nil"}},
		{spindle.New(db, "locktable", "mylock", struct{ spindle.Option }{spindle.WithPoll(1)}), []string{"option 1", "wrapped"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithLeader(nil)), []string{"WithLeader(nil)"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithLeader(lead), spindle.WithLeader(lead)), []string{"WithLeader is given twice"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithStall(time.Minute)), []string{"WithStall(1m0s)", "needs WithLeader"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithStall(3*time.Second)), []string{"WithStall(3s)", "at least the heartbeat interval of 3.33"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithStall(0)), []string{"WithStall(0s)", "omit the option"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithKeepOnReturn()), []string{"WithKeepOnReturn", "needs WithLeader"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithPriority(10)), []string{"WithPriority(10)", "0 to 9"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithObserver(nil)), []string{"WithObserver(nil)"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithLogger(nil)), []string{"WithLogger(nil)"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithMeterProvider(nil)), []string{"WithMeterProvider(nil)", "noop.NewMeterProvider()"}},
		{spindle.New(db, "locktable", "mylock", spindle.WithTracerProvider(nil)), []string{"WithTracerProvider(nil)", "noop.NewTracerProvider()"}},
		{spindle.New(nil, "a b", "", spindle.WithDuration(1)), []string{"client is nil", "identifier", "name is empty", "WithDuration(1)"}},
	} {
		err := c.lock.Run(t.Context())
		t.Log(err)
		for _, say := range c.says {
			assert.ErrorContains(t, err, say)
		}
		held, token := c.lock.HasLock()
		assert.False(t, held)
		assert.Zero(t, token)
		_, leaderErr := c.lock.Leader(t.Context())
		assert.Equal(t, err, leaderErr)
		assert.Equal(t, err, c.lock.StepDown(t.Context()))
		_, requestErr := c.lock.RequestHandover(t.Context(), 1)
		assert.Equal(t, err, requestErr)
		_, waitErr := c.lock.Wait(t.Context())
		assert.Equal(t, err, waitErr)
		_, waitErr = c.lock.WaitElected(t.Context())
		assert.Equal(t, err, waitErr)
		assert.Equal(t, err, c.lock.Err())
		assert.Zero(t, c.lock.FenceStatement(1, 1), "a name or table that is none is in no SQL")
		_, applyErr := c.lock.Apply(t.Context(), 1, nil)
		assert.Equal(t, err, applyErr)
		_, txnErr := c.lock.ReadWriteTransaction(t.Context(), 1, nil)
		assert.Equal(t, err, txnErr)
		assert.Equal(t, err, c.lock.Health())
		assert.Equal(t, err, c.lock.Live(nil))
		assert.Equal(t, err, c.lock.Leading(nil))
	}
}

func TestBadCallsOfRunAreRefused(t *testing.T) {
	l := spindle.New(&spanner.Client{}, "locktable", "mylock")
	var nilContext context.Context
	assert.ErrorContains(t, l.Run(nilContext), "ctx is nil")
	assert.ErrorContains(t, l.Run(t.Context(), nil), "done channel is nil")
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("SIGTERM"))
	assert.ErrorContains(t, l.Run(ended), "ctx had already ended, so nothing was started: SIGTERM")
	assert.ErrorContains(t, l.Run(t.Context(), make(chan error, 1), make(chan error, 1)), "2 done channels")
}

func TestGoodNamesAreNotRefused(t *testing.T) {
	for _, name := range []string{"x", "my lock/1", "mylock_12", "mylock_123456789012345", "1234567890123456", "замок", strings.Repeat("x", 4096)} {
		fleet.InVirtualTime(t, func(b *fleet.Fleet) {
			a := b.Named(name, "a")
			b.Run(a)
			assert.True(t, a.Has(), name)
			b.End(a)
		})
	}
}

func TestToken(t *testing.T) {
	at := time.Date(2026, 5, 17, 9, 30, 0, 123456000, time.UTC)
	token := spindle.Token(at.UnixMicro())
	assert.Equal(t, at, token.Time())
	assert.Equal(t, "1779010200123456", token.String())
	assert.Less(t, token, token+1)
}

// Code that has to agree with a lock's options can read them before Run, without an RPC.
func TestSettingsAreWhatTheOptionsComeTo(t *testing.T) {
	seam := options.Option(func(c *options.Config) { c.Store = &memstore.Store{} })
	s := spindle.New(nil, "locktable", "mylock", seam).Settings()
	assert.NotEmpty(t, s.ID)
	assert.Equal(t, spindle.Settings{ID: s.ID, Lease: 10 * time.Second, Heartbeat: 10 * time.Second / 3}, s)
	given := spindle.New(nil, "locktable", "mylock", seam, spindle.WithID("a"), spindle.WithLease(time.Minute), spindle.WithHeartbeat(time.Second))
	assert.Equal(t, spindle.Settings{ID: "a", Lease: time.Minute, Heartbeat: time.Second}, given.Settings())
}
