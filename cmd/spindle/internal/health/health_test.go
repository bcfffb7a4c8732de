package health

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
)

// asked is a probe, and the report that it gets.
type asked struct {
	*Probe
	now  Report
	loop chan struct{}
}

func newAsked(lock string) *asked {
	a := &asked{loop: make(chan struct{})}
	a.Probe = New("locktable", lock, []string{"on-lost", "on-stuck"}, func() Report { return a.now }, a.loop)
	return a
}

func (a *asked) get(path string) (int, string) {
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// Liveness is the loop's: a loop that hangs does not answer, and nobody answers in its place.
func TestAProcessIsAliveAsLongAsItsLoopAnswersWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsked("nightly")
		a.now.Why = "verifying the table"
		code, text := a.get("/livez")
		assert.Equal(t, 200, code)
		assert.Equal(t, "starting: verifying the table", text, "it has no loop yet")

		a.Looping()
		a.now.Why = "the service is active"
		go func() { time.Sleep(answerTimeout - time.Millisecond); <-a.loop }()
		code, text = a.get("/livez")
		assert.Equal(t, 200, code)
		assert.Equal(t, "the service is active", text)

		begun := time.Now()
		code, text = a.get("/livez")
		assert.Equal(t, 503, code)
		assert.Equal(t, "the loop has not answered for 1s: the service is active", text)
		assert.Equal(t, answerTimeout, time.Since(begun))

		go func() { <-a.loop }()
		code, _ = a.get("/livez")
		assert.Equal(t, 200, code, "it goes on")
	})
}

func TestMetricsSayWhatIsSo(t *testing.T) {
	a := newAsked("nightly")
	_, text := a.get("/metrics")
	assert.Contains(t, text, `spindle_held{spindle_lock="nightly",spindle_table="locktable"} 0`)
	assert.NotContains(t, text, "\nspindle_token{", "there is no term")
	assert.Contains(t, text, `spindle_hook_failures_total{hook="on-stuck",spindle_lock="nightly",spindle_table="locktable"} 0`)

	a.now = Report{Held: true, Token: 1763645616123456, Left: 2500 * time.Millisecond, Ready: true, Stuck: true}
	a.Begun.Add(2)
	a.Lost.Inc()
	a.HeartbeatFailed.Inc()
	a.HookFailed.WithLabelValues("on-lost").Inc()
	_, text = a.get("/metrics")
	const about = `{spindle_lock="nightly",spindle_table="locktable"} `
	for _, want := range []string{"held" + about + "1", "token" + about + "1.763645616123456e+15", "lease_left_seconds" + about + "2.5", "ready" + about + "1",
		"stuck" + about + "1", "terms_begun_total" + about + "2", "terms_lost_total" + about + "1", "heartbeat_failures_total" + about + "1",
		`hook_failures_total{hook="on-lost",spindle_lock="nightly",spindle_table="locktable"} 1`} {
		assert.Contains(t, text+"\n", "\nspindle_"+want+"\n")
	}
	a.now.Left = -time.Second
	_, text = a.get("/metrics")
	assert.Contains(t, text, "spindle_lease_left_seconds"+about+"0")
}

// Each part of a report shows in its own place, whatever the others say: a process that is stuck or holds a lock is not for that
// reason ready, or the other way round.
func TestEachPartOfAReportIsAnsweredForItself(t *testing.T) {
	for _, r := range []Report{{}, {Ready: true}, {Held: true}, {Stuck: true}, {Ready: true, Held: true}, {Ready: true, Stuck: true}, {Held: true, Stuck: true}, {Ready: true, Held: true, Stuck: true}} {
		a := newAsked("nightly")
		a.now = r
		a.now.Why = "the reason"
		code, text := a.get("/readyz")
		assert.Equal(t, r.Ready, code == http.StatusOK, "%+v", r)
		assert.Equal(t, "the reason", text)
		code, _ = a.get("/livez")
		assert.Equal(t, http.StatusOK, code, "%+v", r)
		_, text = a.get("/metrics")
		for name, is := range map[string]bool{"ready": r.Ready, "held": r.Held, "stuck": r.Stuck} {
			assert.Contains(t, text, fmt.Sprintf("\nspindle_%s{spindle_lock=\"nightly\",spindle_table=\"locktable\"} %v\n", name, number(is)), "%+v", r)
		}
	}
}

// Each answer is of one moment, although the state may change during it: "ready" with the reason of not being ready, or a token without
// a lock, would be neither state.
func TestAnAnswerIsOfOneMoment(t *testing.T) {
	a := newAsked("nightly")
	asked := 0
	a.report = func() Report {
		if asked++; asked%2 == 0 {
			return Report{Why: "on standby"}
		}
		return Report{Ready: true, Why: "ready", Held: true, Token: 7, Left: time.Second}
	}
	for range 2 {
		for range 2 {
			code, text := a.get("/readyz")
			assert.Equal(t, code == http.StatusOK, text == "ready", text)
		}
		for range 2 {
			_, text := a.get("/metrics")
			for _, held := range []string{"_ready{", "_token{", "_lease_left_seconds{"} {
				assert.Equal(t, strings.Contains(text, `spindle_held{spindle_lock="nightly",spindle_table="locktable"} 1`),
					regexp.MustCompile("(?m)^spindle"+regexp.QuoteMeta(held)+".* [17]$").MatchString(text), held)
			}
		}
		_ = a.report() // the other way round
	}
}

// A check is only read, its answer, whatever it is, is never kept by a proxy, and a client that has gone is not waited for.
func TestAnAnswerIsForOneReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsked("nightly")
		a.Looping()
		for _, path := range []string{"/livez", "/readyz"} {
			w := httptest.NewRecorder()
			a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
			assert.Equal(t, http.StatusMethodNotAllowed, w.Code, path)
			gone, leave := context.WithCancel(t.Context())
			leave()
			began := time.Now()
			w = httptest.NewRecorder()
			a.Handler().ServeHTTP(w, httptest.NewRequestWithContext(gone, http.MethodGet, path, nil))
			assert.Zero(t, time.Since(began), path)
			for name, value := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Type": "text/plain; charset=utf-8"} {
				assert.Equal(t, value, w.Result().Header.Get(name), path)
			}
		}
	})
}

// Whatever a lock is called, Prometheus can read the answer, and finds that name.
func TestNoNameBreaksTheFormat(t *testing.T) {
	for _, name := range []string{"a\"b", "a\\b", "a\nb{} 1", "a\x1b[31m", "日本", "\xff"} {
		_, text := newAsked(name).get("/metrics")
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text + "\n"))
		require.NoError(t, err, "%q", name)
		labels := families["spindle_held"].GetMetric()[0].GetLabel()
		assert.Equal(t, strings.ToValidUTF8(name, "\ufffd"), labels[0].GetValue())
	}
}

// A request in flight, and a reader that does not read, end with the listener, which waits for neither, and whose address is free then.
func TestTheEndWaitsForNoRequest(t *testing.T) {
	a := newAsked("nightly")
	a.Looping()
	on, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	end := Serve(on, a.Handler())
	silent, err := net.Dial("tcp", on.Addr().String())
	require.NoError(t, err)
	defer silent.Close()
	_, err = io.WriteString(silent, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n") // which nobody answers for a second
	require.NoError(t, err)
	begun := time.Now()
	end()
	assert.Less(t, time.Since(begun), answerTimeout/2)
	for range 20 { // although the server has hardly begun
		on, err = net.Listen("tcp", on.Addr().String())
		require.NoError(t, err, "the next process can't listen there")
		Serve(on, a.Handler())()
	}
}

// A client that sends its request slowly keeps no connection: a holder must not run out of them.
func TestARequestThatIsNotSentIsGivenUp(t *testing.T) {
	on, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer serve(on, newAsked("nightly").Handler(), 100*time.Millisecond)()
	for _, begun := range []string{"", "GET /live", "GET /livez HTTP/1.1\r\nHost: x\r\n", "GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nbegun"} {
		slow, err := net.Dial("tcp", on.Addr().String())
		require.NoError(t, err)
		defer slow.Close()
		_, err = io.WriteString(slow, begun)
		require.NoError(t, err)
		require.NoError(t, slow.SetReadDeadline(time.Now().Add(30*time.Second)))
		_, err = io.ReadAll(slow)
		assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the listener closes it: %q", begun)
	}
}

// A client that stops is given up, wherever it stops. Its connection would otherwise be kept for as long as the process runs.
func TestAClientThatStopsIsGivenUp(t *testing.T) {
	const request = "GET /metrics HTTP/1.1\r\nHost: x\r\n"
	for _, c := range []struct {
		says  string
		reads bool
		after time.Duration
	}{{"", false, 5 * time.Second}, {request, false, 5 * time.Second}, {request + "\r\n", false, 10 * time.Second}, {request + "\r\n", true, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			on := commandtest.NewPipes()
			defer Serve(on, newAsked("nightly").Handler())()
			client := on.Dial()
			go func() { _, _ = io.WriteString(client, c.says) }()
			if began := time.Now(); c.reads {
				_, _ = io.Copy(io.Discard, client)
				assert.Equal(t, c.after, time.Since(began))
				return
			}
			time.Sleep(c.after + time.Second)
			began := time.Now()
			n, _ := io.Copy(io.Discard, client)
			assert.Equal(t, []any{int64(0), time.Duration(0)}, []any{n, time.Since(began)}, "the connection is closed: %q", c.says)
		})
	}
}

// Two Prometheus servers may ask at once, but clients that ask in a loop do not keep the process busy.
func TestAFewRequestsForTheMetricsAreServedAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, end := newAsked("nightly"), make(chan struct{})
		a.report = func() Report { <-end; return Report{} }
		h, codes := a.Handler(), make(chan int, 5)
		for range 5 {
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				codes <- w.Code
			}()
		}
		synctest.Wait()
		require.Len(t, codes, 1)
		assert.Equal(t, http.StatusServiceUnavailable, <-codes)
		close(end)
		for range 4 {
			assert.Equal(t, http.StatusOK, <-codes)
		}
	})
}
