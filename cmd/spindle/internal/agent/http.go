package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
	"github.com/spindle-lock/spindle/lock"
)

// connection is the context key for the connection of a request.
type connection struct{}

// Serve answers the requests of programs on a Unix socket until the returned server is closed.
func (a *Agent) Serve(on net.Listener) *http.Server {
	s := &http.Server{
		Handler:           a.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    256 << 10, // enough for a set of 500 names with 500 bytes each; slow clients keep this much memory
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connection{}, c) },
		ConnState:         changed,
	}
	go func() { _ = s.Serve(listener{on, a}) }() // returns an error once the server is closed
	return s
}

// Handler returns the handler for the requests of programs.
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, kind := range []string{locks, elections, semaphores, onces} {
		mux.Handle("POST /v1/"+kind, a.by(func(w http.ResponseWriter, r *http.Request, p process) (kept bool) {
			return a.acquire(w, r, p, kind)
		}))
	}
	mux.Handle("GET /v1/holds", a.by(a.list))
	mux.Handle("GET /v1/holds/{id}", a.by(a.about))
	mux.Handle("POST /v1/holds/{id}/release", a.by(a.release))
	mux.Handle("POST /v1/holds/{id}/done", a.by(a.release))
	mux.Handle("POST /v1/holds/{id}/stepdown", a.by(a.stepDown))
	mux.Handle("POST /v1/stepdown", a.by(a.stepDownAll))
	mux.Handle("POST /v1/release", a.by(a.releaseOrphan))
	a.readOnly(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		wrong(http.StatusNotFound, "no-such-path", "there is no %s %.128s: docs/agent.md lists the paths", r.Method, r.URL.Path).write(w)
	})
	counts, all := a.metrics(false), a.metrics(true)
	mux.Handle("GET /metrics", a.by(func(w http.ResponseWriter, r *http.Request, p process) (kept bool) {
		if seesAll(p) {
			all.ServeHTTP(w, r)
		} else {
			counts.ServeHTTP(w, r)
		}
		return false
	}))
	return readsBody(mux)
}

// bodyLimit limits how long a client may take to send the body of a request, which nobody needs.
const bodyLimit = 5 * time.Second

// readsBody reads the body of a request before it passes the request on. Until then, the server does not notice that a
// client has gone, so a request that waits would be kept.
func readsBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Now().Add(bodyLimit))
			if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 4<<10)); err != nil {
				wrong(http.StatusBadRequest, "bad-body", "the request's body could not be read: %v: requests have no bodies", err).write(w)
				return
			}
			_ = control.SetReadDeadline(time.Time{})
		}
		next.ServeHTTP(w, r)
	})
}

// ReadOnly returns the handler for probes, which can neither acquire nor release a lock.
func (a *Agent) ReadOnly() http.Handler {
	mux := http.NewServeMux()
	a.readOnly(mux)
	mux.Handle("GET /metrics", a.metrics(true))
	return mux
}

func (a *Agent) readOnly(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"state": "alive"})
	})
	mux.HandleFunc("GET /v1/leading", a.leading)
	mux.HandleFunc("GET /v1/elections", a.leader)
}

// by returns a handler that passes each request to do, together with the process that sent it. It closes the peer
// unless do reports that it keeps the peer. It refuses requests that came through a proxy.
func (a *Agent) by(do func(http.ResponseWriter, *http.Request, process) (kept bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, h := range []string{"Via", "Forwarded", "X-Forwarded-For"} {
			if r.Header.Get(h) != "" {
				wrong(http.StatusForbidden, "proxied", "this request's header %s shows that it came through a proxy: a lock belongs to the process that connects, so connect to the socket directly", h).write(w)
				return
			}
		}
		p, bad := a.identify(socketOf(r))
		if bad != nil {
			bad.write(w)
			return
		}
		if !do(w, r, p) {
			p.Close()
		}
	})
}

// socketOf returns the connection of a request, or nil if it did not come over the agent's socket.
func socketOf(r *http.Request) net.Conn {
	if c, ok := r.Context().Value(connection{}).(*conn); ok {
		return c.Conn
	}
	return nil
}

// slow is called before a handler waits for something, so that other requests can begin.
func slow(r *http.Request) {
	if c, ok := r.Context().Value(connection{}).(*conn); ok { // not a probe over TCP
		c.pass()
	}
}

// acquire begins a hold, and answers with its lines.
func (a *Agent) acquire(w http.ResponseWriter, r *http.Request, p process, kind string) (kept bool) {
	asked, bad := parse(kind, r.URL.Query())
	if bad != nil {
		bad.write(w)
		return false
	}
	h, bad := a.newHold(asked, p)
	if bad != nil {
		bad.write(w)
		return false
	}
	h.lines.add(line{Event: "hello", Hold: h.id})
	if !asked.try {
		h.lines.add(line{Event: "waiting"})
	}
	h.begin()
	if asked.try {
		slow(r)
		<-h.wait.decided
		if bad := h.refused(); bad != nil {
			bad.write(w)
			return true
		}
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.put(event{what: streamEnds})
		return true
	}
	a.programs.begin(h)
	go func() {
		defer a.programs.end(h)
		h.lines.send(conn, h.stamp)
	}()
	return true
}

// refused returns why a request with wait=0 did not get its lock, or nil if it did.
func (h *hold) refused() *problem {
	switch err := h.status().refusal; {
	case err == nil:
		return nil
	case errors.Is(err, errBusy):
		return wrong(http.StatusConflict, "busy", "%v", err)
	case errors.Is(err, errDone):
		return wrong(http.StatusConflict, "done", "the key is already done")
	case errors.Is(err, lock.ErrPassed):
		return wrong(http.StatusConflict, "passed", "%v", err)
	default:
		return wrong(http.StatusServiceUnavailable, "unavailable", "%v", err)
	}
}

// own returns the hold that a request names. If the user has no such hold, own writes an error response and returns
// nil. Root may use the holds of every user.
func (a *Agent) own(w http.ResponseWriter, r *http.Request, p process) *hold {
	h := a.find(r.PathValue("id"))
	if h == nil || h.who.UID != p.Who().UID && p.Who().UID != 0 {
		wrong(http.StatusNotFound, "no-such-hold", "no hold of this user has that id, or the hold ended long ago").write(w)
		return nil
	}
	return h
}

// release ends a hold once the program's work has returned. If the path ends in /done, it also records the key as done.
func (a *Agent) release(w http.ResponseWriter, r *http.Request, p process) (kept bool) {
	h := a.own(w, r, p)
	if h == nil {
		return false
	}
	done := r.URL.Path[len(r.URL.Path)-len("/done"):] == "/done"
	if done && h.asked.kind != onces {
		wrong(http.StatusBadRequest, "not-once", "only holds of /v1/once can be done: for a hold of /v1/%s, use release", h.asked.kind).write(w)
		return false
	}
	h.put(event{what: asked, done: done})
	slow(r)
	select {
	case <-h.ended:
		h.becameOf(w, done)
	case <-r.Context().Done():
	}
	return false
}

// becameOf answers with how the hold ended. The argument done says that the program asked to record the key as done,
// which an earlier release may have prevented.
func (h *hold) becameOf(w http.ResponseWriter, done bool) {
	s := h.status()
	switch {
	case done && !s.done && s.lost == "":
		wrong(http.StatusGone, "lost", "the lock was released before, without recording the key as done").write(w)
	case s.lost != "":
		wrong(http.StatusGone, "lost", "%s", s.lost).write(w)
	case s.failure == nil:
		answer(w, http.StatusOK, map[string]string{"state": "released"})
	case errors.Is(s.failure, lock.ErrNotHeld), errors.Is(s.failure, spindle.ErrSuperseded), errors.Is(s.failure, spindle.ErrExpired):
		wrong(http.StatusGone, "lost", "%v", s.failure).write(w)
	default:
		answer(w, http.StatusAccepted, map[string]string{"state": "unknown", "detail": s.failure.Error()})
	}
}

func (a *Agent) stepDown(w http.ResponseWriter, r *http.Request, p process) (kept bool) {
	if h := a.own(w, r, p); h != nil {
		h.stop("stepdown")
		answer(w, http.StatusAccepted, map[string]string{"state": "stopping"})
	}
	return false
}

// stepDownAll asks all programs of a user to release their locks, and answers once they have. For root and the agent's
// own user, it asks the programs of all users. With the parameter drain, the agent also stops giving out locks.
func (a *Agent) stepDownAll(w http.ResponseWriter, r *http.Request, p process) (kept bool) {
	slow(r)
	uid, everybody := p.Who().UID, seesAll(p)
	if r.URL.Query().Has("drain") {
		if !everybody {
			wrong(http.StatusForbidden, "not-yours", "only root and the agent's own user can drain the agent").write(w)
			return false
		}
		a.Drain(r.Context(), "stepdown")
	} else {
		a.stop(r.Context(), slices.DeleteFunc(a.all(), func(h *hold) bool { return !everybody && h.who.UID != uid }), "stepdown")
	}
	left := 0
	for _, h := range a.all() {
		if everybody || h.who.UID == uid {
			left++
		}
	}
	answer(w, http.StatusOK, map[string]int{"held": left})
	return false
}

// releaseOrphan releases a lock that a program got from an agent that has ended. The program must know the hold's id.
func (a *Agent) releaseOrphan(w http.ResponseWriter, r *http.Request, _ process) (kept bool) {
	q := r.URL.Query()
	token, err := strconv.ParseInt(q.Get("token"), 10, 64)
	if err != nil || q.Get("hold") == "" || len(q["name"]) == 0 {
		wrong(http.StatusBadRequest, "bad-parameter", "name=, token= and hold= are required: take them from the lines of the hold").write(w)
		return false
	}
	if h := a.find(q.Get("hold")); h != nil {
		wrong(http.StatusConflict, "not-orphaned", "that hold belongs to this agent: use /v1/holds/%s/release", h.id).write(w)
		return false
	}
	slow(r)
	ctx, cancel := context.WithTimeout(r.Context(), waitFor)
	defer cancel()
	a.releaseOf(ctx, table.Token(token), proofOf(q.Get("hold")), q["name"]).write(w)
	return false
}

func (a *Agent) leading(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	for _, h := range a.all() {
		if h.asked.kind == elections && h.asked.names[0] == name && h.status().phase.holds() {
			answer(w, http.StatusOK, map[string]string{"state": "leading"})
			return
		}
	}
	wrong(http.StatusServiceUnavailable, "not-leading", "no program of this agent leads %.64q", name).write(w)
}
