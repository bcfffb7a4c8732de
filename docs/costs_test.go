package docs

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The table of costs is the formula above it, which has the requests per lease that were measured.
func TestTheTableOfCostsFollowsFromTheFormula(t *testing.T) {
	number := func(s string) float64 {
		f, err := strconv.ParseFloat(strings.TrimSuffix(s, " %"), 64)
		require.NoError(t, err)
		return f
	}
	text, err := os.ReadFile("performance.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (\d+) \| (\d+) s \| (.*) \|$`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, rows, 2)
	for _, row := range rows {
		locks, members, lease := number(row[1]), number(row[2]), number(row[3])
		const waiting = 2
		commits := 3 * (locks + members) / lease
		reads := 3.1 * (locks*waiting + members) / lease
		share := commits/3500 + 3.1*(locks*waiting+members*(2*members+1))/lease/22500
		for i, cell := range strings.Split(row[4], " | ") {
			want := []float64{commits, reads, 100 * share, share * 0.9 * 30 * 24}[i]
			assert.InDelta(t, want, number(cell), 0.004*want+0.005, row[0])
		}
	}
	for row, want := range map[string]float64{`a leader at rest \| 2\.9 to ([\d.]+) RPCs a lease`: 3, `a follower at rest \| ([\d.]+) reads a lease`: 3.1,
		`a member of a group at rest, .* \| ([\d.]+), `: 6.1} {
		figure := regexp.MustCompile(row).FindSubmatch(text)
		require.NotNil(t, figure, row)
		assert.InDelta(t, want, number(string(figure[1])), 0.11, row)
	}
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	said := regexp.MustCompile(`one leader and two followers cost ([\d.]+) RPCs per second`).FindSubmatch(readme)
	require.NotNil(t, said)
	assert.InDelta(t, 0.3+0.62, number(string(said[1])), 0.03)
}
