package table

import (
	"testing"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each page of a read of all rows begins after the last row of the page before: of any rows, pages of two give each row once, in
// order, and no other.
func TestPagesOfAFullReadHaveEachRowOnce(t *testing.T) {
	within := func(r spanner.KeyRange, name string) bool {
		start, open := r.Start[0].(string), r.Kind == spanner.OpenClosed || r.Kind == spanner.OpenOpen
		if len(r.End) > 0 && name > r.End[0].(string) {
			return false
		}
		return name > start || !open && name == start
	}
	for _, prefix := range []string{"", "a", "a/", "b"} {
		names := []string{"a", "a!", "a/", "a/b", "ab", "b", "b\U0010fffe", "c", "é"}
		var want, got []string
		for _, name := range names {
			if len(name) >= len(prefix) && name[:len(prefix)] == prefix {
				want = append(want, name)
			}
		}
		for after := ""; ; after = got[len(got)-1] {
			set, ok := Keys{All: true, Prefix: prefix, After: after}.set().(spanner.KeyRange)
			require.True(t, ok)
			var page []string
			for _, name := range names {
				if len(page) < 2 && within(set, name) {
					page = append(page, name)
				}
			}
			got = append(got, page...)
			if len(page) == 0 || len(got) > 2*len(names) {
				break
			}
		}
		assert.Equal(t, want, got, "prefix %q", prefix)
	}
}
