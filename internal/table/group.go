package table

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// A group is two kinds of locks. A member has a slot, "orders/member/0007", with heartbeats as any lock has. A
// partition, "orders/partition/<p>", is held together with a member: its lock row's writer is the key of that
// member's lease row, and so is its lease record.

// MaxSlot is the highest slot of a member.
const MaxSlot = 9999

// ErrGroup says that a lock is a member or a partition of a group, which candidates for a lock leave alone.
var ErrGroup = errors.New("belongs to a group: only members of the group take it, by package group")

var (
	groupRow  = regexp.MustCompile(`^([^/]+)/(member/([0-9]{4})|partition/([^/_]+))(_[0-9]{16})?$`)
	memberRow = regexp.MustCompile(`^[^/]+/member/[0-9]{4}_[0-9]{16}$`)
)

// GroupPrefix is what the names of all locks of a group begin with.
func GroupPrefix(group string) string { return url.PathEscape(group) + "/" }

// SlotName is the name of the lock of a member.
func SlotName(group string, slot int) string {
	return fmt.Sprintf("%smember/%04d", GroupPrefix(group), slot)
}

// PartitionName is the name of the lock of a partition. No _ is in it: only its lease rows begin with it and a _.
func PartitionName(group, partition string) string {
	return GroupPrefix(group) + "partition/" + strings.ReplaceAll(url.PathEscape(partition), "_", "%5F")
}

// A Part is what a lock is in a group: a member, or a partition if that is not "".
type Part struct {
	Group     string
	Slot      int
	Partition string
}

// PartOf tells what part of a group a lock is, by its name.
func PartOf(name string) (Part, bool) {
	is := groupRow.FindStringSubmatch(name)
	if is == nil || is[5] != "" {
		return Part{}, false
	}
	group, badGroup := url.PathUnescape(is[1])
	partition, badPartition := url.PathUnescape(is[4])
	if badGroup != nil || badPartition != nil {
		return Part{}, false
	}
	slot, _ := strconv.Atoi(is[3]) // four digits, or none
	return Part{group, slot, partition}, true
}

// A LeaseRef is a lock's name and a token.
type LeaseRef struct {
	Name  string
	Token Token
}

// Key is that of the lease row.
func (h LeaseRef) Key() string { return LeaseKey(h.Name, h.Token) }

// MemberOf tells whose lease row a key is.
func MemberOf(key string) (LeaseRef, bool) {
	if !memberRow.MatchString(key) {
		return LeaseRef{}, false
	}
	return LeaseRef{key[:len(key)-len("_")-tokenDigits], tokenOf(key)}, true
}

// CheckPartition says why a group can't have a partition of that name, or nil.
func CheckPartition(group, partition string) error {
	if partition == "" {
		return fmt.Errorf("a partition of group %.64q has no name: give it at least one byte", group)
	}
	if i := strings.IndexFunc(partition, func(r rune) bool { return Unprintable(r) || r == '\uFFFD' }); i >= 0 {
		return fmt.Errorf("partition %.200q of group %.64q: control characters, line separators, bidirectional marks and invalid UTF-8 are not allowed", partition, group)
	}
	if n := len(PartitionName(group, partition)); n > MaxName {
		return fmt.Errorf("partition %.32q (%d bytes) of group %.64q: the name of its lock would have %d bytes, in which a / or _ or a byte beyond ASCII is three, and at most %d are allowed: shorten it", partition, len(partition), group, n, MaxName)
	}
	return nil
}

// CheckGroup says why a group can't have that name, or nil.
func CheckGroup(group string) error {
	if err := CheckName(Join(group)); err != nil {
		return fmt.Errorf("group %.64q: %w", group, err)
	}
	if strings.ContainsFunc(group, func(r rune) bool { return Unprintable(r) || r == '\uFFFD' }) {
		return fmt.Errorf("group %.200q: control characters, line separators, bidirectional marks and invalid UTF-8 are not allowed", group)
	}
	return nil
}
