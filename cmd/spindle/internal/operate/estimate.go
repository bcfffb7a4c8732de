package operate

import (
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/flags"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/doctor"
)

const (
	month     = 30 * 24 * time.Hour
	nodeUnits = 1000 // processing units
	fewUnits  = 100  // the smallest instance

	measured = "requests per lease: measured with BenchmarkAtRest in packages spindle and group (see \"Cost\" in the README)"
	capacity = "capacity of a node: Google's figures for 1 KB rows on a regional SSD instance at 100 % CPU; to use other figures, set --node-reads and --node-writes"
)

// A fleet is the set of locks and group members whose cost doctor estimates.
type fleet struct {
	locks      int
	candidates int
	members    int
	partitions int
	lease      time.Duration
	handover   bool

	nodeReads  float64 // a second
	nodeWrites float64
	nodePrice  float64 // an hour
}

func (w *fleet) flags(f *pflag.FlagSet) {
	f.IntVar(&w.locks, "locks", 0, "estimate the cost of this `number` of locks")
	f.IntVar(&w.candidates, "candidates", 3, "the `number` of candidates for each lock, including its holder")
	f.IntVar(&w.members, "members", 0, "estimate the cost of a group with this `number` of members")
	f.IntVar(&w.partitions, "partitions", 0, "the `number` of partitions in that group")
	f.DurationVar(&w.lease, "lease", 10*time.Second, "the `lease` to assume in the estimate")
	f.BoolVar(&w.handover, "handover", false, "assume that holders use --handover")
	f.Float64Var(&w.nodePrice, "node-price", 0, "the price of one node per hour, in your `currency`")
	f.Float64Var(&w.nodeReads, "node-reads", 22500, "the `reads` per second that a node can serve if it does nothing else")
	f.Float64Var(&w.nodeWrites, "node-writes", 3500, "the `commits` per second that a node can serve if it does nothing else")
	flags.OnlyOnCommandLine(f, "locks", "candidates", "members", "partitions", "lease", "handover")
}

// asked reports whether there is anything to estimate.
func (w *fleet) asked(f *pflag.FlagSet) bool {
	return f.Changed("locks") || f.Changed("members") || f.Changed("partitions")
}

func (w *fleet) check(f *pflag.FlagSet) error {
	for _, name := range []string{"candidates", "lease", "handover"} {
		if f.Changed(name) && !w.asked(f) {
			return exit.Misuse("--%s applies only to estimates; also give --locks or --members", name)
		}
	}
	switch {
	case w.locks < 0 || w.members < 0 || w.partitions < 0:
		return exit.Misuse("--locks %d, --members %d, --partitions %d: must not be negative", w.locks, w.members, w.partitions)
	case w.candidates < 1:
		return exit.Misuse("--candidates %d: must be at least 1, because the holder is one of the candidates", w.candidates)
	case w.lease < 100*time.Millisecond:
		return exit.Misuse("--lease %v: the lease must be at least 100ms", w.lease)
	case w.partitions > 0 && w.members == 0:
		return exit.Misuse("--partitions %d: also give --members, because the cost of a group depends on its members", w.partitions)
	case w.nodePrice < 0 || w.nodeReads <= 0 || w.nodeWrites <= 0:
		return exit.Misuse("--node-price %v, --node-reads %v, --node-writes %v: must be positive", w.nodePrice, w.nodeReads, w.nodeWrites)
	}
	return nil
}

// An Estimate is the cost of a fleet while no lock or partition changes hands.
type Estimate struct {
	pricedFleet
	Commits      float64 `json:"commits_a_second"`
	Reads        float64 `json:"reads_a_second"`
	Rows         float64 `json:"rows_read_a_second"`
	RPCs         float64 `json:"rpcs_a_second"`
	MonthCommits int64   `json:"commits_a_month"`
	MonthReads   int64   `json:"reads_a_month"`
	share
	Sources []string `json:"sources"`
}

// pricedFleet describes the fleet that an Estimate is for.
type pricedFleet struct {
	Lease      float64 `json:"lease_seconds"`
	Locks      int     `json:"locks"`
	Candidates int     `json:"candidates"`
	Members    int     `json:"members"`
	Partitions int     `json:"partitions"`
	Handover   bool    `json:"handover"`
}

// share is the share of a node that a fleet uses, and its price.
type share struct {
	Node       float64  `json:"share_of_a_node"`
	Hundred    float64  `json:"share_of_100_processing_units"`
	NodeReads  float64  `json:"node_reads_a_second"`
	NodeWrites float64  `json:"node_writes_a_second"`
	NodePrice  float64  `json:"node_price_an_hour,omitempty"`
	Price      *float64 `json:"price_a_month,omitempty"`
}

// estimate computes the cost from the number of requests. A group member makes as many requests as a lock's holder and
// a waiting candidate together. Each time it reads the group, it reads the plan's row and two rows for each member.
//
// The share of a node is an upper bound, because Google's figures are for reads of 1 KB rows, and lock rows are
// smaller.
func (w *fleet) estimate() Estimate {
	one := doctor.CostAt(w.lease)
	commits, reads := float64(one.Commits)/month.Seconds(), float64(one.Reads)/month.Seconds()
	locks, others, members := float64(w.locks), float64(w.locks*(w.candidates-1)), float64(w.members)
	e := Estimate{pricedFleet: pricedFleet{w.lease.Seconds(), w.locks, w.candidates, w.members, w.partitions, w.handover},
		share: share{NodeReads: w.nodeReads, NodeWrites: w.nodeWrites, NodePrice: w.nodePrice}, Sources: []string{measured, capacity}}
	e.Commits = (locks + members) * commits
	e.Reads = (others + members) * reads
	e.Rows = others*reads + members*reads*(2*members+1)
	if w.handover {
		asked := (locks + members) / w.lease.Seconds()
		e.Reads, e.Rows = e.Reads+asked, e.Rows+asked
	}
	e.RPCs = math.Round((e.Commits+e.Reads)*1e6) / 1e6
	e.MonthCommits, e.MonthReads = int64(e.Commits*month.Seconds()), int64(e.Reads*month.Seconds())
	e.Node = e.Commits/w.nodeWrites + e.Rows/w.nodeReads
	e.Hundred = e.Node * nodeUnits / fewUnits
	if w.nodePrice > 0 {
		price := e.Node * w.nodePrice * month.Hours()
		e.Price = &price
	}
	return e
}

func (e Estimate) print(p *terminal.Terminal) {
	line := func(format string, args ...any) {
		for _, text := range terminal.Wrap(fmt.Sprintf(format, args...), p.ReadableWidth()) {
			fmt.Fprintln(p, text)
		}
	}
	what := ""
	if e.Locks > 0 {
		what = fmt.Sprintf("%s with %s each", terminal.Count(e.Locks, "lock"), terminal.Count(e.Candidates, "candidate"))
	}
	if e.Members > 0 {
		what = terminal.Join(", and ", what, fmt.Sprintf("a group of %s with %s", terminal.Count(e.Members, "member"), terminal.Count(e.Partitions, "partition")))
	}
	if what == "" {
		what = "nothing"
	}
	line("%s, with a lease of %v, as long as nothing changes hands:", what, time.Duration(e.Lease*float64(time.Second)))
	line("  per second  %s commits and %s reads (%s RPCs)", figure(e.Commits), figure(e.Reads), figure(e.RPCs))
	line("  per month   %s commits and %s reads", thousands(e.MonthCommits), thousands(e.MonthReads))
	line("  capacity    %s of a node, or %s of 100 processing units", percent(e.Node), percent(e.Hundred))
	if e.Price != nil {
		line("  price       %.2f a month for that share of a node, at %v an hour", *e.Price, e.NodePrice)
	}
	if e.Hundred > 1 {
		line("  100 processing units are not enough")
	}
	if e.Partitions > 0 {
		line("Partitions cost nothing as long as they stay with the same member.")
	}
	line("")
	line("Spanner charges for the instance, not for requests. Each takeover adds two reads and two commits, and each running spindle serve reads the table once a second.")
	for _, source := range e.Sources {
		line("- %s", source)
	}
}

// figure formats a rate with three significant digits, or as a whole number if it is 100 or more.
func figure(f float64) string {
	if f >= 100 {
		return thousands(int64(f + 0.5))
	}
	return fmt.Sprintf("%.3g", f)
}

// percent formats a share with two significant digits, or as a whole number if it is 100 % or more.
func percent(share float64) string {
	if share >= 0.995 { // otherwise, two digits would be 1e+02
		return thousands(int64(math.Round(share*100))) + " %"
	}
	return fmt.Sprintf("%.2g %%", share*100)
}

// thousands formats a number with its digits in groups of three.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
