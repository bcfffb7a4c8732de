package lock

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
)

// The loss of a lock names what was wrong with the last heartbeat.
func TestALossNamesItsCause(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m := p.mutex("m")
		require.NoError(t, m.Lock(b.Context()))
		p.Refuse(failing(refused(codes.ResourceExhausted), "heartbeat"))
		<-m.Lost()
		assert.NotEmpty(t, p.log.lines("ResourceExhausted"))
		err := m.Unlock(b.Context())
		assert.ErrorIs(t, err, spindle.ErrExpired)
		assert.ErrorContains(t, err, "ResourceExhausted")
	})
}

// Whoever holds a lock in a database that was dropped does not look for another process that took the lock.
func TestALossOfTheWholeTableSaysSo(t *testing.T) {
	inVirtualTime(t, func(b *bed) {
		p := b.process()
		m := p.mutex("m")
		require.NoError(t, m.Lock(b.Context()))
		p.Refuse(failing(mayPass["session"], "heartbeat"))
		time.Sleep(m.contender.config.Lease / 2)
		assert.NotZero(t, m.Token(), "a lost session proves nothing about the lock")
		p.Refuse(failing(fmt.Errorf("%w: %w", table.ErrMissing, mayPass["database"]), "heartbeat"))
		<-m.Lost()
		err := m.Unlock(b.Context())
		assert.ErrorIs(t, err, spindle.ErrSuperseded)
		assert.NotContains(t, err.Error(), spindle.ErrSuperseded.Error())
		assert.ErrorContains(t, err, "the lock table is gone")
		assert.ErrorContains(t, err, "check the database path")
	})
}
