package share

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/testkit/fleet"
)

// Every order of up to seven ends of terms and successes: a member that was cut off does not rest, one that had a long term or
// has recovered begins anew, other rests double up to their limit, and a term is a trial exactly from a useless term until a success.
func TestEveryOrderOfRestsKeepsTheRules(t *testing.T) {
	const lease = time.Second
	most := 7
	if fleet.Brief() {
		most = 5
	}
	kinds := map[string]Ending{
		"short":          {Lasted: lease},
		"long":           {Lasted: longestRest * lease},
		"cut off":        {Lasted: lease, Silence: lease},
		"useless":        {Lasted: 2 * lease, Useless: true},
		"silent useless": {Lasted: 2 * lease, Silence: lease, Useless: true},
		"recovers":       {},
	}
	orders := 0
	var visit func(path []string, f Fitness, useless bool, before time.Duration)
	visit = func(path []string, f Fitness, useless bool, before time.Duration) {
		orders++
		require.Equal(t, useless, f.Trial, "a trial: %v", path)
		if len(path) == most {
			return
		}
		for kind, e := range kinds {
			f, path := f, append(path[:len(path):len(path)], kind)
			if kind == "recovers" {
				f.Recovered()
				visit(path, f, false, -1)
				continue
			}
			bad := e.Useless
			pause := f.CoolDown(e)
			switch {
			case kind == "cut off":
				require.Zero(t, pause, "%v", path)
				pause = before
			case kind == "long" || before < 0:
				require.Zero(t, pause, "%v", path)
			default:
				require.GreaterOrEqual(t, pause, max(min(2*before, longestRest*lease), lease), "the rest grows: %v", path)
				require.LessOrEqual(t, pause, min(max(2*before, lease), longestUselessCoolDown*lease), "but not too much: %v", path)
			}
			if !useless && !bad {
				require.LessOrEqual(t, pause, longestRest*lease, "%v", path)
			}
			visit(path, f, useless || bad, pause)
		}
	}
	visit(nil, Fitness{Lease: lease}, false, -1)
	t.Logf("%d orders", orders)
}
