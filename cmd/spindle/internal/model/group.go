package model

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/exit"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A Group has a group's members and partitions at one instant.
type Group struct {
	Prefix     string             // the names of its locks begin with it
	Members    []operator.Listing // one for each slot that was ever in use
	Partitions []operator.Listing
}

// Gather separates the locks that belong to groups from the other locks. The names of all locks in found begin with
// prefix. If prefix is longer than a group's own prefix, for example orders/member/, then found contains only part of
// the group, and Gather returns that part with the other locks.
func Gather(found []operator.Listing, prefix string) (locks []operator.Listing, groups []*Group) {
	for _, l := range found {
		part, _ := table.PartOf(l.Name)
		of := table.GroupPrefix(part.Group)
		if !l.IsPart() || !strings.HasPrefix(of, prefix) {
			locks = append(locks, l)
			continue
		}
		if len(groups) == 0 || groups[len(groups)-1].Prefix != of {
			groups = append(groups, &Group{Prefix: of}) // found is in the order of the names
		}
		g := groups[len(groups)-1]
		if part.Partition == "" {
			g.Members = append(g.Members, l)
		} else {
			g.Partitions = append(g.Partitions, l)
		}
	}
	for _, g := range groups {
		slices.SortStableFunc(g.Partitions, func(a, b operator.Listing) int { return ByNumber(partitionOf(a), partitionOf(b)) })
	}
	return locks, groups
}

// ByNumber compares names as people do, with 9 before 10.
func ByNumber(a, b string) int {
	if strings.Trim(a+b, "0123456789") == "" {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

func partitionOf(l operator.Listing) string {
	part, _ := table.PartOf(l.Name)
	return part.Partition
}

func slotOf(name string) string { return name[len(name)-4:] }

// countHeld returns how many locks are held.
func countHeld(all []operator.Listing) (n int) {
	for _, l := range all {
		if l.IsHeld() {
			n++
		}
	}
	return n
}

// nobody returns the number of partitions that have no holder, although nobody has paused them.
func (g *Group) nobody() int { return len(g.Partitions) - countHeld(g.Partitions) - g.paused() }

// paused returns the number of partitions that the programs of their members have paused.
func (g *Group) paused() (n int) {
	for _, l := range g.Partitions {
		if l.State() == operator.Paused {
			n++
		}
	}
	return n
}

// has returns the partitions of each member, by the name of the member's lock.
func (g *Group) has() map[string][]string {
	has := map[string][]string{}
	for _, l := range g.Partitions {
		if l.IsHeld() {
			has[l.Member.Name] = append(has[l.Member.Name], partitionOf(l))
		}
	}
	return has
}

// State returns the state of the whole group. A group is held only if all of its partitions are.
func (g *Group) State() operator.State {
	seen := map[operator.State]bool{}
	for _, l := range slices.Concat(g.Members, g.Partitions) {
		seen[l.State()] = true
	}
	switch here := countHeld(g.Members); {
	case seen[operator.Unreadable]:
		return operator.Unreadable
	case seen[operator.Orphaned]:
		return operator.Orphaned
	case here > 0 && g.nobody() == 0:
		return operator.Held
	case here > 0 || countHeld(g.Partitions) > 0:
		return Partial
	case seen[operator.Expired]:
		return operator.Expired
	}
	return operator.Released
}

// Sum describes how many members and partitions the group has, and how many of them are in trouble.
func (g *Group) Sum() string {
	text := terminal.Count(countHeld(g.Members), "member") + ", " + terminal.Count(len(g.Partitions), "partition")
	if n := g.nobody(); n > 0 {
		text += fmt.Sprintf(", %d without a holder", n)
	}
	if n := g.paused(); n > 0 {
		text += fmt.Sprintf(", %d paused", n)
	}
	members := map[operator.State]int{}
	for _, l := range g.Members {
		members[l.State()]++
	}
	for _, s := range []operator.State{operator.Leaving, operator.Expired} {
		if members[s] > 0 {
			text += fmt.Sprintf(", %s %s", terminal.Count(members[s], "member"), s)
		}
	}
	return text
}

// Entry returns a single entry for the whole group. It shows the age of the oldest member, the longest time since a
// member's last heartbeat, and the longest lease.
func (g *Group) Entry() Entry {
	since, beat, lease := "-", "-", "-"
	var order SortKeys
	var oldest table.Token
	var late, longest time.Duration
	for _, l := range g.Members {
		if l.IsHeld() {
			began := cmp.Or(l.LeaseRecord.Since, l.Token)
			oldest = min(cmp.Or(oldest, began), began)
			late, longest = max(late, l.At.Sub(l.Heartbeat)), max(longest, l.LeaseRecord.Lease)
			since, beat, lease = terminal.Short(l.At.Sub(oldest.Time())), terminal.Short(late), longest.String()
			order = SortKeys{Since: oldest.Time(), Beat: l.At.Add(-late), Lease: longest}
		}
	}
	sum := "group: " + g.Sum()
	return Entry{Name: g.Prefix, State: g.State(), Order: order, Mark: sum + string(g.State()), Object: g.JSON(),
		Row: terminal.Row{Cells: []string{terminal.Show(g.Prefix), string(g.State()), "-", since, beat, lease}, More: []string{"-", "-", "-"}, Style: Styles[g.State()],
			Tail: sum, Last: sum, Prose: true}}
}

// GroupJSON is the JSON form of a group.
type GroupJSON struct {
	Name          string    `json:"name"`
	State         string    `json:"state"`
	Group         string    `json:"group"`
	Members       int       `json:"members"`
	Partitions    int       `json:"partitions"`
	WithoutHolder int       `json:"without_holder"`
	Paused        int       `json:"paused"`
	At            time.Time `json:"at"`
}

// JSON returns the JSON form of the group.
func (g *Group) JSON() GroupJSON {
	first := slices.Concat(g.Members, g.Partitions)[0]
	part, _ := table.PartOf(first.Name)
	return GroupJSON{g.Prefix, string(g.State()), part.Group, countHeld(g.Members), len(g.Partitions), g.nobody(), g.paused(), first.At.UTC()}
}

// GroupNamed returns the name of the group that arg denotes. Arg is either that name or the name as ls shows it.
func GroupNamed(arg string) (string, error) {
	name := arg
	if prefix, ok := strings.CutSuffix(arg, "/"); ok {
		if raw, err := url.PathUnescape(prefix); err == nil {
			name = raw
		}
	}
	if err := table.CheckGroup(name); err != nil {
		return "", exit.Misuse("%w", err)
	}
	return name, nil
}

// MemberEntries returns the entries of a group's members, each with the number and the names of its partitions.
func (g *Group) MemberEntries() (all []Entry) {
	has := g.has()
	for _, l := range g.Members {
		c := cells(l)
		c[0] = slotOf(l.Name)
		e := entryOf(l)
		e.Row = terminal.Row{Cells: append(c, fmt.Sprint(len(has[l.Name]))), More: []string{orNone(terminal.Show(l.Holder()))}, Style: Styles[l.State()],
			Tail: whose(l), Last: orNone(valueOf(l)), Below: Names(has[l.Name])}
		all = append(all, e)
	}
	return all
}

// PartitionEntries returns the entries of a group's partitions, with their holders.
func (g *Group) PartitionEntries() (all []Entry) {
	for _, l := range g.Partitions {
		c := cells(l)
		slot := ""
		if l.Member.Name != "" && l.State() != operator.Released {
			slot = slotOf(l.Member.Name)
		}
		e := entryOf(l)
		e.Row = terminal.Row{Cells: []string{terminal.Show(partitionOf(l)), c[1], c[2], c[3]}, More: []string{orNone(slot)}, Style: Styles[l.State()],
			Tail: terminal.Join("  ", slot, terminal.Show(l.Holder())), Last: orNone(terminal.Show(l.Holder()))}
		all = append(all, e)
	}
	return all
}

// Names returns the names of partitions, in the order of ByNumber.
func Names(partitions []string) string {
	shown := make([]string, len(partitions))
	for i, p := range slices.SortedFunc(slices.Values(partitions), ByNumber) {
		shown[i] = terminal.Show(p)
	}
	return strings.Join(shown, ", ")
}

// IsPartition reports whether l is a partition of a group, and not only a lock with such a name.
func IsPartition(l operator.Listing) bool { return l.IsPart() && partitionOf(l) != "" }

// The headings of lists of members and partitions.
var (
	MemberColumns    = []string{"SLOT", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "HAS", "ID AND VALUE"}
	WideMembers      = []string{"SLOT", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "HAS", "ID", "VALUE"}
	PartitionColumns = []string{"PARTITION", "STATE", "TOKEN", "SINCE", "SLOT AND HOLDER"}
	WidePartitions   = []string{"PARTITION", "STATE", "TOKEN", "SINCE", "SLOT", "HOLDER"}
)
