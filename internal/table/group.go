package table

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// A group has two kinds of locks. A member's lock is its slot, such as "orders/member/0007", and has heartbeats like
// any other lock. A partition's lock, such as "orders/partition/<p>", has no heartbeats. A member holds a partition's
// lock only while it holds its own slot.
//
// A partition has the key of the member's lease row in two places: the writer column of its lock row, and its lease
// record.

const MaxSlot = 9999

// ErrGroup means that a lock is a member or a partition of a group. Candidates for other locks leave such a lock alone.
var ErrGroup = errors.New("belongs to a group: only members of the group can claim it, with package group")

var (
	groupRow  = regexp.MustCompile(`^([^/]+)/(member/([0-9]{4})|partition/([^/_]+))(_[0-9]{16})?$`)
	memberRow = regexp.MustCompile(`^[^/]+/member/[0-9]{4}_[0-9]{16}$`)
)

func GroupPrefix(group string) string { return url.PathEscape(group) + "/" }

func SlotName(group string, slot int) string {
	return fmt.Sprintf("%smember/%04d", GroupPrefix(group), slot)
}

// PartitionName returns the name of a partition's lock. It escapes underscores in the partition's name. Otherwise the
// rows of a partition such as "a_1" could be mistaken for lease rows of partition "a".
func PartitionName(group, partition string) string {
	return GroupPrefix(group) + "partition/" + strings.ReplaceAll(url.PathEscape(partition), "_", "%5F")
}

// A Part is a lock's role in a group. If Partition is empty, the lock is a member's slot. Otherwise it is the lock of
// that partition.
type Part struct {
	Group     string
	Slot      int
	Partition string
}

// PartOf returns the role that a lock's name gives it in a group. It reports false if the name is not part of a group.
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
	slot, _ := strconv.Atoi(is[3]) // empty, or four digits
	return Part{group, slot, partition}, true
}

// A LeaseRef is a lock's name and a token, which together identify a lease row.
type LeaseRef struct {
	Name  string
	Token Token
}

func (h LeaseRef) Key() string { return LeaseKey(h.Name, h.Token) }

// MemberOf returns the member whose lease row has this key.
func MemberOf(key string) (LeaseRef, bool) {
	if !memberRow.MatchString(key) {
		return LeaseRef{}, false
	}
	return LeaseRef{key[:len(key)-len("_")-tokenDigits], tokenOf(key)}, true
}

func CheckPartition(group, partition string) error {
	n := len(PartitionName(group, partition))
	switch {
	case partition == "":
		return fmt.Errorf("a partition of group %.64q has no name: every name must have at least one byte", group)
	case n > MaxName:
		return fmt.Errorf("partition %.32q (%d bytes) of group %.64q: its lock name would be %d bytes long (each /, _ and non-ASCII byte counts as three), and the maximum is %d; use a shorter partition name", partition, len(partition), group, n, MaxName)
	}
	return cmp.Or(checkLength("partition", partition, MaxName), checkPrintable("partition", partition))
}

func CheckGroup(group string) error {
	if err := cmp.Or(CheckName(Join(group)), checkLength("name", group, MaxName), checkPrintable("name", group)); err != nil {
		return fmt.Errorf("group %.64q: %w", group, err)
	}
	return nil
}
