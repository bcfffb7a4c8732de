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

// A group has two kinds of locks. A member's lock is its slot, such as "orders/member/0007". The member sends
// heartbeats for it, as for any other lock. A partition's lock, such as "orders/partition/eu", gets no heartbeats after
// its confirmation. A member holds a partition's lock only while it holds its own slot.
//
// While a member holds a partition, the key of the member's lease row is in two places: in the writer column of the
// partition's lock row, and in the partition's lease record.

const MaxSlot = 9999

// ErrGroup means that a lock is a slot or a partition of a group, but was observed or claimed as an ordinary lock.
var ErrGroup = errors.New("belongs to a group: only members of the group can claim it, with package group")

var (
	groupRow  = regexp.MustCompile(`^([^/]+)/(member/([0-9]{4})|partition/([^/_]+))(_[0-9]{16})?$`)
	memberRow = regexp.MustCompile(`^[^/]+/member/[0-9]{4}_[0-9]{16}$`)
)

func GroupPrefix(group string) string { return url.PathEscape(group) + "/" }

func SlotName(group string, slot int) string {
	return fmt.Sprintf("%smember/%04d", GroupPrefix(group), slot)
}

// PartitionName returns the name of a partition's lock. It escapes underscores in the partition's name. Otherwise, the
// lock row of a partition such as "a_1763645616123456" could be mistaken for a lease row of partition "a".
func PartitionName(group, partition string) string {
	return GroupPrefix(group) + "partition/" + strings.ReplaceAll(url.PathEscape(partition), "_", "%5F")
}

// A Part is a lock's role in a group. If Partition is empty, the lock is a member's slot. Otherwise, it is the lock of
// that partition.
type Part struct {
	Group     string
	Slot      int
	Partition string
}

// PartOf returns the role in a group that a lock's name indicates. It reports false if the name indicates none.
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
		return fmt.Errorf("partition %.32q (%d bytes) of group %.64q: its lock name would be %d bytes long (every byte other than letters, digits and -.~$&+=:@ counts as three), and the maximum is %d; use a shorter partition name", partition, len(partition), group, n, MaxName)
	}
	return cmp.Or(checkLength("partition", partition, MaxName), checkPrintable("partition", partition))
}

func CheckGroup(group string) error {
	if err := cmp.Or(CheckName(Join(group)), checkLength("name", group, MaxName), checkPrintable("name", group)); err != nil {
		return fmt.Errorf("group %.64q: %w", group, err)
	}
	return nil
}
