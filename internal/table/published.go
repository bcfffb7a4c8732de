package table

import (
	"context"
	"strings"
)

// Members of a group publish the plan in two rows. Every look reads the token of the first row, the head. A look reads
// the second row, the body, only if that token has changed. One commit writes both rows, so that they have the same
// token. The rows have no heartbeat, and no lock can have their names. The plan only states what is intended: a
// partition's own rows determine which member holds it.

const planSuffix = "!plan"

func planHead(group string) string { return GroupPrefix(group) + planSuffix }

func planBody(group string) string { return GroupPrefix(group) + "body" + planSuffix }

// isPlan reports whether a row is part of a group's plan.
func isPlan(key string) bool { return strings.HasSuffix(key, planSuffix) }

// PublishPlan replaces the plan that the publisher has read under the token seen, which is 0 if there was none. The
// publisher's id, by, becomes the writer of the head. PublishPlan fails with ErrChanged if another member was first.
func (t Table) PublishPlan(ctx context.Context, group string, seen Token, by, body string) (Token, error) {
	at, err := t.change(ctx, "publish", Keys{Names: []string{planHead(group)}}, func(rows map[string]Row) ([]Write, error) {
		if TokenAt(rows[planHead(group)].Token) != seen {
			return nil, ErrChanged
		}
		return []Write{
			{Kind: Put, Name: planHead(group), Set: []Cell{{ColToken, Now}, {ColWriter, by}}},
			{Kind: Put, Name: planBody(group), Set: []Cell{{ColToken, Now}, {ColWriter, body}}},
		}, nil
	})
	return TokenAt(at), changed(err)
}

// planIn returns the token of the plan's head and the plan's body, as the rows show them. The token is 0 if there is no
// head, and the body is "" if no body has the head's token.
func planIn(group string, rows map[string]Row) (Token, string) {
	head, body := TokenAt(rows[planHead(group)].Token), rows[planBody(group)]
	if TokenAt(body.Token) != head {
		return head, ""
	}
	return head, body.Writer
}
