package table

import "context"

// Members of a group publish their plan in two rows, the head and the body. One commit writes both rows, so both have
// the same token. Members read the head in every poll, and read the body only if the head's token has changed. The rows
// have no heartbeat, and no lock can have their names.
//
// The plan only describes which member should own each partition. Which member actually owns a partition depends on the
// partition's own rows.

const planSuffix = "!plan"

func planHead(group string) string { return GroupPrefix(group) + planSuffix }

func planBody(group string) string { return GroupPrefix(group) + "body" + planSuffix }

// PublishPlan replaces the published plan. The argument seen is the token of the plan that the caller has read, or 0 if
// there was none, and by is the caller's id. PublishPlan fails with ErrChanged if another member has published a plan
// in the meantime.
func (t Table) PublishPlan(ctx context.Context, group string, seen Token, by, body string) (Token, error) {
	at, err := t.change(ctx, "publish", Keys{Names: []string{planHead(group)}}, func(rows Rows) ([]Write, error) {
		if TokenAt(rows.byName[planHead(group)].Token) != seen {
			return nil, ErrChanged
		}
		return []Write{
			{Kind: Put, Name: planHead(group), Set: []Cell{{ColToken, Now}, {ColWriter, by}}},
			{Kind: Put, Name: planBody(group), Set: []Cell{{ColToken, Now}, {ColWriter, body}}},
		}, nil
	})
	return TokenAt(at), changed(err)
}

// planIn returns the token of the plan's head and the text of the plan's body. The token is 0 if there is no head. The
// text is empty if the body is missing or has a different token than the head.
func planIn(group string, rows Rows) (Token, string) {
	head, body := TokenAt(rows.byName[planHead(group)].Token), rows.byName[planBody(group)]
	if TokenAt(body.Token) != head {
		return head, ""
	}
	return head, body.Writer
}
