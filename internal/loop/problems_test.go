package loop

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Of each row of failures, each kind is said once, and the end is said if a failure was. A single failure is not said,
// unless Spanner refused the request. This holds for every row, whatever the rows before it were.
func TestEachRowOfFailuresIsSaidOnce(t *testing.T) {
	var log strings.Builder
	p := Problems{What: "look", Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	one, other := errors.New("no route to port 1"), errors.New("no such host")
	refused := status.Error(codes.PermissionDenied, "no")
	said := func(err error) string {
		log.Reset()
		if err == nil {
			p.Clear()
		} else {
			p.Note(err)
		}
		return log.String()
	}
	for range 3 {
		for i, c := range []struct {
			err  error
			want string
		}{
			{nil, ""}, {one, ""}, {nil, ""}, {one, ""}, {errors.New("no route to port 2"), "WARN"}, {one, ""}, {other, "WARN"},
			{one, ""}, {nil, "INFO"}, {nil, ""}, {refused, "WARN"}, {refused, ""}, {nil, "INFO"},
		} {
			if c.want == "" {
				assert.Empty(t, said(c.err), "%d", i)
			} else {
				assert.Contains(t, said(c.err), "level="+c.want, "%d", i)
			}
		}
	}
}
