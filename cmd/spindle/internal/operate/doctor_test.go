package operate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/doctor"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/memstore"
)

// expecting is a doctor with --expect.
func expecting(names ...string) *examination {
	return &examination{Database: &database.Database{Timeout: time.Second}, expected: names}
}

// A lock that should have a holder and has none fails the check, with its name and the reason. Every lock that is named counts.
func TestDoctorFailsIfAnExpectedLockHasNoHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, _ := everyState(t)
		for names, want := range map[string]struct {
			verdict doctor.Verdict
			found   string
		}{
			"held":               {doctor.OK, "1 lock with a holder"},
			"held,leaving,newer": {doctor.OK, "3 locks with a holder"},
			"free":               {doctor.Failed, "no process holds free (never claimed, or its row was pruned)"},
			"held,expired,leaving,released,unconfirmed": {doctor.Failed, "no process holds expired (expired 0.0s ago), released (released 0.0s ago), unconfirmed (claimed by unconfirmed's holder, which has not confirmed its claim yet)"},
			"orphaned,held": {doctor.Failed, "no process holds orphaned (its lock row was deleted)"},
		} {
			c, err := expecting(strings.Split(names, ",")...).checkLed(t.Context(), tab)
			assert.NoError(t, err)
			assert.Equal(t, []any{"expected", want.verdict, want.found}, []any{c.Name, c.Verdict, c.Found}, names)
			if want.verdict == doctor.OK {
				assert.Empty(t, c.Means+c.Do)
				continue
			}
			assert.Equal(t, "no process is doing the work that these locks protect", c.Means)
			assert.Contains(t, c.Do, "make sure that the programs that use these locks are running")
		}
		c, err := expecting("held").checkLed(t.Context(), table.Table{Store: &memstore.Store{}})
		assert.NoError(t, err)
		assert.Equal(t, doctor.Failed, c.Verdict)
	})
}

// A lock that can't be read fails no check, but the check does not count the lock as held either. Doctor itself fails if the reason may
// pass, if the reads take longer than --timeout, or if a user interrupts it, so that --expect always raises an alarm.
func TestDoctorFailsIfAnExpectedLockCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab, _ := everyState(t)
		interrupted, interrupt := context.WithCancelCause(t.Context())
		stopped := errors.New("interrupt signal received")
		for what, c := range map[string]struct {
			names []string
			read  func(ctx context.Context, request int) error
			says  string // "": only the check says it
		}{
			"a group":   {[]string{"held", "orders"}, func(context.Context, int) error { return nil }, "2: orders is a group, not a lock"},
			"an outage": {[]string{"held", "leaving"}, func(_ context.Context, n int) error { return map[int]error{2: commandtest.Away}[n] }, "1: the database is away"},
			"a refusal": {[]string{"held", "leaving"}, func(_ context.Context, n int) error { return status.Error(codes.PermissionDenied, "not permitted") }, ""},
			"an interrupt": {[]string{"held", "leaving"}, func(_ context.Context, n int) error {
				interrupt(stopped)
				return context.Canceled
			}, "1: interrupt signal received"},
			"a database that never answers": {[]string{"held", "leaving"}, func(ctx context.Context, n int) error {
				<-ctx.Done()
				return ctx.Err()
			}, "1: context deadline exceeded"},
		} {
			n := 0
			led, err := expecting(c.names...).checkLed(interrupted, table.Table{Store: table.Via(func(ctx context.Context, _ string, do func(context.Context, table.Store) error) error {
				n++
				return cmp.Or(c.read(ctx, n), do(ctx, tab.Store))
			})})
			assert.Equal(t, []any{"expected", doctor.NotChecked, "", ""}, []any{led.Name, led.Verdict, led.Means, led.Do}, what)
			assert.NotContains(t, led.Found, "with a holder")
			if c.says == "" {
				assert.NoError(t, err)
				assert.Contains(t, led.Found, "not permitted")
				continue
			}
			endsWith(t, err, c.says, what)
			interrupted, interrupt = context.WithCancelCause(t.Context())
		}
		interrupt(nil)
	})
}

// The report has each check, its meaning and the advice, whatever the width of the terminal, and how many there are of each verdict.
func TestAReportIsPrintedWhole(t *testing.T) {
	report := doctor.Report{Database: "projects/p/instances/i/databases/d", Table: "locktable", Checks: []doctor.Check{
		{Name: "table", Verdict: doctor.OK, Found: "the table's schema is correct"},
		{Name: "clock", Verdict: doctor.OK, Found: "it runs", Means: "more", Do: "nothing"},
		{Name: "commit timestamps", Verdict: doctor.Failed, Found: "they repeat\x1b", Means: "two processes may hold one lock", Do: "do not use it"},
		{Name: "fence", Verdict: doctor.NotChecked, Found: "not permitted"},
		{Name: "queue", Verdict: doctor.Warning, Found: "slow", Means: "waiters take longer", Do: "move"},
		{Name: "group", Verdict: doctor.Note, Found: "no index", Means: "nothing", Do: "nothing"},
		{Name: "cycle", Verdict: doctor.Failed, Found: "no commit", Means: "no lock", Do: "ask"},
	}}
	letters := func(text string) string { return strings.Join(strings.Fields(text), "") }
	show := func(width int) string {
		var b bytes.Buffer
		(&examination{}).printReport(&terminal.Terminal{Writer: &b, Width: width}, report)
		return b.String()
	}
	wide := `Table locktable in projects/p/instances/i/databases/d

ok           table              the table's schema is correct
ok           clock              it runs
                                this means: more
                                what to do: nothing
failed       commit timestamps  they repeat\x1b
                                this means: two processes may hold one lock
                                what to do: do not use it
not checked  fence              not permitted
warning      queue              slow
                                this means: waiters take longer
                                what to do: move
note         group              no index
                                this means: nothing
                                what to do: nothing
failed       cycle              no commit
                                this means: no lock
                                what to do: ask

2 ok, 1 note, 1 warning, 2 failed, 1 not checked
`
	assert.Equal(t, wide, show(0), "it is not wrapped for a program")
	assert.Equal(t, wide, show(80))
	column := strings.Repeat(" ", 32)
	assert.Equal(t, strings.NewReplacer("may hold one lock", "may\n"+column+"hold one lock", "take longer", "take\n"+column+"longer").Replace(wide), show(62), "it is wrapped within its column")
	assert.Contains(t, show(61), `failed
commit timestamps
  they repeat\x1b
  this means: two processes may hold one lock
  what to do: do not use it
not checked
fence
  not permitted
`, "on a narrow terminal, the text is below the name")
	for width := 20; width < 130; width++ {
		text := show(width)
		assert.Equal(t, letters(wide), letters(text), "something is missing at %d", width)
		for line := range strings.Lines(text) {
			assert.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), width, "at %d", width)
		}
	}

	long := strings.Repeat("word ", 60)
	report.Checks = []doctor.Check{{Name: "table", Verdict: doctor.OK, Found: strings.TrimSpace(long)}}
	assert.Contains(t, show(0), strings.TrimSpace(long), "a program gets one line")
	whole := letters(show(0))
	for width := 20; width < 130; width++ {
		assert.Equal(t, whole, letters(show(width)), "at %d, the verdict is on each line", width)
	}
	for line := range strings.Lines(show(300)) {
		assert.LessOrEqual(t, len(line), terminal.Readable+1, "nobody can read lines that are so long")
	}
	report.Checks = nil
	assert.Equal(t, fmt.Sprintf("Table %s in %s\n\n\n\n", report.Table, report.Database), show(0))
}
