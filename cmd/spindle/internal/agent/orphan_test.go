package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/fleet"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// A lock of an agent that has ended is released only to the owner of its hold, and only if all of the locks are still held under the
// token. A mistaken request releases nothing, and an unknown outcome is not called a release.
func TestTheLockOfADeadAgentIsReleasedByItsOwner(t *testing.T) {
	among(t, 10, func(b *bed) {
		held := b.asks("p", "POST /v1/locks?name=a&name=b&lease=1h").reads("held")
		single := b.asks("p", "POST /v1/locks?name=c&lease=1h").reads("held")
		locks := table.Table{Store: b.store}
		seen, err := locks.Observe(t.Context(), "claimed")
		require.NoError(t, err)
		claimed, err := locks.Claim(t.Context(), "host/1/p/"+proofOf(held.Hold), seen...)
		require.NoError(t, err)
		other := newBed(t, func(c *Config) { c.Locks = table.Table{Store: b.link} })
		other.serve()
		path := func(token any, hold string, names ...string) string {
			return fmt.Sprintf("POST /v1/release?token=%v&hold=%s&name=%s", token, hold, strings.Join(names, "&name="))
		}
		for _, c := range []struct {
			by      *bed
			request string
			status  int
			code    any
			refuse  func(step string) error
		}{
			{by: other, request: "POST /v1/release?token=1&hold=0123", status: 400, code: "bad-parameter"},
			{by: other, request: fmt.Sprintf("POST /v1/release?token=%d&name=a", held.Token), status: 400, code: "bad-parameter"},
			{by: other, request: path("x", held.Hold, "a"), status: 400, code: "bad-parameter"},
			{by: other, request: path(held.Token, held.Hold, "a", ""), status: 400, code: "bad-parameter"},
			{by: b, request: path(held.Token, held.Hold, "a", "b"), status: 409, code: "not-orphaned"},
			{by: other, request: path(held.Token+1, held.Hold, "a", "b"), status: 410, code: "lost"},
			{by: other, request: path(held.Token, held.Hold, "a", "c"), status: 410, code: "lost"},
			{by: other, request: path(held.Token, held.Hold, "a", "free"), status: 410, code: "lost"},
			{by: other, request: path(held.Token, single.Hold, "a", "b"), status: 404, code: "no-such-hold"},
			{by: other, request: path(held.Token, held.Hold+"0", "a", "b"), status: 404, code: "no-such-hold"},
			{by: other, request: path(single.Token, strings.Repeat("0", 32), "c"), status: 404, code: "no-such-hold"},
			{by: other, request: path(int64(claimed), held.Hold, "claimed"), status: 410, code: "lost"},
			{by: other, request: path(held.Token, held.Hold, "a", "b"), status: 503, code: "unavailable", refuse: func(string) error { return memstore.ErrCut }},
			{by: other, request: path(held.Token, held.Hold, "a", "b"), status: 202, refuse: fleet.Refusing("release", memstore.ErrCut)},
			{by: other, request: path(held.Token, held.Hold, "a", "b"), status: 410, code: "lost", refuse: fleet.Refusing("release", table.ErrSuperseded)},
			{by: other, request: path(held.Token, held.Hold, "a", "b"), status: 202, refuse: func(step string) error {
				return map[string]error{"release": table.ErrSuperseded, "released": memstore.ErrCut}[step]
			}},
		} {
			b.link.Refuse(c.refuse)
			status, j := c.by.call("p", c.request)
			assert.Equal(t, []any{c.status, c.code}, []any{status, j["code"]}, "%s: %v", c.request, j)
			for _, name := range []string{"a", "b", "c"} {
				assert.NotEmpty(t, b.holder(name), "%s: %s is still held", c.request, name)
			}
		}
		b.link.Refuse(nil)
		b.link.Again(memstore.Once("release")) // the reply is lost, and Spanner's client sends the request again
		status, j := other.call("p", path(held.Token, held.Hold, "a", "b"))
		assert.Equal(t, []any{200, "released"}, []any{status, j["state"]})
		assert.Empty(t, b.holder("a")+b.holder("b"))
		assert.NotEmpty(t, b.holder("c"))
		status, j = other.call("p", path(held.Token, held.Hold, "a", "b"))
		assert.Equal(t, []any{410, "lost"}, []any{status, j["code"]}, "a second release")
		status, j = other.call("p", path(single.Token, single.Hold, "c"))
		assert.Equal(t, []any{200, "released"}, []any{status, j["state"]})
		assert.Empty(t, b.holder("c"))
		other.ends()
	})
}
