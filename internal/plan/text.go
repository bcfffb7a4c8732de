package plan

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
//	hash     8 bytes, ascending   only if the header says so
//	lists    a bit for each       only with a hash
//	owner    index + 1, or 0
//	former   index + 1, or 0      only if the header has evicted members
//
// All numbers except the hash are varints. Entries have no hashes if all members have the same list and the entries are
// exactly its names, because a member with that list knows the hashes.
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

// Encode returns the plan as the text for a row.
func (p *Plan) Encode() string {
	h := header{Evicted: p.evicted, Entries: len(p.entries), Hashes: p.whole == ""}
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
			body = binary.AppendUvarint(body, uint64(e.former+1))
		}
	}
	return fmt.Sprintf("%d\n%s\n%s", format, head, base64.RawStdEncoding.EncodeToString(body))
}

// Decode parses the text of a plan. If the text has no hashes and belongs to a list other than l, the plan has its
// members but not their partitions. If this build does not support the version of the plan, the error is ErrNewer.
func Decode(s string, l List) (*Plan, error) {
	p, err := decode(s, l)
	if err != nil && !errors.Is(err, ErrNewer) {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return p, err
}

func decode(s string, l List) (*Plan, error) {
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
			return nil, errors.New("the entries have no hashes, but the members have no common list")
		}
		p.whole = p.lists[0]
		p.opaque = p.whole != l.digest
		if !p.opaque && h.Entries != len(l.hashes) {
			return nil, fmt.Errorf("%d entries for a list of %d", h.Entries, len(l.hashes))
		}
	}
	return p, p.decodeEntries(h, body, l)
}

func decodeHeader(s string) (header, error) {
	var h header
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

// plan returns a plan without its entries.
func (h header) plan() (*Plan, error) {
	p := &Plan{evicted: h.Evicted}
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
	}
	p.lists = carried(p.members)
	return p, nil
}

func (p *Plan) decodeEntries(h header, body []byte, l List) error {
	if h.Entries < 0 || h.Entries > len(body) { // each entry has at least one byte
		return fmt.Errorf("%d entries in %d bytes", h.Entries, len(body))
	}
	r := reader{left: body}
	p.entries = make([]entry, h.Entries)
	for i := range p.entries {
		e := entry{lists: 1, former: none}
		if h.Hashes {
			e.hash, e.lists = r.hash(), uint16(r.number(math.MaxUint16))
			r.check(i == 0 || e.hash > p.entries[i-1].hash)
		} else if !p.opaque {
			e.hash = l.hashes[i]
		}
		r.check(e.lists != 0 && int(e.lists) < 1<<len(p.lists))
		if e.owner = int32(r.number(len(p.members))) - 1; e.owner != none {
			r.check(p.bit(p.members[e.owner].List)&e.lists != 0)
		}
		if len(p.evicted) > 0 {
			e.former = int32(r.number(len(p.evicted))) - 1
		}
		if r.bad {
			return fmt.Errorf("entry %d is invalid", i)
		}
		p.entries[i] = e
	}
	if len(r.left) > 0 {
		return fmt.Errorf("%d bytes after the entries", len(r.left))
	}
	return nil
}

// reader reads the entries. Once bad is set, it remains set.
type reader struct {
	left []byte
	bad  bool
}

func (r *reader) check(ok bool) { r.bad = r.bad || !ok }

func (r *reader) hash() uint64 {
	if len(r.left) < 8 {
		r.bad = true
		return 0
	}
	h := binary.BigEndian.Uint64(r.left)
	r.left = r.left[8:]
	return h
}

// number reads a number and sets bad if it is larger than most.
func (r *reader) number(most int) int {
	v, n := binary.Uvarint(r.left)
	if n <= 0 || v > uint64(most) {
		r.bad = true
		return 0
	}
	r.left = r.left[n:]
	return int(v)
}
