package plan

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A text contains a whole plan, with or without hashes.
func TestATextSaysAllOfAPlan(t *testing.T) {
	a, b := NewList(names("p", 0, 300)), NewList(names("p", 10, 200))
	members := pods(a, 0, 3, 200, 5)
	members[0].Weight, members[1].Trial, members[2].Token = 9, true, 1<<62
	one := next(t, nil, a, members)
	for _, p := range []*Plan{
		one,
		next(t, one, a, members[:2]),
		next(t, one, a, append(in(b, 77), members[2:]...)),
		next(t, nil, a, nil),
		Of(a, members, func(i int) (int, bool) { return 3, i > 100 }),
		next(t, nil, NewList(nil), in(NewList(nil), 1)),
	} {
		q, err := Decode(p.Encode(), a)
		if p.whole != "" && p.whole != a.Digest() {
			q, err = Decode(p.Encode(), NewList(nil))
		}
		require.NoError(t, err)
		assert.True(t, p.Same(q))
		assert.Equal(t, p.evicted, q.evicted)
		assert.Equal(t, p.Encode(), q.Encode())
	}
}

func TestATextIsSmall(t *testing.T) {
	l := NewList(names("partition-", 0, 20000))
	p := next(t, nil, l, in(l, upTo(300)...))
	lines := strings.Split(p.Encode(), "\n")
	require.Len(t, lines, 3)
	assert.LessOrEqual(t, len(lines[2]), 56_000, "of 20,000 partitions")
	assert.LessOrEqual(t, len(lines[1]), 300*30, "of 300 members")
}

// The text of a newer build is not treated as damaged.
func TestANewerVersionIsTold(t *testing.T) {
	l := NewList(names("p", 0, 5))
	text := next(t, nil, l, in(l, 0)).Encode()
	for _, newer := range []string{"2" + text[1:], "17", "300\nwhatever"} {
		_, err := Decode(newer, l)
		assert.ErrorIs(t, err, ErrNewer)
	}
	for _, garbage := range []string{"", "0" + text[1:], "x", "-1\n{}\n", "99999999999999999999\n{}\n"} {
		_, err := Decode(garbage, l)
		require.Error(t, err, "%q", garbage)
		assert.NotErrorIs(t, err, ErrNewer)
	}
}

// A damaged text is an error, so no member follows an invalid plan.
func TestADamagedTextIsAnError(t *testing.T) {
	l := NewList([]string{"a", "b"})
	body := func(b ...byte) string { return base64.RawStdEncoding.EncodeToString(b) }
	hashes := func(entries ...byte) string {
		var b []byte
		for i := 0; i < len(entries); i += 3 {
			b = append(b, 0, 0, 0, 0, 0, 0, 0, entries[i], entries[i+1], entries[i+2])
		}
		return body(b...)
	}
	one := `"l":["` + l.Digest() + `"],"m":[{"s":1,"t":5},{"s":4,"t":6}],"n":2`
	two := `"l":["x","y"],"m":[{"s":1,"t":5},{"s":4,"t":6,"l":1}],"n":2,"h":true`
	good := []string{"1\n{" + one + "}\n" + body(1, 2), "1\n{" + two + "}\n" + hashes(3, 1, 1, 9, 3, 2)}
	for _, s := range good {
		_, err := Decode(s, l)
		require.NoError(t, err)
		for i := range len(s) - 1 {
			_, err := Decode(s[:i], l)
			require.Error(t, err, "cut off at %d: %q", i, s[:i])
		}
	}
	for why, s := range map[string]string{
		"no such owner":               "{" + one + "}\n" + body(1, 3),
		"an entry too few":            "{" + strings.Replace(one, `"n":2`, `"n":1`, 1) + "}\n" + body(1),
		"an entry too many":           "{" + one + "}\n" + body(1, 2, 1),
		"far more entries":            "{" + strings.Replace(one, `"n":2`, `"n":2000000000`, 1) + "}\n" + body(1, 2),
		"too many for any memory":     "{" + strings.Replace(two, `"n":2`, `"n":4000000000000000000`, 1) + "}\n" + hashes(3, 1, 1, 9, 3, 2),
		"bits after the last byte":    "{" + one + "}\n" + "AQJ",
		"less than no entries":        "{" + strings.Replace(one, `"n":2`, `"n":-2`, 1) + "}\n" + body(1, 2),
		"less than none, with hashes": "{" + strings.Replace(two, `"n":2`, `"n":-2`, 1) + "}\n" + hashes(3, 1, 1, 9, 3, 2),
		"a list before the first":     "{" + strings.Replace(two, `"l":1`, `"l":-1`, 1) + "}\n" + hashes(3, 1, 1, 9, 3, 2),
		"slots out of order":          "{" + strings.Replace(one, `"s":4`, `"s":1`, 1) + "}\n" + body(1, 2),
		"a slot that can't be":        "{" + strings.Replace(one, `"s":4`, `"s":10000`, 1) + "}\n" + body(1, 2),
		"a slot below 0":              "{" + strings.Replace(one, `"s":1`, `"s":-1`, 1) + "}\n" + body(1, 2),
		"no such list":                "{" + strings.Replace(two, `"l":1`, `"l":2`, 1) + "}\n" + hashes(3, 1, 1, 9, 3, 2),
		"a weight below 1":            "{" + strings.Replace(one, `"s":4`, `"s":4,"w":-1`, 1) + "}\n" + body(1, 2),
		"a weight too large":          "{" + strings.Replace(one, `"s":4`, `"s":4,"w":1048576`, 1) + "}\n" + body(1, 2),
		"something unknown":           "{" + one + `,"z":1}` + "\n" + body(1, 2),
		"more than a header":          "{" + one + "} {}\n" + body(1, 2),
		"not base64":                  "{" + one + "}\n!!",
		"hashes of several left out":  "{" + strings.Replace(two, `,"h":true`, "", 1) + "}\n" + body(1, 2),
		"a list without a digest":     `{"l":[""],"m":[{"s":1,"t":5}],"n":2}` + "\n" + body(1, 1),
		"hashes out of order":         "{" + two + "}\n" + hashes(9, 1, 1, 9, 3, 2),
		"no list has it":              "{" + two + "}\n" + hashes(3, 0, 0, 9, 3, 2),
		"a list that nobody has":      "{" + two + "}\n" + hashes(3, 5, 1, 9, 3, 2),
		"owner without the list":      "{" + two + "}\n" + hashes(3, 1, 2, 9, 3, 2),
		"no such former owner":        "{" + one + `,"f":[{"id":"a","u":1}]}` + "\n" + body(1, 2, 2, 0),
		"evicted twice":               "{" + one + `,"f":[{"id":"a","u":1},{"id":"a","u":1}]}` + "\n" + body(1, 0, 2, 0),
		"evicted, but nobody":         "{" + one + `,"f":[{"id":"","u":1}]}` + "\n" + body(1, 0, 2, 0),
	} {
		_, err := Decode("1\n"+s, l)
		assert.Error(t, err, why)
	}
}

// No content of a row stops a member. Decode returns either an error or a plan that can be followed.
func FuzzDecode(f *testing.F) {
	a, b := NewList(names("p", 0, 8)), NewList(names("p", 4, 10))
	p := next(f, nil, a, pods(a, 0, 3, 4))
	f.Add(p.Encode())
	f.Add(next(f, p, a, pods(a, 0, 3)).Encode())
	f.Add(next(f, p, a, append(in(b, 1), pods(a, -1, 3)...)).Encode())
	f.Add(next(f, nil, b, in(b, 1)).Encode())
	f.Add("1\n{}\n")
	f.Add("2\n{}\n")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Decode(s, a)
		if err != nil {
			require.Nil(t, p)
			return
		}
		q, err := Decode(p.Encode(), a)
		require.NoError(t, err)
		require.True(t, p.Same(q))
		for _, members := range [][]Member{p.Members(), append(in(b, 1), pods(a, 0, -1, 3)...), nil} {
			q, ok := p.Next(a, members, now)
			if !ok {
				continue
			}
			again, ok := q.Next(a, members, now)
			require.True(t, ok)
			require.Len(t, again.entries, len(q.entries))
			for _, m := range members {
				q.Assigned(a, m.Slot)
			}
		}
	})
}
