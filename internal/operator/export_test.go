package operator

import "testing"

// PagesOf limits the number of rows in one reply until the test has ended.
func PagesOf(t *testing.T, rows int) {
	was := page
	page = rows
	t.Cleanup(func() { page = was })
}
