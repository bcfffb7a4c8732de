package operate

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

func priced(w fleet) Estimate {
	w.lease, w.nodeReads, w.nodeWrites = 10*time.Second, 22500, 3500
	if w.candidates == 0 {
		w.candidates = 1
	}
	return w.estimate()
}

// What doctor estimates is what the README says was measured.
func TestAnEstimateHasTheFiguresOfTheReadme(t *testing.T) {
	readme, err := os.ReadFile("../../../../README.md")
	require.NoError(t, err)
	figure := func(row string) float64 {
		match := regexp.MustCompile(row).FindSubmatch(readme)
		require.NotNil(t, match, row)
		f, err := strconv.ParseFloat(string(match[1]), 64)
		require.NoError(t, err)
		return f
	}
	leader, member := priced(fleet{locks: 1}), priced(fleet{members: 1, partitions: 10_000})
	both := priced(fleet{locks: 1, candidates: 2})
	assert.InDelta(t, figure(`a leader at rest \| 2\.9 to ([\d.]+) RPCs a lease`), 10*leader.RPCs, 0.11)
	assert.InDelta(t, figure(`a follower at rest \| ([\d.]+) reads a lease`), 10*(both.RPCs-leader.RPCs), 0.05)
	assert.InDelta(t, figure(`a member of a group at rest, .* \| ([\d.]+), `), 10*member.RPCs, 0.2)
	assert.InDelta(t, figure(`one leader and two followers costs ([\d.]+) RPCs per second`), priced(fleet{locks: 1, candidates: 3}).RPCs, 0.05)
	assert.InDelta(t, 0.1, priced(fleet{locks: 1, handover: true}).Reads, 1e-9, "a read a lease more")
}

func TestAnEstimateIsAShareOfANodeAndMoney(t *testing.T) {
	e := priced(fleet{locks: 50, candidates: 6, members: 6, partitions: 64, nodePrice: 0.9})
	assert.InDelta(t, 16.8, e.Commits, 1e-9)
	assert.InDelta(t, 79.36, e.Reads, 1e-9)
	assert.EqualValues(t, 43_545_600, e.MonthCommits)
	assert.InDelta(t, 16.8/3500+(77.5+1.86*13)/22500, e.Node, 1e-9)
	assert.InDelta(t, 10*e.Node, e.Hundred, 1e-9)
	assert.InDelta(t, e.Node*0.9*720, *e.Price, 1e-9)
	assert.Nil(t, priced(fleet{locks: 1}).Price, "no price is known that nobody has given")
	for _, width := range []int{0, 20, 80} {
		var b bytes.Buffer
		e.print(&terminal.Terminal{Writer: &b, Width: width})
		for line := range strings.Lines(b.String()) {
			assert.True(t, width == 0 || terminal.Length(strings.TrimRight(line, "\n")) <= width, line)
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		for _, want := range []string{"50 locks with 6 candidates each, and a group of 6 members with 64 partitions", "43,545,600 commits", "of 100 processing units", "measured", "Google's figures"} {
			assert.Contains(t, text, want)
		}
	}
}

func TestAPercentageHasNoExponent(t *testing.T) {
	for share, want := range map[float64]string{0.00011: "0.011 %", 0.0567: "5.7 %", 0.99: "99 %", 0.996: "100 %", 1.133: "113 %", 12.5: "1,250 %"} {
		assert.Equal(t, want, percent(share))
	}
}

// Each row of the table in docs/costs.md begins with flags of doctor. The other cells are what doctor prints for them.
func TestTheTableOfCostsIsWhatDoctorPrints(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/costs.md")
	require.NoError(t, err)
	assumed := regexp.MustCompile(`spindle doctor --locks 50 (--candidates 3 --lease 10s --node-price ([\d.]+))`).FindSubmatch(text)
	require.NotNil(t, assumed)
	rows := regexp.MustCompile("(?m)^\\| `(--[^`]*)` \\| (.*) \\|$").FindAllSubmatch(text, -1)
	require.Len(t, rows, 5)
	for _, row := range rows {
		var w fleet
		f := pflag.NewFlagSet("doctor", pflag.ContinueOnError)
		w.flags(f)
		require.NoError(t, f.Parse(strings.Fields(string(assumed[1])+" "+string(row[1]))))
		require.NoError(t, w.check(f))
		var b bytes.Buffer
		w.estimate().print(&terminal.Terminal{Writer: &b})
		cells := strings.Split(string(row[2]), " | ")
		require.Len(t, cells, 5)
		assert.Contains(t, b.String(), cells[0]+" commits and "+cells[1]+" reads (", "%s", row[1])
		assert.Contains(t, b.String(), " "+cells[2]+" of a node, or "+cells[3]+" of 100 processing units", "%s", row[1])
		assert.Contains(t, b.String(), " "+cells[4]+" a month", "%s", row[1])
	}
	price, err := strconv.ParseFloat(string(assumed[2]), 64)
	require.NoError(t, err)
	assert.Contains(t, string(text), strconv.FormatFloat(price*month.Hours()*fewUnits/nodeUnits, 'f', 2, 64)+" a month")
}
