package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/connect"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// rows is a table.Store of which only Read is called.
type rows struct {
	table.Store
	mu    sync.Mutex
	rows  []table.Row
	at    time.Time
	err   error
	reads int
}

func (r *rows) Read(ctx context.Context, _ string, _ table.Bound, _ table.Keys) ([]table.Row, time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	if r.at.IsZero() {
		return r.rows, time.Now(), r.err
	}
	return r.rows, r.at, r.err
}

// held is the rows of a lock.
func held(name, id, value string, since, heartbeat time.Time) []table.Row {
	record, _ := json.Marshal(map[string]string{"lease": lease.String(), "id": id, "value": value})
	return []table.Row{{Name: name, Heartbeat: heartbeat, Token: since, Writer: id},
		{Name: table.LeaseKey(name, table.TokenAt(since)), Heartbeat: heartbeat, Token: since, Writer: string(record)}}
}

func serverOn(r *rows) *Server {
	return serverWith(Config{Every: time.Second}, r, time.Second)
}

// serverWith returns a server on a table that has to be read within a timeout.
func serverWith(c Config, store table.Store, timeout time.Duration) *Server {
	c.Database = &connect.Database{Path: "projects/p/instances/i/databases/d", Table: "locktable", Timeout: timeout}
	s, err := New(c, table.Table{Store: store})
	if err != nil {
		panic(err) // a test's own mistake
	}
	return s
}

// A tab is an open page, as far as the server knows.
type tab struct {
	*bufio.Scanner
	body io.Closer
}

func openTab(t testing.TB, base string) *tab {
	response, err := http.Get(base + "/events")
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 64<<20)
	return &tab{lines, response.Body}
}

// next is the next event of a kind, and its data.
func (p *tab) next(t testing.TB, kind string, into any) {
	for p.Scan() {
		if p.Text() == "event: "+kind {
			require.True(t, p.Scan())
			data, ok := strings.CutPrefix(p.Text(), "data: ")
			require.True(t, ok)
			require.NoError(t, json.Unmarshal([]byte(data), into))
			return
		}
	}
	t.Fatalf("no event %s came: %v", kind, p.Err())
}

// onAPage serves the rows on a page, after a look.
func onAPage(t *testing.T, r *rows) (*Server, *httptest.Server) {
	t.Helper()
	s := serverOn(r)
	web := httptest.NewServer(s.Handler())
	t.Cleanup(web.Close)
	require.NoError(t, s.Look(t.Context()))
	return s, web
}

func TestAPageIsToldAllAndThenWhatChanges(t *testing.T) {
	r := &rows{at: at(1), rows: held("job", "a", "here", at(0), at(0.5))}
	s, web := onAPage(t, r)
	p := openTab(t, web.URL)
	var all snapshotFrame
	p.next(t, "snapshot", &all)
	require.Len(t, all.Locks, 1)
	assert.Equal(t, "a", all.Locks[0].Holder)
	assert.Equal(t, "here", all.Locks[0].Value)
	assert.Equal(t, fmt.Sprint(at(0).UnixMicro()), all.Locks[0].Token)
	assert.Len(t, all.Locks[0].Terms, 1)

	r.rows, r.at = held("job", "a", "here", at(0), at(3)), at(4)
	require.NoError(t, s.Look(t.Context()))
	var beat lookFrame
	p.next(t, "look", &beat)
	assert.Empty(t, beat.Locks, "a heartbeat is a pair of numbers")
	assert.Equal(t, []int64{0, 1000}, beat.Beats)

	r.rows, r.at = held("job", "b", "there", at(4.5), at(4.6)), at(5)
	require.NoError(t, s.Look(t.Context()))
	var change lookFrame
	p.next(t, "look", &change)
	require.Len(t, change.Locks, 1)
	require.Len(t, change.Locks[0].Terms, 2)
	assert.Equal(t, model.EndReleased, change.Locks[0].Terms[0].End)
	assert.Equal(t, "b", change.Locks[0].Terms[1].Holder)

	r.err = errors.New("the database is away")
	require.Error(t, s.Look(t.Context()))
	var away awayFrame
	p.next(t, "away", &away)
	assert.Equal(t, "the database is away", away.Error)
	p = openTab(t, web.URL)
	p.next(t, "snapshot", &all)
	require.NotNil(t, all.Away, "a page that is opened now is told too")
	assert.Len(t, all.Locks, 1, "and what was known")
}

// TestAPageIsToldWhatWasDoneLast under a lock, when it changes, also if there is nothing else of the lock; and that it
// can't be read.
func TestAPageIsToldWhatWasDoneLast(t *testing.T) {
	record := func(said string, when time.Time) table.Row {
		return table.Row{Name: "job!done", Heartbeat: when, Token: at(0), Writer: said}
	}
	r := &rows{at: at(1), rows: held("job", "a", "", at(0), at(0.5))}
	s, web := onAPage(t, r)
	p := openTab(t, web.URL)
	var first struct{ Locks []map[string]any }
	p.next(t, "snapshot", &first)
	require.Len(t, first.Locks, 1)
	for _, name := range []string{"done", "done_by", "done_at", "problem"} {
		assert.NotContains(t, first.Locks[0], name, "a lock under which nothing was done has nothing more")
	}
	look := func(seconds float64, rows ...table.Row) (f lookFrame) {
		r.rows, r.at = rows, at(seconds)
		require.NoError(t, s.Look(t.Context()))
		p.next(t, "look", &f)
		return f
	}
	one := func(f lookFrame) lockWire {
		require.Len(t, f.Locks, 1)
		return f.Locks[0]
	}

	done := record(`{"done":"41","by":"b"}`, at(1.5))
	told := one(look(2, append(held("job", "a", "", at(0), at(0.5)), done)...))
	assert.Equal(t, []any{operator.Held, "41", "b", at(1.5)}, []any{told.State, told.Done, told.DoneBy, told.DoneAt})
	assert.Empty(t, look(3, append(held("job", "a", "", at(0), at(2.5)), done)...).Locks, "it is told once")
	told = one(look(4, done))
	assert.Equal(t, []any{operator.Free, "41", "b"}, []any{told.State, told.Done, told.DoneBy}, "its row is gone")
	told = one(look(5, record(`{"done":"42"}`, at(4.5))))
	assert.Equal(t, []any{"42", "", at(4.5)}, []any{told.Done, told.DoneBy, told.DoneAt})

	told = one(look(6, record("forty-three", at(5.5))))
	assert.Regexp(t, `^the key that was done last is not known: row "job!done" contains "forty-three", but JSON`, told.Problem)
	assert.Empty(t, told.Done)
	var again snapshotFrame
	openTab(t, web.URL).next(t, "snapshot", &again)
	assert.Equal(t, told.Problem, again.Locks[0].Problem, "a page that is opened now is told too")
	told = one(look(7))
	assert.Empty(t, told.Problem+told.Done, "somebody deleted it")
}

// Pages and metrics say how many processes wait for a lock, and since when, even if nobody holds it.
func TestAPageIsToldWhoWaits(t *testing.T) {
	now := time.Now().Truncate(time.Millisecond)
	ticket := func(queue string, since float64) table.Row {
		w := table.Ticket{Queue: queue, Time: table.TokenAt(now.Add(time.Duration(since * float64(time.Second)))), Nonce: "n", ID: "w"}
		return table.Row{Name: w.Row(), Heartbeat: now}
	}
	r := &rows{at: now, rows: held("job", "a", "", now.Add(-time.Minute), now)}
	s, web := onAPage(t, r)
	p := openTab(t, web.URL)
	var first snapshotFrame
	p.next(t, "snapshot", &first)
	look := func(tickets ...table.Row) (f lookFrame, metrics string) {
		r.rows = append(held("job", "a", "", now.Add(-time.Minute), now), tickets...)
		require.NoError(t, s.Look(t.Context()))
		p.next(t, "look", &f)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		for line := range strings.Lines(w.Body.String()) {
			if strings.HasPrefix(line, "spindle_lock_waiters") || strings.HasPrefix(line, "spindle_lock_longest") || strings.HasPrefix(line, "spindle_lock_held") {
				metrics += strings.ReplaceAll(strings.TrimPrefix(line, "spindle_lock_"), `,table="locktable"`, "")
			}
		}
		return f, metrics
	}
	f, metrics := look(ticket("job", -5), ticket("job", -2))
	require.Len(t, f.Locks, 1)
	assert.Equal(t, []any{2, 5.}, []any{f.Locks[0].Waiting, *f.Locks[0].LongestWait})
	assert.Equal(t, `held{lock="job"} 1
longest_wait_seconds{lock="job"} 5
waiters{lock="job"} 2
`, metrics)
	f, _ = look(ticket("job", -5), ticket("job", -2))
	assert.Empty(t, f.Locks, "it is told once")
	f, metrics = look(ticket("job", -2), ticket("other", -9))
	require.Len(t, f.Locks, 2)
	assert.Equal(t, []any{"other", operator.Free, 1}, []any{f.Locks[1].Name, f.Locks[1].State, f.Locks[1].Waiting})
	assert.Equal(t, `held{lock="job"} 1
held{lock="other"} 0
longest_wait_seconds{lock="job"} 2
longest_wait_seconds{lock="other"} 9
waiters{lock="job"} 1
waiters{lock="other"} 1
`, metrics)
	f, metrics = look()
	require.Len(t, f.Locks, 1)
	assert.Zero(t, f.Locks[0].Waiting)
	assert.Len(t, f.Forgotten, 1, "nothing is known of the other lock")
	assert.Equal(t, "held{lock=\"job\"} 1\nwaiters{lock=\"job\"} 0\n", metrics)
}

// shows is what a page has of the terms of a lock, after a frame.
func shows(terms []termWire, l lockWire) []termWire {
	if l.All {
		return l.Terms
	}
	kept := slices.DeleteFunc(slices.Clone(terms), func(t termWire) bool {
		return slices.ContainsFunc(l.Terms, func(changed termWire) bool { return changed.Key == t.Key })
	})
	return append(kept, l.Terms...)
}

// A page that was opened before has the same terms as a page that is opened now, however many there were: older terms are
// merged.
func TestTermsThatWereMergedReachThePagesThatAreOpen(t *testing.T) {
	for name, between := range map[string]func(r *rows, seconds float64){
		"released between two holders": func(r *rows, seconds float64) {
			r.rows = []table.Row{{Name: "job", Token: at(seconds)}}
		},
		"from holder to holder": nil,
	} {
		r := &rows{at: at(1), rows: held("job", "first", "", at(0), at(0.5))}
		s, web := onAPage(t, r)
		p := openTab(t, web.URL)
		var first snapshotFrame
		p.next(t, "snapshot", &first)
		terms := first.Locks[0].Terms
		look := func(seconds float64) {
			r.at = at(seconds)
			require.NoError(t, s.Look(t.Context()))
			var f lookFrame
			p.next(t, "look", &f)
			require.Len(t, f.Locks, 1)
			terms = shows(terms, f.Locks[0])
		}
		for i := range 3 * maxTerms {
			now := float64(i + 2)
			if between != nil {
				between(r, now)
				look(now + 0.1)
			}
			r.rows = held("job", fmt.Sprint("h", i%3), "", at(now+0.2), at(now+0.3))
			look(now + 0.4)
			k := s.history.locks["job"]
			require.Equal(t, k.wire(len(k.terms)).Terms, terms, "%s: after %d terms", name, i+2)
		}
		assert.Less(t, len(terms), maxTerms+1)
		assert.Greater(t, len(terms), maxTerms/2)
	}
}

// TestManyPagesCostOneRead: pages share a look, its frame, and the snapshot between two looks.
func TestManyPagesCostOneRead(t *testing.T) {
	r := &rows{at: at(1), rows: held("job", "a", "here", at(0), at(0.5))}
	s, web := onAPage(t, r)
	var pages []*tab
	for range 50 {
		p := openTab(t, web.URL)
		p.next(t, "snapshot", &snapshotFrame{})
		pages = append(pages, p)
	}
	first, _ := s.whole()
	again, _ := s.whole()
	assert.Same(t, &first[0], &again[0])
	r.rows, r.at = held("job", "a", "here", at(0), at(3)), at(4)
	require.NoError(t, s.Look(t.Context()))
	for _, p := range pages {
		var f lookFrame
		p.next(t, "look", &f)
		assert.Len(t, f.Beats, 2)
	}
	assert.Equal(t, 2, r.reads)
}

// TestAPageThatIsFarBehindGetsASnapshot, and delays no other page meanwhile.
func TestAPageThatIsFarBehindGetsASnapshot(t *testing.T) {
	f := newFeed()
	for i := range 100 {
		f.add(fmt.Append(nil, i))
	}
	_, _, ok, _ := f.since(100 - maxBehind - 1)
	assert.False(t, ok)
	frames, now, ok, _ := f.since(100 - maxBehind)
	assert.True(t, ok)
	assert.Len(t, frames, maxBehind)
	assert.Equal(t, "99", string(frames[maxBehind-1]))
	frames, now, ok, more := f.since(now)
	assert.True(t, ok)
	assert.Empty(t, frames)
	f.add([]byte("next"))
	<-more
	frames, _, _, _ = f.since(now)
	assert.Equal(t, "next", string(frames[0]))
}

// TestAQuietServerIsHeardFrom: a page can tell a quiet table from a lost connection.
func TestAQuietServerIsHeardFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOn(&rows{})
		ctx, cancel := context.WithCancel(t.Context())
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil))
		}()
		time.Sleep(2*tick + time.Millisecond)
		cancel()
		<-done
		assert.Equal(t, 3, strings.Count(w.Body.String(), "event: tick\n"), "one with the snapshot, and one each two seconds")
	})
}

// A scrape before the first look, or while every look fails, must not take the table for one that is read: an alert waits
// for spindle_table_up to be 0.
func TestATableThatWasNeverReadIsNotUp(t *testing.T) {
	r := &rows{rows: held("job", "a", "here", time.Now(), time.Now().Add(time.Millisecond)), err: errors.New("away")}
	s := serverOn(r)
	scrape := func() string {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	for looks := range 3 {
		text := scrape()
		assert.Contains(t, text, "spindle_table_up{table=\"locktable\"} 0\n", "after %d looks that failed", looks)
		assert.NotContains(t, text, "spindle_lock_")
		assert.NotContains(t, text, "spindle_table_locks")
		require.Error(t, s.Look(t.Context()))
	}
	r.err = nil
	require.NoError(t, s.Look(t.Context()))
	assert.Contains(t, scrape(), "spindle_table_up{table=\"locktable\"} 1\n")
}

// TestWhatIsOutOfDateIsNotSaid: if the table can't be read, the metrics say that and nothing of locks, and so does
// healthz.
func TestWhatIsOutOfDateIsNotSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{rows: held("job", "a", "here", time.Now(), time.Now().Add(time.Millisecond))}
		s := serverOn(r)
		get := func(path string) (int, string) {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			return w.Code, w.Body.String()
		}
		ctx, cancel := context.WithCancel(t.Context())
		go s.Watch(ctx)
		time.Sleep(time.Second / 2)
		_, text := get("/metrics")
		assert.Contains(t, text, `spindle_lock_held{lock="job",table="locktable"} 1`)
		assert.Contains(t, text, `spindle_table_up{table="locktable"} 1`)
		code, _ := get("/healthz")
		assert.Equal(t, 200, code)

		r.mu.Lock()
		r.err = errors.New("away")
		r.mu.Unlock()
		time.Sleep(5 * time.Second)
		_, text = get("/metrics")
		assert.Contains(t, text, "spindle_lock_held{", "a few looks that fail say nothing yet")
		time.Sleep(30 * time.Second)
		_, text = get("/metrics")
		assert.Contains(t, text, `spindle_table_up{table="locktable"} 0`)
		assert.NotContains(t, text, "spindle_lock_")
		code, text = get("/healthz")
		assert.Equal(t, 503, code)
		assert.Regexp(t, `the table was last read \d+s ago: away`, text)

		r.mu.Lock()
		r.err = nil
		r.mu.Unlock()
		time.Sleep(2 * time.Second)
		code, _ = get("/healthz")
		assert.Equal(t, 200, code)
		cancel()
		synctest.Wait()
	})
}

// TestOnlyThisMachinesNamesAreAnswered: another site's page whose name leads to this machine gets nothing.
func TestOnlyThisMachinesNamesAreAnswered(t *testing.T) {
	h := OnlyFor([]string{"locks.example"}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]int{"127.0.0.1:8117": 200, "localhost:8117": 200, "[::1]:8117": 200, "LOCALHOST": 200,
		"locks.example": 200, "locks.example:8117": 200, "Locks.Example": 200,
		"evil.example:8117": 421, "evillocks.example": 421, "evillocks.example:8117": 421, "evil.locks.example": 421, "example": 421,
		"locks.example.evil.example": 421, "locks.exampleevil": 421, "locks.example@evil.example": 421,
		"localhost.evil.example": 421, "evillocalhost": 421, "127.0.0.1.evil.example": 421, "": 421} {
		r := httptest.NewRequest(http.MethodGet, "/events", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, host)
	}
}

// TestNothingIsLoadedFromElsewhere: every answer forbids it, and the page's files name no other place.
func TestNothingIsLoadedFromElsewhere(t *testing.T) {
	s := serverOn(&rows{})
	files, err := embedded.ReadDir("page")
	require.NoError(t, err)
	for _, f := range files {
		w := httptest.NewRecorder()
		path := "/" + strings.TrimSuffix(f.Name(), "index.html")
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		assert.Equal(t, 200, w.Code, path)
		policy := w.Header().Get("Content-Security-Policy")
		assert.Contains(t, policy, "default-src 'none'; script-src 'self'")
		assert.NotContains(t, policy, "unsafe")
		text := strings.ReplaceAll(w.Body.String(), `xmlns="http://www.w3.org/2000/svg"`, "")
		assert.NotRegexp(t, `https?://|src="//|@import|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|setAttribute\("style`, text, path)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/events", nil))
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code, "it is read-only")
}

// TestHostileLabelsAreNoMetrics: what is in a name or an id stays in its label.
func TestHostileLabelsAreNoMetrics(t *testing.T) {
	now := time.Now()
	s := serverOn(&rows{rows: held("a\"} 1\nspindle_lock_held{lock=\"fake", "x\\\"\n", "", now, now.Add(time.Millisecond))})
	require.NoError(t, s.Look(t.Context()))
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	assert.Contains(t, w.Body.String(), `spindle_lock_held{lock="$'a\"} 1\\nspindle_lock_held{lock=\"fake'",table="locktable"} 1`)
	assert.NotRegexp(t, `(?m)^spindle_lock_held\{lock="fake`, w.Body.String())
	assert.Contains(t, w.Body.String(), `holder="$'x\\\\\"\\n'"`)
}

// Every file that the page's scripts import is served.
func TestThePagesScriptsImportWhatThereIs(t *testing.T) {
	scripts, err := filepath.Glob("page/*.js")
	require.NoError(t, err)
	imports := 0
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		require.NoError(t, err)
		for _, from := range regexp.MustCompile(`from "\./([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			imports++
			assert.FileExists(t, filepath.Join("page", from[1]), script)
		}
	}
	assert.Greater(t, imports, 5)
}
