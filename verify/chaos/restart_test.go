//go:build unix

package chaos

import (
	"testing"
	"time"

	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/ddl"
	"github.com/spindle-lock/spindle/internal/testkit/emulator"
	"github.com/spindle-lock/spindle/spindletest"
)

// The emulator is killed and restarts empty, without rows and sessions. The library's loops continue, but a client of
// cloud.google.com/go/spanner v1.95 that had its session in the old emulator never works again. It has one multiplexed
// session, replaces it when it is seven days old, and does not replace it on "Session not found". The processes therefore
// have to be restarted. This is not an issue of the lock, and Spanner itself does not lose sessions. (A client that did not
// have a session yet creates one.)
//
// The register's history is not checked here, because the writes to the old emulator are necessarily lost.
func TestEmulatorComesBackEmpty(t *testing.T) {
	needEmulator(t)
	t.Parallel()
	h := newHistory(t)
	db := newDatabase(t, false)
	team := newTeam(t, h, candidate{Lock: "r", Database: db.Path, Table: db.Table, Lease: lease}, db, teamSize)
	first := team.elected(0, settle)
	for _, m := range team.members {
		require.True(t, h.await(settle, func() bool { return h.lastOf(m.current().who, kindEvent).At > 0 }), "%s saw no leader", m.name)
	}

	db.StopEmulator(t)
	died := now()
	time.Sleep(2 * lease) // the outage itself
	require.True(t, h.await(0, func() bool { return h.holder("r", died+int64(lease)) == nil }), "a holder for more than a lease after Spanner was gone")

	e := restart(t, db)
	for _, m := range team.members {
		m.link.Repoint(e.Addr())
	}
	back := now()
	recovered := h.await(5*lease, func() bool { return h.holder("r", back) != nil })
	t.Logf("processes that were there before the emulator was restarted stand again without being restarted: %v", recovered)

	team.terminate()
	restarted := now()
	for _, m := range team.members {
		m.start()
	}
	assert.Greater(t, team.elected(restarted, settle).token, first.token)
	assert.True(t, h.await(settle, func() bool { return h.accepted("r", restarted) > 0 }), "a write in the new emulator")
	team.terminate()
	v := h.check()
	assert.Empty(t, v.overlaps)
	assert.Empty(t, v.disorder)
}

// restart starts an empty emulator and creates the same database in it.
func restart(t *testing.T, db *spindletest.Database) *emulator.Emulator {
	t.Helper()
	const dialect = databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL
	e, err := emulator.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	require.NoError(t, e.CreateDatabaseAgain(t.Context(), db.Path, dialect, ddl.Statement(dialect, db.Table), registerGoogleSQL))
	return e
}
