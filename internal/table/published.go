package table

import (
	"context"
	"strings"
)

// Members of a group publish the assignments in two rows: the head, whose token every look reads, and the body, which a
// look reads only when the head's token has changed. One commit writes both, so that they have one token. The rows have
// no heartbeat, and no lock can have their names. They say what is intended: a partition's own rows say who holds it.

const planSuffix = "!plan"

func planHead(group string) string { return GroupPrefix(group) + planSuffix }

func planBody(group string) string { return GroupPrefix(group) + "body" + planSuffix }

// isPlan reports whether a row is part of a group's plan.
func isPlan(key string) bool { return strings.HasSuffix(key, planSuffix) }

// PublishPlan replaces the plan that was seen under that token, 0 for none, by another. The writer of the head says by
// whom. It fails with ErrChanged if another member was first.
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

// planIn returns the token of the head that rows show, 0 if there is none, and its body: "" if there is none.
func planIn(group string, rows map[string]Row) (Token, string) {
	head, body := TokenAt(rows[planHead(group)].Token), rows[planBody(group)]
	if TokenAt(body.Token) != head {
		return head, ""
	}
	return head, body.Writer
}
