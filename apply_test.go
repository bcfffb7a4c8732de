//go:build unix

package spindle_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/group"
	"github.com/spindle-lock/spindle/lock"
	"github.com/spindle-lock/spindle/spindletest"
)

// committed records the transaction tags of commits.
type committed struct {
	mu   sync.Mutex
	tags map[string]bool
}

func (c *committed) option() option.ClientOption {
	return option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if r, ok := req.(*sppb.CommitRequest); ok {
				c.mu.Lock()
				c.tags[r.GetRequestOptions().GetTransactionTag()] = true
				c.mu.Unlock()
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
}

// Whatever a program holds, the options that it gives to Apply reach Spanner: a change stream, for example, must not show writes
// that were excluded from it.
func TestEveryApplyPassesItsOptionsOn(t *testing.T) {
	inBothDialects(t, func(t *testing.T, db *spindletest.Database) {
		seen := &committed{tags: map[string]bool{}}
		client, ctx := connect(t, db, seen.option()), t.Context()
		terms, partitions := make(chan spindle.Term, 1), make(chan group.Partition, 1)
		leader := stand(t, client, db, spindle.WithLease(time.Minute), spindle.WithLeader(func(ctx context.Context, term spindle.Term) {
			terms <- term
			<-ctx.Done()
		}))
		member := group.New(client, db.Table, "orders", group.Named("p"), spindle.WithLease(time.Minute), group.WithInitialDelay(0),
			group.WithWork(func(ctx context.Context, p group.Partition) error {
				partitions <- p
				<-ctx.Done()
				return nil
			}))
		running, stop := context.WithCancel(ctx)
		stopped := make(chan error, 1)
		require.NoError(t, member.Run(running, stopped))
		defer func() { stop(); assert.NoError(t, <-stopped) }()
		mutex, set := lock.New(client, db.Table, "mutex"), lock.All(client, db.Table, []string{"a", "b"})
		require.NoError(t, mutex.Lock(ctx))
		defer func() { assert.NoError(t, mutex.Unlock(context.Background())) }()
		require.NoError(t, set.Lock(ctx))
		defer func() { assert.NoError(t, set.Unlock(context.Background())) }()
		permit, err := lock.NewSemaphore(client, db.Table, "permits", 2).Acquire(ctx)
		require.NoError(t, err)
		defer func() { assert.NoError(t, permit.Release(context.Background())) }()
		term, partition := <-terms, <-partitions

		type apply func(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error)
		for name, apply := range map[string]apply{
			"Lock": func(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
				return leader.Apply(ctx, term.Token(), ms, opts...)
			},
			"several": func(ctx context.Context, ms []*spanner.Mutation, opts ...spanner.ApplyOption) (time.Time, error) {
				return spindle.Apply(ctx, []spindle.Holding{mutex, permit}, ms, opts...)
			},
			"Term": term.Apply, "Mutex": mutex.Apply, "Set": set.Apply, "Permit": permit.Apply, "Partition": partition.Apply, "Fence": mutex.FenceIn(ctx).Apply,
		} {
			_, err := apply(ctx, write(1), spanner.TransactionTag("tag of "+name))
			assert.NoError(t, err, name)
			seen.mu.Lock()
			assert.True(t, seen.tags["tag of "+name], name)
			seen.mu.Unlock()
		}
	})
}
