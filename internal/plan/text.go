package plan

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// format is the version of the text.
const format = 1

// ErrNewer means that this build does not support the plan's version.
var ErrNewer = errors.New("plan: written by a newer version")

// The text of a plan has three lines: the version, a header in JSON, and the entries in base64. An entry consists of
// these fields:
//
//	hash     8 bytes, ascending                           only if the header's h is true
//	lists    one bit per list                             only if the header's h is true
//	owner    the member's index in m, plus 1; 0: none
//	former   the identity's index in f, plus 1; 0: none   only if f is not empty
//
// All numbers except the hash are varints. If all members have the same list, and the plan contains exactly the names
// in that list, hash and lists are omitted, because these members can compute them.
type header struct {
	Lists   []string       `json:"l,omitempty"`
	Members []headerMember `json:"m,omitempty"`
	Evicted []evicted      `json:"f,omitempty"`
	Entries int            `json:"n,omitempty"`
	Hashes  bool           `json:"h,omitempty"`
}

type headerMember struct {
	Slot   int           `json:"s"`
	Token  int64         `json:"t"`
	List   int           `json:"l,omitempty"` // the index of its list
	Weight int           `json:"w,omitempty"` // the weight minus 1
	Trial  bool          `json:"x,omitempty"`
	ID     string        `json:"i,omitempty"`
	Keep   time.Duration `json:"k,omitempty"`
}

// evicted is a member whose identity is kept.
type evicted struct {
	ID    string `json:"id"`
	Until int64  `json:"u"` // milliseconds since 1970
}

// Encode returns the plan as the text for a row.
func (p *Plan) Encode() string {
	h := header{Entries: len(p.entries), Hashes: p.whole == ""}
	ids := append([]string{""}, slices.Sorted(maps.Keys(p.evicted))...)
	for _, id := range ids[1:] {
		h.Evicted = append(h.Evicted, evicted{id, p.evicted[id]})
	}
	for _, m := range p.members {
		h.Lists = append(h.Lists, m.List)
	}
	slices.Sort(h.Lists)
	h.Lists = slices.Compact(h.Lists)
	for _, m := range p.members {
		list, _ := slices.BinarySearch(h.Lists, m.List)
		h.Members = append(h.Members, headerMember{m.Slot, m.Token, list, m.Weight - 1, m.Trial, m.ID, m.Keep})
	}
	head, _ := json.Marshal(h) // can't fail
	var body []byte
	for _, e := range p.entries {
		if h.Hashes {
			body = binary.AppendUvarint(binary.BigEndian.AppendUint64(body, e.hash), uint64(e.lists))
		}
		body = binary.AppendUvarint(body, uint64(e.owner+1))
		if len(p.evicted) > 0 {
			former, _ := slices.BinarySearch(ids, e.former)
			body = binary.AppendUvarint(body, uint64(former))
		}
	}
	return fmt.Sprintf("%d\n%s\n%s", format, head, base64.RawStdEncoding.EncodeToString(body))
}

// decodeHeader refuses unknown fields, because this build would drop them when it publishes the plan again.
func decodeHeader(s string) (h header, err error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return h, err
	}
	if _, err := d.Token(); err != io.EOF {
		return h, errors.New("unexpected data after the header")
	}
	return h, nil
}

// Decode parses the text of a plan for a member with the list l. If the text has no hashes and was written for a
// different list, the returned plan contains the members but not their partitions. If this build does not support the
// version of the text, Decode returns ErrNewer.
func Decode(s string, l List) (*Plan, error) {
	version, rest, _ := strings.Cut(s, "\n")
	if v, err := strconv.ParseUint(version, 10, 32); err != nil || v == 0 {
		return nil, errors.New("the text has no version")
	} else if v > format {
		return nil, ErrNewer
	}
	head, text, ok := strings.Cut(rest, "\n")
	if !ok {
		return nil, errors.New("the text is truncated")
	}
	h, err := decodeHeader(head)
	if err != nil {
		return nil, err
	}
	body, err := base64.RawStdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, err
	}
	p, err := h.plan()
	if err != nil {
		return nil, err
	}
	if !h.Hashes {
		if len(p.lists) != 1 || p.lists[0] == "" {
			return nil, errors.New("the entries have no hashes, which is allowed only if all members have the same list")
		}
		p.whole = p.lists[0]
		p.opaque = p.whole != l.digest
		if !p.opaque && h.Entries != len(l.hashes) {
			return nil, fmt.Errorf("%d entries for a list of %d", h.Entries, len(l.hashes))
		}
	}
	if err := p.decodeEntries(h, body, l); err != nil {
		return nil, err
	}
	return p, nil
}

// plan returns a plan without its entries.
func (h header) plan() (*Plan, error) {
	p := &Plan{evicted: map[string]int64{}}
	last := -1
	for _, m := range h.Members {
		switch {
		case m.Slot <= last || m.Slot > maxSlot:
			return nil, fmt.Errorf("slot %d after %d", m.Slot, last)
		case m.List < 0 || m.List >= len(h.Lists):
			return nil, fmt.Errorf("no list %d", m.List)
		case m.Weight < 0 || m.Weight >= maxWeight:
			return nil, fmt.Errorf("weight %d", m.Weight)
		}
		last = m.Slot
		p.members = append(p.members, Member{m.Slot, m.Token, h.Lists[m.List], m.Weight + 1, m.Trial, m.ID, m.Keep})
	}
	for i, e := range h.Evicted {
		if e.ID == "" || i > 0 && e.ID <= h.Evicted[i-1].ID {
			return nil, fmt.Errorf("evicted member %q", e.ID)
		}
		p.evicted[e.ID] = e.Until
	}
	p.lists = carried(p.members)
	return p, nil
}

func (p *Plan) decodeEntries(h header, body []byte, l List) error {
	if h.Entries < 0 || h.Entries > len(body) { // each entry has at least one byte
		return fmt.Errorf("%d entries in %d bytes", h.Entries, len(body))
	}
	r, bad := bytes.NewReader(body), false
	check := func(ok bool) { bad = bad || !ok }
	number := func(most int) int {
		v, err := binary.ReadUvarint(r)
		check(err == nil && v <= uint64(most))
		return int(min(v, uint64(most)))
	}
	p.entries = make([]entry, h.Entries)
	for i := range p.entries {
		e := entry{lists: 1}
		if h.Hashes {
			check(binary.Read(r, binary.BigEndian, &e.hash) == nil)
			e.lists = uint16(number(math.MaxUint16))
			check(i == 0 || e.hash > p.entries[i-1].hash)
		} else if !p.opaque {
			e.hash = l.hashes[i]
		}
		check(e.lists != 0 && int(e.lists) < 1<<len(p.lists))
		if e.owner = int32(number(len(p.members))) - 1; e.owner != none {
			check(p.bit(p.members[e.owner].List)&e.lists != 0)
		}
		if len(h.Evicted) > 0 {
			if former := number(len(h.Evicted)); former > 0 {
				e.former = h.Evicted[former-1].ID
			}
		}
		if bad {
			return fmt.Errorf("entry %d is invalid", i)
		}
		p.entries[i] = e
	}
	if r.Len() > 0 {
		return fmt.Errorf("%d bytes after the entries", r.Len())
	}
	return nil
}
