package model

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// A Group has a group's members and partitions at one instant.
type Group struct {
	JSON       GroupJSON          // the whole group, for programs
	Members    []operator.Listing // one for each slot that was ever in use
	Partitions []operator.Listing
	PerState   map[operator.State]int // the number of partitions in each state
}

// GroupJSON is the JSON form of a group, in one line of ls.
type GroupJSON struct {
	Name          string         `json:"name"` // the prefix of its locks' names, such as orders/
	State         operator.State `json:"state" schema:"$ref=groupState"`
	Group         string         `json:"group"`                             // its name
	Members       int            `json:"members" schema:"minimum=0"`        // how many members have renewed within their leases
	Partitions    int            `json:"partitions" schema:"minimum=0"`     // how many partitions it has
	WithoutHolder int            `json:"without_holder" schema:"minimum=0"` // how many partitions have no holder, without those that are paused
	Paused        int            `json:"paused" schema:"minimum=0"`         // how many partitions the programs of their members have paused
	At            time.Time      `json:"at"`                                // when all of this was read, by Spanner's clock
}

// Gather separates the locks that belong to groups from the other locks. The names of all the found locks begin with the
// prefix. If the prefix is longer than a group's own prefix, for example orders/member/, then only part of the group was
// found, and Gather returns that part with the other locks.
func Gather(found []operator.Listing, prefix string) (locks []operator.Listing, groups []*Group) {
	for _, l := range found {
		part, _ := table.PartOf(l.Name)
		of := table.GroupPrefix(part.Group)
		if !l.IsPart() || !strings.HasPrefix(of, prefix) {
			locks = append(locks, l)
			continue
		}
		if len(groups) == 0 || groups[len(groups)-1].JSON.Name != of {
			groups = append(groups, &Group{JSON: GroupJSON{Name: of, Group: part.Group, At: l.At.UTC()}}) // found is in the order of the names
		}
		g := groups[len(groups)-1]
		if part.Partition == "" {
			g.Members = append(g.Members, l)
		} else {
			g.Partitions = append(g.Partitions, l)
		}
	}
	for _, g := range groups {
		slices.SortStableFunc(g.Partitions, func(a, b operator.Listing) int { return byNumber(partitionOf(a), partitionOf(b)) })
		g.count()
	}
	return locks, groups
}

// byNumber compares two names as numbers if both are numbers, so that 9 comes before 10.
func byNumber(a, b string) int {
	const digits = "0123456789"
	if strings.Trim(a, digits) == "" && strings.Trim(b, digits) == "" {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

func partitionOf(l operator.Listing) string {
	part, _ := table.PartOf(l.Name)
	return part.Partition
}

func slotOf(name string) string { return name[len(name)-4:] }

func perState(all []operator.Listing) map[operator.State]int {
	n := map[operator.State]int{}
	for _, l := range all {
		n[l.State()]++
	}
	return n
}

// count counts the members and partitions, and derives the state of the whole group. A group is held only if all of its
// partitions are held or paused.
func (g *Group) count() {
	m, p := perState(g.Members), perState(g.Partitions)
	g.PerState = p
	here, held := m[operator.Held]+m[operator.Leaving], p[operator.Held]+p[operator.Leaving]
	j := &g.JSON
	j.Members, j.Partitions, j.Paused = here, len(g.Partitions), p[operator.Paused]
	j.WithoutHolder = j.Partitions - held - j.Paused
	switch {
	case m[operator.Unreadable]+p[operator.Unreadable] > 0:
		j.State = operator.Unreadable
	case m[operator.Orphaned]+p[operator.Orphaned] > 0:
		j.State = operator.Orphaned
	case here > 0 && j.WithoutHolder == 0:
		j.State = operator.Held
	case here > 0 || held > 0:
		j.State = Partial
	case m[operator.Expired]+p[operator.Expired] > 0:
		j.State = operator.Expired
	default:
		j.State = operator.Released
	}
}

// Has maps the name of each member's lock to the names of its partitions that are in one of the states.
func (g *Group) Has(states ...operator.State) map[string][]string {
	has := map[string][]string{}
	for _, l := range g.Partitions {
		if slices.Contains(states, l.State()) {
			has[l.Member.Name] = append(has[l.Member.Name], partitionOf(l))
		}
	}
	return has
}

// Named returns the names of the partitions whose locks are chosen.
func (g *Group) Named(chosen func(operator.Listing) bool) []string {
	names := []string{} // in JSON, none is []
	for _, l := range g.Partitions {
		if chosen(l) {
			names = append(names, partitionOf(l))
		}
	}
	return names
}

// Sum describes how many members and partitions the group has, and how many of them lack a holder, are paused, are
// leaving or have expired.
func (g *Group) Sum() string {
	text := terminal.Count(g.JSON.Members, "member") + ", " + terminal.Count(g.JSON.Partitions, "partition")
	if n := g.JSON.WithoutHolder; n > 0 {
		text += fmt.Sprintf(", %d without a holder", n)
	}
	if n := g.JSON.Paused; n > 0 {
		text += fmt.Sprintf(", %d paused", n)
	}
	members := perState(g.Members)
	for _, s := range []operator.State{operator.Leaving, operator.Expired} {
		if members[s] > 0 {
			text += fmt.Sprintf(", %s %s", terminal.Count(members[s], "member"), s)
		}
	}
	return text
}

// Entry returns a single entry for the whole group. Of the live members, it shows the oldest term, the longest time
// since a heartbeat, and the longest lease.
func (g *Group) Entry() Entry {
	all := operator.Listing{Observation: table.Observation{Name: g.JSON.Name, At: g.JSON.At}}
	for _, l := range g.Members {
		if !l.IsHeld() {
			continue
		}
		if all.LeaseRecord == nil {
			all.LeaseRecord, all.Heartbeat = &table.LeaseRecord{}, l.Heartbeat
		}
		if began := cmp.Or(l.LeaseRecord.Since, l.Token); all.Token == 0 || began < all.Token {
			all.Token, all.Began = began, began.Time()
		}
		if l.Heartbeat.Before(all.Heartbeat) {
			all.Heartbeat = l.Heartbeat
		}
		all.LeaseRecord.Lease = max(all.LeaseRecord.Lease, l.LeaseRecord.Lease)
	}
	sum, c := "group: "+g.Sum(), cells(all)
	c[1], c[2] = string(g.JSON.State), "-"
	return Entry{Listing: all, State: g.JSON.State, Object: g.JSON,
		Row: terminal.Row{Cells: c, More: []string{"-", "-", "-"}, Style: Styles[g.JSON.State], Tail: sum, Last: sum, Prose: true}}
}

// GroupNamed returns the name of the group that an argument denotes. The argument is either that name, or a prefix that
// ls shows, such as orders/.
func GroupNamed(arg string) (string, error) {
	name := arg
	if prefix, ok := strings.CutSuffix(arg, "/"); ok {
		if raw, err := url.PathUnescape(prefix); err == nil {
			name = raw
		}
	}
	if err := table.CheckGroup(name); err != nil {
		return "", terminal.Misuse("%w", err)
	}
	return name, nil
}

// MemberEntries returns the entries of a group's members, each with the number and the names of its partitions.
func (g *Group) MemberEntries() (all []Entry) {
	has := g.Has(operator.Held, operator.Leaving)
	for _, l := range g.Members {
		c := append(cells(l), fmt.Sprint(len(has[l.Name])))
		c[0] = slotOf(l.Name)
		all = append(all, entryOf(l, terminal.Row{Cells: c, More: []string{orNone(terminal.Show(l.Holder()))}, Tail: whose(l), Last: orNone(valueOf(l)), Below: Names(has[l.Name])}))
	}
	return all
}

// PartitionEntries returns the entries of a group's partitions, with their holders.
func (g *Group) PartitionEntries() (all []Entry) {
	for _, l := range g.Partitions {
		c, slot, holder := cells(l)[:4], "", terminal.Show(l.Holder())
		c[0] = terminal.Show(partitionOf(l))
		if l.Member.Name != "" && l.State() != operator.Released {
			slot = slotOf(l.Member.Name)
		}
		all = append(all, entryOf(l, terminal.Row{Cells: c, More: []string{orNone(slot)}, Tail: terminal.Join("  ", slot, holder), Last: orNone(holder)}))
	}
	return all
}

// Names returns the names of partitions, for people.
func Names(partitions []string) string {
	shown := make([]string, len(partitions))
	for i, p := range partitions {
		shown[i] = terminal.Show(p)
	}
	return strings.Join(shown, ", ")
}

// IsPartition reports whether l is a partition of a group, rather than an ordinary lock with a name of that form.
func IsPartition(l operator.Listing) bool { return l.IsPart() && partitionOf(l) != "" }

// The headings of lists of members and partitions.
var (
	MemberColumns    = []string{"SLOT", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "HAS", "ID AND VALUE"}
	WideMembers      = []string{"SLOT", "STATE", "TOKEN", "SINCE", "BEAT", "LEASE", "HAS", "ID", "VALUE"}
	PartitionColumns = []string{"PARTITION", "STATE", "TOKEN", "SINCE", "SLOT AND HOLDER"}
	WidePartitions   = []string{"PARTITION", "STATE", "TOKEN", "SINCE", "SLOT", "HOLDER"}
)
