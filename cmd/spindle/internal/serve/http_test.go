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
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/model"
	"github.com/spindle-lock/spindle/internal/operator"
	"github.com/spindle-lock/spindle/internal/table"
)

// rows is a table.Store of which only Read is called.
type rows struct {
	table.Store
	rows  []table.Row
	at    time.Time // the time is now if this is zero
	err   error
	reads int
}

func (r *rows) Read(context.Context, string, table.Bound, table.Keys) ([]table.Row, time.Time, error) {
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

// serverOn returns a server on a table that has to be read within a timeout.
func serverOn(store table.Store, c Config, timeout time.Duration) *Server {
	c.Every = time.Second
	c.Database = &database.Database{Path: "projects/p/instances/i/databases/d", Table: "locktable", Timeout: timeout}
	s, err := New(c, table.Table{Store: store})
	if err != nil {
		panic(err) // a test's own mistake
	}
	return s
}

// get is the answer to a request.
func get(s *Server, path string) (int, string) {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// series are the metrics whose names begin with a text, without that text, a line each.
func (s *Server) series(metric string) string {
	var all []string
	_, text := get(s, "/metrics")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, metric) {
			all = append(all, strings.TrimSpace(strings.NewReplacer(`,table="locktable"`, "", metric, "").Replace(line)))
		}
	}
	return strings.Join(all, "\n")
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
	s := serverOn(r, Config{}, time.Second)
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
	ticket := func(queue string, since float64, rank int) table.Row {
		w := table.Ticket{Queue: queue, Time: table.TurnFor(table.TokenAt(now.Add(time.Duration(since*float64(time.Second)))), rank), Rank: rank, Nonce: "n", ID: "w"}
		return table.Row{Name: w.Row(), Heartbeat: now, Writer: fmt.Sprintf(`{"rank":%d}`, rank)}
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
		return f, s.series("spindle_lock_waiters") + s.series("spindle_lock_longest_wait_seconds")
	}
	f, metrics := look(ticket("job", -2, 0), ticket("job", -5, 1))
	require.Len(t, f.Locks, 1)
	assert.Equal(t, []any{2, 5.}, []any{f.Locks[0].Waiting, *f.Locks[0].LongestWait})
	assert.Equal(t, `{lock="job"} 2{lock="job"} 5`, metrics)
	f, _ = look(ticket("job", -2, 0), ticket("job", -5, 1))
	assert.Empty(t, f.Locks, "it is told once")
	f, metrics = look(ticket("job", -2, 0), ticket("other", -9, 1))
	require.Len(t, f.Locks, 2)
	assert.Equal(t, []any{"other", operator.Free, 1}, []any{f.Locks[1].Name, f.Locks[1].State, f.Locks[1].Waiting})
	assert.Equal(t, "{lock=\"job\"} 1\n{lock=\"other\"} 1{lock=\"job\"} 2\n{lock=\"other\"} 9", metrics)
	f, metrics = look()
	require.Len(t, f.Locks, 1)
	assert.Zero(t, f.Locks[0].Waiting)
	assert.Len(t, f.Forgotten, 1, "nothing is known of the other lock")
	assert.Equal(t, `{lock="job"} 0`, metrics)
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
// merged, so that an hour of a lock that goes round takes little memory, and none is lost.
func TestTermsThatWereMergedReachThePagesThatAreOpen(t *testing.T) {
	for released, heldFor := range map[bool]float64{true: 2 + 0.8*(3*maxTerms-1), false: 2.2 + 1*(3*maxTerms-1)} {
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
			if released {
				r.rows = []table.Row{{Name: "job", Token: at(now)}}
				look(now + 0.1)
			}
			r.rows = held("job", fmt.Sprint("h", i%3), "", at(now+0.2), at(now+0.3))
			look(now + 0.4)
			k := s.history.locks["job"]
			require.Equal(t, k.wire(len(k.terms)).Terms, terms, "released: %v, after %d terms", released, i+2)
		}
		assert.Less(t, len(terms), maxTerms+1)
		assert.Greater(t, len(terms), maxTerms/2, "half of them are as they were")
		count, held := 0, 0.
		for i, term := range terms {
			count += max(term.Count, 1)
			switch {
			case term.Held > 0:
				held += float64(term.Held) / 1000
			case term.To > 0:
				held += float64(term.To-term.From) / 1000
			}
			assert.True(t, i == 0 || term.From >= terms[i-1].To, "they follow each other")
		}
		assert.Equal(t, 3*maxTerms+1, count)
		assert.InDelta(t, heldFor, held, 0.1)
	}
}

// Merged terms begin with the first term and end as the last one. They have a holder only if all the terms had the same holder, because
// the page would otherwise name a holder for a time in which another process held the lock. The page gets the number of terms even if
// the last one was missed. Otherwise, it would show them as one long term.
func TestMergedTermsSayWhatIsTrueOfAllOfThem(t *testing.T) {
	for holders := range 4 { // with 0, all terms were missed
		k := &lock{}
		var each []term
		for i := range 5 * maxTerms {
			from := at(float64(10 * i))
			t := term{token: table.TokenAt(from), holder: fmt.Sprint("h", i/8%max(holders, 1)), from: from, to: from.Add(time.Duration(1+i%7) * time.Second), end: []model.End{model.EndReleased, model.EndExpired}[i%2], over: true, seen: from, count: 1}
			if i%9 == 5 || holders == 0 {
				t.token, t.holder, t.end = 0, "", model.EndMissed
			}
			each = append(each, t)
			if k.terms = append(k.terms, t); len(k.terms) > maxTerms {
				k.merge()
			}
		}
		for _, got := range k.terms {
			require.LessOrEqual(t, got.count, len(each))
			of := each[:got.count]
			each = each[got.count:]
			want := of[len(of)-1]
			want.from, want.count = of[0].from, len(of)
			for _, t := range of {
				if len(of) > 1 {
					want.held += t.to.Sub(t.from)
				}
				if t.holder != of[0].holder {
					want.holder = ""
				}
			}
			require.Equal(t, want, got)
			wire := got.wire()
			require.Equal(t, []any{len(of) > 1, want.held.Milliseconds()}, []any{wire.Count == len(of), wire.Held})
		}
		assert.Empty(t, each)
	}
}

// Pages share a look, its frame, and the snapshot between two looks. A page that is far behind gets a snapshot, and one that
// is less far gets what it has missed.
func TestManyPagesCostOneRead(t *testing.T) {
	r := &rows{at: at(1), rows: held("job", "a", "here", at(0), at(0.5))}
	s, web := onAPage(t, r)
	var pages []*tab
	for range 50 {
		p := openTab(t, web.URL)
		p.next(t, "snapshot", &snapshotFrame{})
		pages = append(pages, p)
	}
	first, version, more := s.since(never)
	again, _, _ := s.since(never)
	assert.Same(t, &first[0][0], &again[0][0])
	r.rows, r.at = held("job", "a", "here", at(0), at(3)), at(4)
	require.NoError(t, s.Look(t.Context()))
	for _, p := range pages {
		var f lookFrame
		p.next(t, "look", &f)
		assert.Len(t, f.Beats, 2)
	}
	assert.Equal(t, 2, r.reads)

	<-more
	for range maxBehind {
		frames, now, _ := s.since(version)
		assert.Contains(t, string(frames[0]), "event: look\n")
		assert.Len(t, frames, now-version)
		require.NoError(t, s.Look(t.Context()))
	}
	frames, _, _ := s.since(version)
	assert.Contains(t, string(frames[0]), "event: snapshot\n")
}

// A page that is slow to read sends frames that it took long ago. Frames that were taken stay as they are, whatever is
// added since, or the page would show a change twice, and miss another.
func TestFramesThatAPageHasTakenStayAsTheyAre(t *testing.T) {
	s := serverOn(&rows{}, Config{}, time.Second)
	for n := range 3 * maxBehind {
		s.feed.add(frame("look", lookFrame{At: int64(n)}))
		for behind := range min(n, maxBehind) + 1 {
			frames, now, _ := s.since(s.feed.version - behind)
			require.Equal(t, s.feed.version, now)
			require.Len(t, frames, behind)
			want := slices.Clone(frames)
			defer func() { assert.Equal(t, want, frames) }()
		}
	}
}

// Metrics and healthz say of what age they are. Once that is too much, or before the table was ever read, they say so and
// nothing of locks: an alert waits for spindle_table_up to be 0. Each outage is logged when it begins and when it ends.
func TestWhatIsOutOfDateIsNotSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rows{rows: held("job", "a", "here", time.Now(), time.Now().Add(time.Millisecond)), err: errors.New("away")}
		s := serverOn(r, Config{}, time.Second)
		told := func(up, age string, healthy int, text string) {
			t.Helper()
			code, health := get(s, "/healthz")
			assert.Equal(t, []any{up, age, healthy}, []any{s.series("spindle_table_up{table=\"locktable\"} "), s.series("spindle_table_read_age_seconds{table=\"locktable\"} "), code})
			assert.Equal(t, up == "1", s.series("spindle_lock_") != "", "if there are metrics of locks")
			assert.Equal(t, up == "1", s.series("spindle_table_locks") != "")
			assert.Equal(t, text, strings.TrimSpace(health))
		}
		looks := func(away error, during time.Duration) {
			r.err = away
			ctx, cancel := context.WithTimeout(t.Context(), during)
			defer cancel()
			s.Watch(ctx)
		}
		said := commandtest.Complaints(func() {
			told("0", "", 503, "the table has not been read yet")
			looks(r.err, 2*time.Second)
			told("0", "", 503, "the table has not been read yet: away")
			looks(nil, time.Second/2)
			told("1", "0.5", 200, "ok")
			looks(errors.New("away"), 5*time.Second)
			told("1", "5.5", 200, "ok") // a few looks that fail say nothing yet
			assert.NotNil(t, s.awayFrame())
			looks(r.err, 30*time.Second)
			told("0", "35.5", 503, "the table was last read 36s ago: away")
			looks(nil, 1500*time.Millisecond)
			told("1", "0.5", 200, "ok")
			assert.Nil(t, s.awayFrame())
			time.Sleep(time.Hour)
			told("0", "3600.5", 503, "the table was last read 1h0m1s ago; the database is not responding")
		})
		require.Len(t, said, 4)
		for i, line := range said {
			assert.Contains(t, line, []string{"can't read the locks, will try again: ", "the locks can be read again"}[i%2])
		}
	})
}

// deaf is a client that takes nothing.
type deaf struct{ http.ResponseWriter }

func (deaf) Write([]byte) (int, error) { return 0, errors.New("gone") }

// The number of open pages rises and falls with them, however they end, and what they are sent is counted in bytes: an
// operator sees by them who looks, and what it costs.
func TestPagesAreCountedWhileTheyAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOn(&rows{}, Config{}, time.Second)
		pages := func(want int) {
			t.Helper()
			synctest.Wait()
			assert.Equal(t, fmt.Sprint(want), s.series("spindle_serve_pages "))
		}
		open := func(method string, w http.ResponseWriter) func() {
			ctx, cancel := context.WithCancel(t.Context())
			go s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, "/events", nil))
			return cancel
		}
		open(http.MethodHead, httptest.NewRecorder()) // it gets no events, and its client may keep the connection
		pages(0)
		select {
		case <-s.Opened():
			assert.Fail(t, "no page is open")
		default:
		}
		var close []func()
		var sent []*httptest.ResponseRecorder
		for n := range 3 {
			pages(n)
			sent = append(sent, httptest.NewRecorder())
			close = append(close, open(http.MethodGet, sent[n]))
			open(http.MethodGet, deaf{httptest.NewRecorder()})
			time.Sleep(tick + time.Second)
			require.NoError(t, s.Look(t.Context()))
		}
		bytes := 0
		for n, end := range close {
			pages(3 - n)
			end()
			synctest.Wait()
			bytes += sent[n].Body.Len()
		}
		pages(0)
		assert.Equal(t, fmt.Sprint(bytes), s.series("spindle_serve_page_bytes_total "))
		assert.Contains(t, sent[0].Body.String(), `"locks":[]`, "a page goes through its lists")
	})
}

// TestOnlyThisMachinesNamesAreAnswered: another site's page whose name leads to this machine gets nothing.
func TestOnlyThisMachinesNamesAreAnswered(t *testing.T) {
	h := onlyFor([]string{"locks.example"}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, want := range map[string]int{"127.0.0.1:8117": 200, "localhost:8117": 200, "[::1]:8117": 200, "[::1]": 200, "10.0.0.7": 200, "LOCALHOST": 200, "[evil.example]": 421,
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

// Every answer forbids what comes from elsewhere. The page's files name no other place, and import only each other.
func TestNothingIsLoadedFromElsewhere(t *testing.T) {
	s := serverOn(&rows{}, Config{}, time.Second)
	files, err := embedded.ReadDir("page")
	require.NoError(t, err)
	imports := 0
	for _, f := range files {
		w := httptest.NewRecorder()
		path := "/" + strings.TrimSuffix(f.Name(), "index.html")
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		assert.Equal(t, 200, w.Code, path)
		text := strings.ReplaceAll(w.Body.String(), `xmlns="http://www.w3.org/2000/svg"`, "")
		assert.NotRegexp(t, `https?://|src="//|@import|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|setAttribute\("style`, text, path)
		for _, from := range regexp.MustCompile(`from "\./([^"]+)"`).FindAllStringSubmatch(text, -1) {
			imports++
			assert.FileExists(t, "page/"+from[1], path)
		}
	}
	assert.Greater(t, imports, 5)
	for request, code := range map[string]int{"GET /": 200, "GET /main.js": 200, "GET /metrics": 200, "GET /healthz": 503, "GET /events": 200, "POST /events": 405, "DELETE /": 405} {
		method, path, _ := strings.Cut(request, " ")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, nil))
		assert.Equal(t, code, w.Code, request) // it is read-only
		for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store"} {
			assert.Equal(t, want, w.Header().Get(header), request)
		}
		assert.ElementsMatch(t, []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
			"require-trusted-types-for 'script'", "trusted-types 'none'"}, strings.Split(w.Header().Get("Content-Security-Policy"), "; "), request)
	}
}

// Each answer says what it is, because the browser takes it for nothing else. A proxy in front does not keep the events of a page back: the
// page would say that it hears nothing.
func TestEachAnswerSaysWhatItIs(t *testing.T) {
	s := serverOn(&rows{}, Config{}, time.Second)
	for path, want := range map[string][]string{
		"/": {"text/html; charset=utf-8"}, "/main.js": {"text/javascript; charset=utf-8"}, "/style.css": {"text/css; charset=utf-8"}, "/healthz": {"text/plain; charset=utf-8"},
		"/metrics": {"text/plain; version=0.0.4; charset=utf-8; escaping=underscores"}, "/events": {"text/event-stream", "no"},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, nil))
			h := w.Result().Header // as it was when the answer began
			assert.Equal(t, want, append(h["Content-Type"], h["X-Accel-Buffering"]...), "%s %s", method, path)
		}
	}
}
