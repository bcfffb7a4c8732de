package lock

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The timers of a machine follow its time zone, while the time of a call comes from Spanner, in UTC.
func TestACallIsJudgedByTheZoneOfItsMachine(t *testing.T) {
	const zone = "TZ=Europe/Berlin"
	if !slices.Contains(os.Environ(), zone) {
		elsewhere := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		elsewhere.Env = append(os.Environ(), zone)
		said, err := elsewhere.CombinedOutput()
		require.NoError(t, err, "%s", said)
		return
	}
	inVirtualTime(t, func(b *bed) {
		time.Sleep(time.Until(time.Date(2000, 1, 5, 13, 30, 0, 0, time.Local)))
		p := b.process()
		_, err := p.once("daily").Do(b.Context(), Every(24*time.Hour), succeed)
		require.NoError(t, err)
		assert.Len(t, p.log.lines("clocks are set forward on 2000-03-26"), 1)
	})
}
