//go:build unix && browser

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"github.com/chromedp/cdproto/emulation"
	cdpnetwork "github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/internal/testkit/emulator"
	"github.com/spindle-lock/spindle/internal/testkit/network"
	"github.com/spindle-lock/spindle/spindletest"
)

// A shown is a lock table that a page shows in a browser.
type shown struct {
	*testing.T
	db   *spindletest.Database
	link *network.Link // between spindle serve and the database
	env  []string      // of commands
	base string        // of spindle serve
	stop func()        // ends it
	ctx  context.Context
}

// show starts spindle serve on a table of its own, and opens its page.
func show(t *testing.T, features ...*emulation.MediaFeature) *shown {
	t.Parallel()
	s := &shown{T: t, db: spindletest.New(t)}
	e, err := emulator.Shared(t.Context())
	require.NoError(t, err)
	s.link, err = network.NewLink(e.Addr())
	require.NoError(t, err)
	t.Cleanup(s.link.Close)
	s.env = []string{"SPANNER_EMULATOR_HOST=" + e.Addr(), "SPINDLE_DB=" + s.db.Path, "SPINDLE_TABLE=" + s.db.Table}
	s.serve("127.0.0.1:0")

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WSURLReadTimeout(2*time.Minute)) // a cold start
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	s.ctx, cancel = context.WithTimeout(ctx, 8*time.Minute)
	t.Cleanup(cancel)
	t.Cleanup(s.keep)
	_, err = chromedp.Call(s.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	require.NoError(t, err)
	s.do(chromedp.EmulateViewport(1400, 800))
	require.NoError(t, chromedp.Listen(s.ctx, func(event any) {
		if asks, is := event.(*cdpnetwork.EventRequestWillBeSent); is && !strings.HasPrefix(asks.Request.URL, s.base) {
			t.Errorf("the page loads %s", asks.Request.URL)
		}
	}))
	s.do(chromedp.Navigate(s.base + "/?span=2m"))
	s.await("it is connected", `document.body.dataset.state === "live"`)
	return s
}

func (s *shown) serve(listen string, more ...string) {
	args := append([]string{"serve", "--listen", listen, "--every", "100ms"}, more...)
	p := start(s.T, append(s.env, "SPANNER_EMULATOR_HOST="+s.link.Addr()), "spindle", args...)
	s.base = p.says(`is shown at (http://\S+)`)
	s.stop = func() {
		require.NoError(s, p.Process.Signal(syscall.SIGTERM))
		for range p.lines { // until its end
		}
	}
}

func (s *shown) do(steps ...chromedp.Action[chromedp.Void]) {
	s.Helper()
	require.NoError(s, chromedp.Do(s.ctx, steps...))
}

// keep leaves a picture of a failure behind.
func (s *shown) keep() {
	if !s.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 10*time.Second)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		s.Logf("no picture of it: %v", err)
		return
	}
	dir := filepath.Join(os.TempDir(), "spindle-browser")
	path := filepath.Join(dir, s.Name()+".png")
	if err := os.MkdirAll(dir, 0o755); err == nil && os.WriteFile(path, png, 0o644) == nil {
		s.Logf("what the page looked like: %s", path)
	}
}

// read is the value of an expression in the page.
func read[T any](s *shown, expression string) T {
	s.Helper()
	v, err := chromedp.Run(s.ctx, chromedp.Evaluate[T](expression))
	require.NoError(s, err, expression)
	return v
}

// await waits until an expression is true in the page.
func (s *shown) await(what, expression string) {
	s.Helper()
	for end := time.Now().Add(45 * time.Second); !read[bool](s, "(() => { try { return Boolean("+expression+") } catch { return false } })()"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("not so: %s: %s", what, expression)
		}
	}
}

// row is the row of a lock, as an expression.
func row(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(".row")].find((r) => r.querySelector(".name .main").textContent === %q)`, name)
}

// exec starts a process that competes for a lock.
func (s *shown) exec(name, id string, lease time.Duration) *process {
	return start(s.T, s.env, "spindle", "exec", "--quiet", "--name", name, "--id", id, "--lease", lease.String(), "--restart", "--", "sh", "-c", "echo works; exec sleep 1000")
}

// claims holds a lock, and never sends a heartbeat.
func (s *shown) claims(name, id, value string, lease time.Duration) table.Token {
	c := elect.Candidate{Table: table.Table{Store: table.Spanner{DB: s.db.Client, Table: s.db.Table}}, Clock: elect.SystemClock{},
		Names: []string{name}, ID: id, LeaseRecord: table.LeaseRecord{Lease: lease, Value: value}}
	for {
		step := c.Try(s.Context(), elect.All, lease)
		if step.Term != nil {
			return step.Term.Token()
		}
		require.NoError(s, s.Context().Err())
		elect.Sleep(s.Context(), c.Clock, step.Pause)
	}
}

const share = `.querySelector(".fill").getBoundingClientRect().width`

// TestBrowserLeasesAreBarsThatRunOutAndAreRefilled.
func TestBrowserLeasesAreBarsThatRunOutAndAreRefilled(t *testing.T) {
	s := show(t)
	s.exec("job", "one", 10*time.Second).says("works")
	s.await("the lock is there", row("job"))
	s.await("it is held", row("job")+`.querySelector(".state .state").textContent === "held"`)
	read[any](s, `window.widths = [], setInterval(() => widths.push(`+row("job")+share+`), 30), null`)
	s.await("the bar runs out for a while, and is refilled, twice", `(() => {
		let refills = 0, down = 0;
		for (let i = 1; i < widths.length; i++) {
			if (widths[i] < widths[i - 1]) down++;
			else if (widths[i] > widths[i - 1] + 1 && down > 5) { refills++; down = 0; }
		}
		return refills >= 2;
	})()`)
	assert.Greater(t, read[float64](s, `Math.min(...widths.slice(10))`), 0.5*read[float64](s, row("job")+`.querySelector(".bar").clientWidth`)*0.9)
}

// TestBrowserAKillIsAGapAndANewColour, and hovering says what happened.
func TestBrowserAKillIsAGapAndANewColour(t *testing.T) {
	s := show(t)
	one := s.exec("job", "one", 2*time.Second)
	one.says("works")
	s.await("one holds it", row("job")+`.querySelector(".holder .main").textContent === "one"`)
	two := s.exec("job", "two", 2*time.Second)
	require.NoError(t, one.Process.Signal(syscall.SIGSTOP))
	two.says("works")
	s.await("two holds it", row("job")+`.querySelector(".holder .main").textContent === "two"`)
	s.await("there is a gap", row("job")+`.querySelector(".gap.bad")`)
	s.await("both terms are drawn", row("job")+`.querySelectorAll(".strip .term").length === 2`)
	colours := read[[]string](s, `[...`+row("job")+`.querySelectorAll(".strip .term")].map((e) => getComputedStyle(e).backgroundColor)`)
	require.Len(t, colours, 2)
	assert.NotEqual(t, colours[0], colours[1])
	read[any](s, `(() => {
		const first = `+row("job")+`.querySelector(".strip .term").getBoundingClientRect();
		`+row("job")+`.querySelector(".track").dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: (first.left + first.right) / 2, clientY: first.top + 5}));
		return null;
	})()`)
	assert.Regexp(t, `^one.*expired: no heartbeat arrived within the lease.*token \d{16}$`, read[string](s, `document.getElementById("tip").textContent`))
}

// TestBrowserWhatIsInTheTableIsOnlyText: names, ids and values that are scripts are shown as they are.
func TestBrowserWhatIsInTheTableIsOnlyText(t *testing.T) {
	s := show(t)
	const script = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`
	token := s.claims(script, script+"\u202e", script+"\n\x1b[31m", time.Hour)
	s.await("it is held", `document.querySelector(".row .state .state").textContent === "held"`)
	assert.Equal(t, script, read[string](s, `document.querySelector(".row .name .main").textContent`))
	assert.Equal(t, `$'`+script+`\u202e'`, read[string](s, `document.querySelector(".row .holder .main").textContent`))
	assert.Equal(t, `$'`+script+`\n\x1b[31m'`, read[string](s, `document.querySelector(".row .name .sub").textContent`))
	s.do(chromedp.Click(".row"))
	s.await("the detail is open", `document.querySelector("#detail code")`)
	command := read[string](s, `document.querySelector("#detail code").textContent`)
	assert.Equal(t, fmt.Sprintf("spindle release '%s' --token %v --db %s", script, token, s.db.Path), command)
	assert.Zero(t, read[int](s, `document.querySelectorAll(".row img, .row script, #detail img, #detail script").length`))
	assert.False(t, read[bool](s, `"pwned" in window`))
	// Even if the page had a mistake, the browser would refuse it.
	assert.True(t, read[bool](s, `(() => { try { document.getElementById("tip").innerHTML = "<b>x</b>"; return false } catch { return true } })()`))
}

// TestBrowserSaysWhatWasDoneLast under a lock, and how long ago that is; also if the lock's row was pruned, and if the
// record can't be read.
func TestBrowserSaysWhatWasDoneLast(t *testing.T) {
	s := show(t)
	done := func(name string) string { return row(name) + `.querySelector(".name .done").textContent` }
	record := func(name, said string) {
		_, err := s.db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.InsertOrUpdate(s.db.Table, []string{"name", "heartbeat", "token", "writer"},
			[]any{name + "!done", spanner.CommitTimestamp, time.Now().Add(-time.Hour), said})})
		require.NoError(t, err)
	}
	s.claims("plain", "one", "", time.Hour)
	s.claims("held", "one", "http://10.0.0.7", time.Hour)
	record("held", `{"done":"7"}`)
	record("garbled", "forty-three")
	const script = `<img src=x onerror="window.pwned=1">`
	record("hostile", `{"done":"`+strings.ReplaceAll(script, `"`, `\"`)+`\u202e","by":"`+strings.ReplaceAll(script, `"`, `\"`)+`\n"}`)
	start(t, s.env, "spindle", "exec", "--name", "job", "--id", "two", "--once", "week-42", "--", "true")
	s.await("a release says what was done", done("job")+`.match(/^done \S+ ago: week-42, by two$/) && ["free", "released"].includes(`+row("job")+`.dataset.state)`)
	s.await("all are there", `document.querySelectorAll(".row").length === 5`)
	assert.Empty(t, read[string](s, done("plain")), "nothing was done under it")
	assert.Regexp(t, `^done \S+ ago: 7, by an unknown holder$`, read[string](s, done("held")))
	assert.Regexp(t, `^the key that was done last is not known: row "garbled!done" contains "forty-three"`, read[string](s, done("garbled")))
	assert.Equal(t, "free", read[string](s, row("garbled")+`.dataset.state`))
	assert.Contains(t, read[string](s, done("hostile")), ` ago: $'`+script+`\u202e', by $'`+script+`\n'`)

	before := read[string](s, done("job"))
	s.await("the time goes on", done("job")+fmt.Sprintf(` !== %q`, before))
	_, err := s.db.Client.Apply(t.Context(), []*spanner.Mutation{spanner.Delete(s.db.Table, spanner.Key{"job"})})
	require.NoError(t, err)
	record("held", `{"done":"8"}`)
	s.await("another look came", done("held")+`.includes(" ago: 8, by")`)
	assert.Regexp(t, ` ago: week-42, by two$`, read[string](s, done("job")), "it is said without the lock's row")
	fact := func(name string) string {
		read[any](s, row(name)+`.click(), null`)
		s.await("the detail is open", `document.querySelector("#detail h2").textContent === "`+name+`"`)
		return read[string](s, `[...document.querySelectorAll("#detail dt")].map((e) => e.textContent + ": " + e.nextSibling.textContent).join("\n")`)
	}
	assert.Regexp(t, `(?m)^Last done: week-42\d\d:\d\d:\d\d\.\d{3} UTC, \S+ ago, by two$`, fact("job"))
	assert.Contains(t, fact("hostile"), `Last done: $'`+script+`\u202e'`)
	assert.Contains(t, fact("garbled"), `Problem: the key that was done last is not known: row "garbled!done" contains "forty-three"`)
	assert.NotContains(t, fact("plain"), "done")
	assert.Zero(t, read[int](s, `document.querySelectorAll(".row img, #detail img").length`))
	assert.False(t, read[bool](s, `"pwned" in window`))
	s.do(chromedp.SendKeys("#search", "week-42"))
	s.await("a search finds it", `document.getElementById("grid").getAttribute("aria-rowcount") === "2"`)
}

// TestBrowserSaysWhoWaits: how many processes wait is below the lock's name, while they do, and in its details.
func TestBrowserSaysWhoWaits(t *testing.T) {
	s := show(t)
	waiting := func(name string) string { return row(name) + `.querySelector(".name .waiting").textContent` }
	locks := table.Table{Store: table.Spanner{DB: s.db.Client, Table: s.db.Table}}
	var tickets []table.Ticket
	for i := range 3 {
		w := table.Ticket{Queue: "busy", Time: table.TokenAt(time.Now().Add(-time.Duration(3-i) * time.Minute)), Nonce: "n", ID: "w"}
		require.NoError(t, locks.Queue(t.Context(), w.Put()))
		tickets = append(tickets, w)
	}
	s.await("a lock that nobody holds is there", row("busy")+`?.dataset.state === "free"`)
	s.claims("busy", "one", "http://10.0.0.7", time.Hour)
	s.claims("plain", "one", "", time.Hour)
	s.await("it is held", row("busy")+`.dataset.state === "held" && `+row("plain"))
	assert.Regexp(t, `^3 wait, up to 3m\d\ds$`, read[string](s, waiting("busy")))
	assert.Empty(t, read[string](s, waiting("plain")))
	assert.Equal(t, 1, read[int](s, row("busy")+`.querySelectorAll(".waiting").length`))
	read[any](s, row("busy")+`.click(), null`)
	s.await("its details say so", `/Waiting3 processes, the first for 3m/.test(document.querySelector("#detail dl").textContent)`)
	require.NoError(t, locks.Queue(t.Context(), tickets[0].Delete(), tickets[1].Delete()))
	s.await("those who go on are gone", waiting("busy")+`.startsWith("1 waits, for 1m")`)
	require.NoError(t, locks.Queue(t.Context(), tickets[2].Delete()))
	s.await("nobody waits", waiting("busy")+` === ""`)
}

// TestBrowserCommandsAreQuoted: what is copied into a shell is one word, whatever the name is.
func TestBrowserCommandsAreQuoted(t *testing.T) {
	s := show(t)
	for text, want := range map[string]string{`nightly/a-b_c.1:2`: `nightly/a-b_c.1:2`, `a b`: `'a b'`, `$(reboot)`: `'$(reboot)'`, `it's`: `'it'\''s'`,
		"a\nb": `$'a\nb'`, `$'x`: `$'$\'x'`, `;`: `';'`, ``: `''`, "\u202ea": `$'\u202ea'`} {
		got, err := chromedp.Run(s.ctx, chromedp.Evaluate[string](fmt.Sprintf(`import("./text.js").then((m) => m.shell(%q))`, text), chromedp.EvalAwaitPromise))
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}

// TestBrowserSaysWhenTheDatabaseOrTheServerIsAway, and continues when it is back.
func TestBrowserSaysWhenTheDatabaseOrTheServerIsAway(t *testing.T) {
	s := show(t)
	job := s.claims("job", "one", "", time.Hour)
	s.await("the lock is there", row("job"))
	s.link.BlackHole()
	s.await("it says that the database is away", `document.body.dataset.state === "away" && !document.getElementById("banner").hidden`)
	assert.Regexp(t, `^The database has not answered for .* The data shown is from \d\d:\d\d:\d\d UTC\.`, read[string](s, `document.getElementById("banner").textContent`))
	assert.True(t, read[bool](s, row("job")+` !== undefined`), "what was known is still shown")
	assert.False(t, read[bool](s, row("job")+`.querySelector(".blind").hidden`), "and since when it is not known")
	other := s.claims("new", "two", "", time.Hour)
	s.link.Mend()
	s.await("it is back", `document.body.dataset.state === "live" && document.getElementById("banner").hidden`)
	s.await("what is new is there", row("new"))

	// And the server: another takes its place at the same address. It meets the locks in another order.
	tokens := map[string]table.Token{"a": s.claims("a", "three", "", time.Hour), "job": job, "new": other}
	s.await("the third is there", row("a"))
	read[any](s, row("job")+`.click(), null`)
	s.await("its panel is open", `document.querySelector("#detail h2").textContent === "job"`)
	base, err := url.Parse(s.base)
	require.NoError(t, err)
	s.stop()
	s.await("it says that the server is away", `document.body.dataset.state === "lost"`)
	assert.Contains(t, read[string](s, `document.getElementById("banner").textContent`), "spindle serve does not answer")
	s.serve(base.Host)
	s.await("it is back", `document.body.dataset.state === "live"`)
	ownRows := func() {
		for name, token := range tokens {
			s.await("the lock is in its own row", fmt.Sprintf(row(name)+`.querySelector("[data-as=token]").textContent.startsWith("%v ")`, token))
		}
	}
	ownRows()
	assert.True(t, read[bool](s, `document.getElementById("detail").hidden || document.querySelector("#detail h2").textContent === "job"`))

	// And both: what was known is not shown as if it had just been read.
	s.stop()
	s.await("it says that the server is away", `document.body.dataset.state === "lost"`)
	s.link.BlackHole()
	s.serve(base.Host)
	s.await("it says that the database is away", `document.body.dataset.state === "away"`)
	s.await("it says that it knows nothing", `document.getElementById("empty").textContent === "The table has not been read yet."`)
	s.link.Mend()
	s.await("it is back", `document.body.dataset.state === "live"`)
	ownRows()
}

// fill inserts 3,000 locks with rows as holders write them, of which each tenth has expired, and as many that were released.
func (s *shown) fill() {
	now := time.Now().Truncate(time.Microsecond)
	columns := []string{"name", "heartbeat", "token", "writer"}
	for from := 0; from < 3000; from += 1000 {
		var rows []*spanner.Mutation
		for i := from; i < from+1000; i++ {
			name, since, id := fmt.Sprintf("shard/%04d", i), now.Add(-3*time.Hour), fmt.Sprintf("host-%d/4711", i%40)
			beat, record := now.Add(-time.Duration(i%7)*time.Minute), fmt.Sprintf(`{"v":1,"lease":"1h0m0s","id":%q,"value":"http://10.0.0.%d:8080"}`, id, i%40)
			if i%10 == 0 {
				beat = now.Add(-2 * time.Hour)
			}
			rows = append(rows, spanner.Insert(s.db.Table, columns, []any{name, beat, since, id}),
				spanner.Insert(s.db.Table, columns, []any{table.LeaseKey(name, table.TokenAt(since)), beat, since, record}),
				spanner.Insert(s.db.Table, columns, []any{fmt.Sprintf("order-%04d", i), nil, since, nil}))
		}
		_, err := s.db.Client.Apply(s.Context(), rows)
		require.NoError(s, err)
	}
}

// TestBrowserThousandsOfLocksAreFilteredAndSorted, and only those that are seen cost something. Counts are of what a search finds.
func TestBrowserThousandsOfLocksAreFilteredAndSorted(t *testing.T) {
	s := show(t)
	s.fill()
	s.claims("zebra", "one", "http://10.0.0.7", time.Hour)
	number := func(name string) string {
		return `document.querySelector("#filters [data-name=` + name + `] .number").textContent`
	}
	s.await("all are counted but those that were released", number("all")+` === "3,001" && `+number("held")+` === "2,701" && `+number("expired")+` === "300"`)
	elements := read[int](s, `document.querySelectorAll("*").length`)
	assert.Less(t, elements, 1500, "rows that are not seen are not there")
	assert.Greater(t, elements, 150, "those that are seen are")
	count := `document.getElementById("grid").getAttribute("aria-rowcount")`
	s.do(chromedp.Click("#filters [data-name=expired]"))
	s.await("only what expired is there", count+` === "301"`)
	assert.True(t, read[bool](s, `[...document.querySelectorAll(".row")].every((r) => r.dataset.state === "expired")`))
	assert.Contains(t, read[string](s, `location.search`), "show=expired")
	s.do(chromedp.SendKeys("#search", "SHARD/299"))
	s.await("only those that match are there", count+` === "2"`)
	assert.Equal(t, []string{"10", "9", "1", "0"}, read[[]string](s, `[`+number("all")+`,`+number("held")+`,`+number("expired")+`,`+number("damaged")+`]`), "counts follow the search")
	s.do(chromedp.Click("#filters [data-name=all]"))
	s.await("all that match are there", count+` === "11"`)
	s.do(chromedp.Click(".head .name button"))
	assert.Equal(t, "shard/2999", read[string](s, `[...document.querySelectorAll(".row")].find((r) => r.getAttribute("aria-rowindex") === "2").querySelector(".main").textContent`))
	assert.Contains(t, read[string](s, `location.search`), "q=SHARD%2F299")
	read[any](s, `(() => { const e = document.getElementById("search"); e.value = ""; e.dispatchEvent(new Event("input")); return null; })()`)
	s.await("all are there", count+` === "3002" && `+number("all")+` === "3,001"`)
	read[any](s, `document.getElementById("scroller").scrollTop = 1e9, null`)
	s.await("the last is there", row("shard/0000"))

	// What a keystroke costs: to choose, to sort and to draw.
	took := read[float64](s, `(() => {
		const e = document.getElementById("filters").querySelector("[data-name=held]"), all = [];
		for (let i = 0; i < 11; i++) { const t = performance.now(); e.click(); document.body.offsetHeight; all.push(performance.now() - t); }
		return all.sort((a, b) => a - b)[5];
	})()`)
	t.Logf("a choice among 3,000 locks takes %.1f ms", took)
	assert.Less(t, took, 2000.0)
}

// TestBrowserSaysHowOldWhatItShowsIs, while the database answers and while it does not.
func TestBrowserSaysHowOldWhatItShowsIs(t *testing.T) {
	s := show(t)
	s.claims("job", "one", "", time.Hour)
	s.await("the lock is there", row("job"))
	s.await("it was read now", `document.getElementById("age").textContent === "read now"`)
	s.link.BlackHole()
	s.await("it says how long ago that was", `/^read \d+s ago$/.test(document.getElementById("age").textContent)`)
	s.link.Mend()
	s.await("it was read now", `document.getElementById("age").textContent === "read now"`)
}

// TestBrowserShowsWhatNobodyHoldsThoughSomebodyShould: a lock that is expected is there, first by its state and in red, though it
// never had a row.
func TestBrowserShowsWhatNobodyHoldsThoughSomebodyShould(t *testing.T) {
	s := show(t)
	s.claims("job", "one", "", time.Hour)
	s.await("the lock is there", row("job"))
	button := `document.querySelector("#filters [data-name=missing]")`
	assert.True(t, read[bool](s, button+`.hidden`), "nothing is expected yet")
	base, err := url.Parse(s.base)
	require.NoError(t, err)
	s.stop()
	s.serve(base.Host, "--expect", "job,nightly")
	s.await("it is there", row("nightly")+`?.dataset.mood === "bad"`)
	assert.Equal(t, "should be held", read[string](s, row("nightly")+`.querySelector(".missing").textContent`))
	assert.Equal(t, "good", read[string](s, row("job")+`.dataset.mood`))
	assert.Equal(t, "Missing1", read[string](s, button+`.textContent`))
	s.claims("nightly", "two", "", time.Hour)
	s.await("it is held", row("nightly")+`.dataset.mood === "good" && `+button+`.hidden`)
}

// TestBrowserKeysAndNames: the page works without a pointer, and for users who listen.
func TestBrowserKeysAndNames(t *testing.T) {
	s := show(t, &emulation.MediaFeature{Name: "prefers-reduced-motion", Value: "reduce"}, &emulation.MediaFeature{Name: "prefers-color-scheme", Value: "light"})
	for _, name := range []string{"a", "b", "c"} {
		s.claims(name, "holder-of-"+name, "", time.Hour)
	}
	s.await("the locks are there", row("c"))
	read[any](s, `document.dispatchEvent(new KeyboardEvent("keydown", {key: "/", bubbles: true})), null`)
	assert.Equal(t, "search", read[string](s, `document.activeElement.id`))
	s.do(chromedp.KeyEvent("\r"), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
	active := `document.getElementById(document.getElementById("grid").getAttribute("aria-activedescendant"))`
	assert.Equal(t, "b", read[string](s, active+`.querySelector(".main").textContent`))
	s.do(chromedp.KeyEvent("\r"))
	s.await("the detail is open", `!document.getElementById("detail").hidden && document.activeElement.id === "detail"`)
	assert.Contains(t, read[string](s, `document.getElementById("detail").textContent`), "holder-of-b")
	s.do(chromedp.KeyEvent("\x1b"))
	s.await("it is closed", `document.getElementById("detail").hidden && document.activeElement.id === "grid"`)
	drawn, err := chromedp.Run(s.ctx, chromedp.Evaluate[float64](`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
		const track = document.querySelector(".row .track"), bar = track.querySelector(".term").style;
		done((parseFloat(bar.left) + parseFloat(bar.width)) / track.clientWidth);
	})))`, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	assert.InDelta(t, 2, drawn, 0.01, "timelines are drawn for the width that they have now: a term that lasts ends one width beyond the strip")
	assert.Equal(t, []string{"row", "columnheader", "gridcell"}, read[[]string](s, `["#head", "#head .cell", ".row .cell"].map((q) => document.querySelector(q).getAttribute("role"))`))
	assert.Contains(t, read[string](s, active+`.textContent`), "1 term, no gap", "the timeline in words")
	assert.Equal(t, "rgb(244, 246, 248)", read[string](s, `getComputedStyle(document.body).backgroundColor`), "the light colours")
}

// TestBrowserAMembersPartitionsAreFoldedAway: a group is its members, each with what it has.
func TestBrowserAMembersPartitionsAreFoldedAway(t *testing.T) {
	s := show(t)
	locks := table.Table{Store: table.Spanner{DB: s.db.Client, Table: s.db.Table}}
	name := table.SlotName("orders", 7)
	seen, err := locks.Observe(t.Context(), name)
	require.NoError(t, err)
	token, err := locks.Claim(t.Context(), "one", seen...)
	require.NoError(t, err)
	record := table.LeaseRecord{Lease: time.Hour, ID: "one", ListDigest: "1/0123456789abcdef"}
	require.NoError(t, locks.Confirm(t.Context(), token, record, name))
	member := table.LeaseRef{Name: name, Token: token}
	var free []table.Observation
	for _, p := range []string{"asia", "eu", "us"} {
		free = append(free, table.Observation{Name: table.PartitionName("orders", p), At: time.Now()})
	}
	taken, names, err := locks.ClaimPartitions(t.Context(), member, free...)
	require.NoError(t, err)
	_, err = locks.ConfirmPartitions(t.Context(), member, record, taken, names...)
	require.NoError(t, err)

	s.await("the member says what it has", row(name)+`.querySelector(".name .sub").textContent === "3 partitions"`)
	assert.True(t, read[bool](s, row(names[1])+` === undefined`), "they are folded away")
	s.do(chromedp.Focus("#grid"), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowRight))
	s.await("they are unfolded", row(names[1]))
	assert.Equal(t, []string{"1", "2"}, read[[]string](s, `[`+row(name)+`, `+row(names[1])+`].map((r) => r.getAttribute("aria-level"))`))
	assert.Equal(t, "one", read[string](s, row(names[1])+`.querySelector(".holder .main").textContent`))
	read[any](s, row(names[1])+`.click(), null`)
	s.await("the detail is open", `document.querySelector("#detail code")`)
	assert.Contains(t, read[string](s, `document.querySelector("#detail code").textContent`), fmt.Sprintf("spindle release %s --token %v", name, token), "it is the member that can be released")
	s.do(chromedp.Focus("#grid"))
	read[any](s, row(name)+`.querySelector(".fold").click(), null`)
	s.await("they are folded again", row(names[1])+` === undefined`)
	s.do(chromedp.SendKeys("#search", "partition/eu"))
	s.await("a search finds them all the same", row(names[1]))
}
