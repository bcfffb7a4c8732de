package fence_test

import (
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	sppb "cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/fence"
)

// The fence holds only under serializable isolation, so neither the caller nor the client's settings can choose the
// isolation level. All other options can be chosen.
func TestTheCallersOptionsDoNotWeakenTheFence(t *testing.T) {
	weak, delay := sppb.TransactionOptions_REPEATABLE_READ, 7*time.Millisecond
	commit := spanner.CommitOptions{MaxCommitDelay: &delay}
	opts := []spanner.ApplyOption{spanner.IsolationLevel(weak), spanner.Priority(sppb.RequestOptions_PRIORITY_LOW),
		spanner.TransactionTag("mine"), spanner.ApplyCommitOptions(commit)}
	clients := map[string]spanner.ClientConfig{
		"a plain client": {},
		"a weak client": {ApplyOptions: opts, TransactionOptions: spanner.TransactionOptions{IsolationLevel: weak, CommitOptions: commit,
			CommitPriority: sppb.RequestOptions_PRIORITY_LOW, TransactionTag: "mine"}},
	}
	for client, config := range clients {
		for how, try := range map[string]func(fence.Fence) error{
			"Apply": func(f fence.Fence) error { _, err := f.Apply(t.Context(), write(), opts...); return err },
			"Apply at least once": func(f fence.Fence) error {
				_, err := f.Apply(t.Context(), write(), append(opts, spanner.ApplyAtLeastOnce())...)
				return err
			},
			"a transaction": func(f fence.Fence) error { _, err := f.ReadWriteTransaction(t.Context(), within); return err },
		} {
			s, _ := serve(t, leaseA, own)
			require.NoError(t, try(behind(s.client(t, config), "a")))
			require.Len(t, s.commits, 1)
			sent := s.commits[0]
			for _, o := range append(s.begins, sent.GetSingleUseTransaction()) {
				if o != nil {
					assert.Equal(t, sppb.TransactionOptions_SERIALIZABLE, o.GetIsolationLevel(), "%s of %s", how, client)
				}
			}
			if how != "a transaction" || client == "a weak client" {
				assert.Equal(t, sppb.RequestOptions_PRIORITY_LOW, sent.GetRequestOptions().GetPriority(), "%s of %s", how, client)
				assert.Equal(t, "mine", sent.GetRequestOptions().GetTransactionTag(), "%s of %s", how, client)
				assert.Equal(t, delay, sent.GetMaxCommitDelay().AsDuration(), "%s of %s", how, client)
			}
		}
	}
}

// A slice that the caller passes is not modified, even if it has spare capacity.
func TestWhatTheCallerGivesIsLeftAsItIs(t *testing.T) {
	_, db := serve(t, leaseA, own)
	opts, ms := make([]spanner.ApplyOption, 1, 4), make([]*spanner.Mutation, 1, 4)
	opts[0], ms[0] = spanner.TransactionTag("mine"), write()[0]
	_, err := behind(db, "a").Apply(t.Context(), ms, opts...)
	require.NoError(t, err)
	assert.Nil(t, opts[:2][1])
	assert.Nil(t, ms[:2][1])
	assert.Equal(t, write()[0], ms[0])
}
