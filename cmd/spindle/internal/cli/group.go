package cli

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// A group is its members and partitions at one instant.
type group struct {
	prefix     string          // what their locks' names begin with
	members    []table.Listing // of all slots that were ever in use
	partitions []table.Listing
}

// gather takes the groups out of the locks, if the prefix is of all that a group has. What else there is comes first.
func gather(found []table.Listing, prefix string) (locks []table.Listing, groups []*group) {
	for _, l := range found {
		part, _ := table.PartOf(l.Name)
		of := table.GroupPrefix(part.Group)
		if !l.IsPart() || !strings.HasPrefix(of, prefix) {
			locks = append(locks, l)
			continue
		}
		if len(groups) == 0 || groups[len(groups)-1].prefix != of {
			groups = append(groups, &group{prefix: of}) // they come in the order of their names
		}
		g := groups[len(groups)-1]
		if part.Partition == "" {
			g.members = append(g.members, l)
		} else {
			g.partitions = append(g.partitions, l)
		}
	}
	for _, g := range groups {
		slices.SortStableFunc(g.partitions, func(a, b table.Listing) int { return byNumber(partitionOf(a), partitionOf(b)) })
	}
	return locks, groups
}

// byNumber orders names as people do: 9 before 10.
func byNumber(a, b string) int {
	if strings.Trim(a+b, "0123456789") == "" {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

func partitionOf(l table.Listing) string {
	part, _ := table.PartOf(l.Name)
	return part.Partition
}

func slotOf(name string) string { return name[len(name)-4:] }

func countHeld(all []table.Listing) (n int) {
	for _, l := range all {
		if l.IsHeld() {
			n++
		}
	}
	return n
}

// nobody is how many partitions no member has.
func (g *group) nobody() int { return len(g.partitions) - countHeld(g.partitions) }

// has are the partitions of each member, by the name of its lock.
func (g *group) has() map[string][]string {
	has := map[string][]string{}
	for _, l := range g.partitions {
		if l.IsHeld() {
			has[l.Member.Name] = append(has[l.Member.Name], partitionOf(l))
		}
	}
	return has
}

// state is the worst that is to be said of its locks: it is held if all partitions are.
func (g *group) state() table.State {
	states := map[table.State]bool{}
	for _, l := range slices.Concat(g.members, g.partitions) {
		states[l.State()] = true
	}
	switch here := countHeld(g.members); {
	case states[table.Unreadable]:
		return table.Unreadable
	case states[table.Orphaned]:
		return table.Orphaned
	case here > 0 && g.nobody() == 0:
		return table.Held
	case here > 0 || countHeld(g.partitions) > 0:
		return partial
	case states[table.Expired]:
		return table.Expired
	}
	return table.Released
}

// sum says how many members and partitions there are, and what is wrong with them.
func (g *group) sum() string {
	text := count(countHeld(g.members), "member") + ", " + count(len(g.partitions), "partition")
	if n := g.nobody(); n > 0 {
		text += fmt.Sprintf(", %d without a holder", n)
	}
	states := map[table.State]int{}
	for _, l := range g.members {
		states[l.State()]++
	}
	for _, s := range []table.State{table.Leaving, table.Expired} {
		if states[s] > 0 {
			text += fmt.Sprintf(", %s %s", count(states[s], "member"), s)
		}
	}
	return text
}

// entry is the whole group on one line: as old as its oldest member, and as late as its latest.
func (g *group) entry() entry {
	since, beat, lease := "-", "-", "-"
	var order sortKeys
	var oldest table.Token
	var late, longest time.Duration
	for _, l := range g.members {
		if l.IsHeld() {
			began := cmp.Or(l.LeaseRecord.Since, l.Token)
			oldest = min(cmp.Or(oldest, began), began)
			late, longest = max(late, l.At.Sub(l.Heartbeat)), max(longest, l.LeaseRecord.Lease)
			since, beat, lease = short(l.At.Sub(oldest.Time())), short(late), longest.String()
			order = sortKeys{since: oldest.Time(), beat: l.At.Add(-late), lease: longest}
		}
	}
	sum := "group: " + g.sum()
	return entry{name: g.prefix, state: g.state(), order: order, mark: sum + string(g.state()), json: g.json(),
		row: row{cells: []string{show(g.prefix), string(g.state()), "-", since, beat, lease}, more: []string{"-", "-", "-"}, style: styles[g.state()],
			tail: sum, last: sum, prose: true}}
}

type groupJSON struct {
	Name          string    `json:"name"`
	State         string    `json:"state"`
	Group         string    `json:"group"`
	Members       int       `json:"members"`
	Partitions    int       `json:"partitions"`
	WithoutHolder int       `json:"without_holder"`
	At            time.Time `json:"at"`
}

func (g *group) json() groupJSON {
	first := slices.Concat(g.members, g.partitions)[0]
	part, _ := table.PartOf(first.Name)
	return groupJSON{g.prefix, string(g.state()), part.Group, countHeld(g.members), len(g.partitions), g.nobody(), first.At.UTC()}
}

// groupNamed takes a group's name, or what ls shows of it.
func groupNamed(arg string) (string, error) {
	name := arg
	if prefix, ok := strings.CutSuffix(arg, "/"); ok {
		if raw, err := url.PathUnescape(prefix); err == nil {
			name = raw
		}
	}
	if err := table.CheckGroup(name); err != nil {
		return "", misuse("%w", err)
	}
	return name, nil
}

// memberEntries are the members of a group, with their partitions' number and, to a list of them, names.
func (g *group) memberEntries() (all []entry) {
	has := g.has()
	for _, l := range g.members {
		c := cells(l)
		c[0] = slotOf(l.Name)
		e := entryOf(l)
		e.row = row{cells: append(c, fmt.Sprint(len(has[l.Name]))), more: []string{orNone(show(l.Holder()))}, style: styles[l.State()],
			tail: whose(l), last: orNone(valueOf(l)), below: names(has[l.Name])}
		all = append(all, e)
	}
	return all
}

func (g *group) partitionEntries() (all []entry) {
	for _, l := range g.partitions {
		c := cells(l)
		slot := ""
		if l.Member.Name != "" && l.State() != table.Released {
			slot = slotOf(l.Member.Name)
		}
		e := entryOf(l)
		e.row = row{cells: []string{show(partitionOf(l)), c[1], c[2], c[3]}, more: []string{orNone(slot)}, style: styles[l.State()],
			tail: joined("  ", slot, show(l.Holder())), last: orNone(show(l.Holder()))}
		all = append(all, e)
	}
	return all
}

// names are the names of partitions, in the order of people.
func names(partitions []string) string {
	shown := make([]string, len(partitions))
	for i, p := range slices.SortedFunc(slices.Values(partitions), byNumber) {
		shown[i] = show(p)
	}
	return strings.Join(shown, ", ")
}

// isPartition reports whether l is a partition of a group, and not only a lock with such a name.
func isPartition(l table.Listing) bool { return l.IsPart() && partitionOf(l) != "" }
