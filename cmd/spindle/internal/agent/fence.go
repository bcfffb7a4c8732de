package agent

import (
	"time"

	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
)

// fenceJSON lets a program make a transaction fail if the lock is no longer held. The program either adds Mutation to
// the transaction, or runs one of the SQL statements with Parameter, and rolls back unless the number of changed rows
// is Rows.
type fenceJSON struct {
	GoogleSQL  string         `json:"googlesql"`
	PostgreSQL string         `json:"postgresql"`
	Parameter  string         `json:"p1"`
	Rows       int            `json:"rows"`
	Mutation   map[string]any `json:"mutation"`
}

// fences returns the fence of each lock that is held under the token.
func fences(tableName string, names []string, token spindle.Token) []fenceJSON {
	s := table.Spanner{Table: tableName}
	all := make([]fenceJSON, len(names))
	for i, name := range names {
		key := table.LeaseKey(name, table.Token(token))
		all[i] = fenceJSON{
			GoogleSQL:  s.FenceStatement(databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL, "", 0).SQL,
			PostgreSQL: s.FenceStatement(databasepb.DatabaseDialect_POSTGRESQL, "", 0).SQL,
			Parameter:  key,
			Rows:       1,
			Mutation:   mutations(tableName, table.Write{Kind: table.Update, Name: key})[0],
		}
	}
	return all
}

// mutations converts writes into the JSON form that Spanner's REST API takes.
func mutations(tableName string, writes ...table.Write) (all []map[string]any) {
	for _, w := range writes {
		columns, values := []string{table.ColName}, []any{w.Name}
		for _, c := range w.Set {
			columns, values = append(columns, c.Column), append(values, valueOf(c.Value))
		}
		kind := map[table.Kind]string{table.Insert: "insert", table.Update: "update", table.Put: "insertOrUpdate"}[w.Kind]
		all = append(all, map[string]any{kind: map[string]any{"table": table.APIName(tableName), "columns": columns, "values": [][]any{values}}})
	}
	return all
}

// commitTimestamp is the placeholder that Spanner's API replaces with the commit timestamp.
const commitTimestamp = "spanner.commit_timestamp()"

func valueOf(v any) any {
	switch v := v.(type) {
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case string, nil:
		return v
	}
	return commitTimestamp // table.Now
}
