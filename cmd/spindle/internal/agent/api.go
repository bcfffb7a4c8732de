package agent

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/options"
	"github.com/spindle-lock/spindle/internal/table"
)

// OpenAPI describes the agent's requests and lines, for authors of clients.
//
//go:generate go test -run TestTheDescriptionIsMadeFromTheCode . -update
//go:embed openapi.json
var OpenAPI []byte

// api answers the requests to an agent.
type api struct{ *Agent }

// Handler returns the handler for the requests of programs.
func (a *Agent) Handler() http.Handler {
	api, mux := api{a}, http.NewServeMux()
	for _, kind := range []string{locks, elections, semaphores, onces} {
		mux.HandleFunc("POST /v1/"+kind, func(w http.ResponseWriter, r *http.Request) { api.acquire(w, r, kind) })
	}
	mux.Handle("GET /v1/holds", api.by(api.list))                    // the holds of this user
	mux.Handle("GET /v1/holds/{id}", api.by(api.about))              // the state of a hold; add left_ms to readings of your clocks from before the request
	mux.Handle("POST /v1/holds/{id}/release", api.by(api.release))   // releases the lock; send it once the work has returned; 202: Spanner did not answer in time, so the lock has been released or will expire
	mux.Handle("POST /v1/holds/{id}/done", api.by(api.release))      // for once: releases the lock and records the key as done, in one commit
	mux.Handle("POST /v1/holds/{id}/stepdown", api.by(api.stepDown)) // asks the program to release its lock; in an election, the candidates are told first, which takes a third of the lease
	mux.Handle("POST /v1/stepdown", api.by(api.stepDownAll))         // ?drain=: asks all programs of this user to release their locks, and answers when they have done so; with drain=true, the agent also refuses new holds
	mux.Handle("POST /v1/release", api.by(api.releaseOrphan))        // ?name=&token=&hold=: releases a lock that was acquired through an agent that has since ended
	api.readOnly(mux, open(api.leader))
	mux.Handle("/", open(func(r *http.Request) answer {
		return wrong(http.StatusNotFound, "no-such-path", "this agent does not serve %s %.128s: run spindle schema agent to see the paths", r.Method, r.URL.Path)
	}))
	mux.Handle("GET /metrics", fewAtATime(api.by(func(r *http.Request, p process) answer { return api.metrics(r, seesAll(p)) }))) // metrics for Prometheus; only root and the agent's own user see the names of locks
	return readsBody(readsQuery(mux))
}

// ReadOnly returns the handler for probes. Their requests can neither acquire nor release a lock.
func (a *Agent) ReadOnly() http.Handler {
	api, mux := api{a}, http.NewServeMux()
	api.readOnly(mux, fewAtATime(open(api.leader))) // each request is a read of Spanner, and any process may send one
	mux.Handle("GET /metrics", fewAtATime(open(func(r *http.Request) answer { return api.metrics(r, true) })))
	return readsQuery(mux)
}

func (a api) readOnly(mux *http.ServeMux, leader http.Handler) {
	mux.Handle("GET /livez", open(func(*http.Request) answer { return ok(map[string]string{"state": "alive"}) })) // 200 as long as the agent runs
	mux.Handle("GET /v1/leading", open(a.leading))                                                                // ?name=: 200 if a program of this agent leads, otherwise 503
	mux.Handle("GET /v1/elections", leader)                                                                       // ?name=: who leads, or null
}

// open returns a handler for requests that any process may send.
func open(do func(*http.Request) answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { do(r).write(w) })
}

// bodyLimit limits how long a client may take to send the body of a request. No request needs a body.
const bodyLimit = 5 * time.Second

// readsBody returns a handler that reads the body of a request before it passes the request to next. Otherwise, a
// waiting request would outlive its client, because the server notices that a client is gone only after the body has
// been read.
func readsBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Now().Add(bodyLimit))
			if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, 4<<10)); err != nil {
				wrong(http.StatusBadRequest, "bad-body", "the request's body could not be read (%v): leave the body out, because no request needs one", err).write(w)
				return
			}
			_ = control.SetReadDeadline(time.Time{})
		}
		next.ServeHTTP(w, r)
	})
}

// readsQuery returns a handler that refuses a malformed query. Otherwise, the malformed parts would be ignored, because
// url.URL.Query leaves them out.
func readsQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
			wrong(http.StatusBadRequest, "bad-parameter", "the query is malformed (%v): in names and values, write %% as %%25 and ; as %%3B", err).write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sender returns the process that sent a request. It refuses requests that came through a proxy.
func (a api) sender(r *http.Request) (process, *problem) {
	for _, h := range []string{"Via", "Forwarded", "X-Forwarded-For"} {
		if r.Header.Get(h) != "" {
			return nil, wrong(http.StatusForbidden, "proxied", "the header %s shows that this request came through a proxy: connect to the socket directly, because a lock belongs to the process that connects", h)
		}
	}
	return a.identify(socketOf(r))
}

// by returns a handler that also passes the sender's process to do.
func (a api) by(do func(*http.Request, process) answer) http.Handler {
	return open(func(r *http.Request) answer {
		p, bad := a.sender(r)
		if bad != nil {
			return bad
		}
		defer p.Close()
		return do(r, p)
	})
}

// acquire begins a hold, and answers with the hold's lines.
func (a api) acquire(w http.ResponseWriter, r *http.Request, kind string) {
	p, bad := a.sender(r)
	if bad != nil {
		bad.write(w)
		return
	}
	var h *hold
	asked, bad := parse(kind, r.URL.Query())
	if bad == nil {
		h, bad = a.newHold(asked, p)
	}
	if bad != nil {
		p.Close()
		bad.write(w)
		return
	}
	h.lines.add(line{Event: "hello", Hold: h.id})
	if !asked.try {
		h.lines.add(line{Event: "waiting"})
	}
	h.begin()
	if asked.try {
		slow(r)
		<-h.wait.decided
		if bad := h.status().refused(); bad != nil {
			bad.write(w)
			return
		}
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.put(event{what: streamEnds})
		return
	}
	a.programs.begin(h)
	go func() {
		defer a.programs.end(h)
		h.lines.send(conn, h.stamp)
	}()
}

// seesAll reports whether a program's user is root or the agent's own user. In the metrics, these users see the names
// of all locks, and they can ask the programs of all users to release their locks.
func seesAll(p process) bool {
	uid := p.Who().UID
	return uid == 0 || uid == os.Getuid()
}

// own returns the hold that a request names, if it belongs to the sender's user. Root may use the holds of all users.
func (a api) own(r *http.Request, p process) (*hold, *problem) {
	h := a.find(r.PathValue("id"))
	if h == nil || h.who.UID != p.Who().UID && p.Who().UID != 0 {
		return nil, wrong(http.StatusNotFound, "no-such-hold", "this user has no hold with that id at this agent, or the hold ended long ago")
	}
	return h, nil
}

func (a api) list(_ *http.Request, p process) answer {
	all := []holdJSON{}
	for _, h := range a.all() {
		if uid := p.Who().UID; h.who.UID == uid || uid == 0 {
			all = append(all, h.describe())
		}
	}
	slices.SortFunc(all, func(a, b holdJSON) int { return strings.Compare(a.Names[0]+a.Hold, b.Names[0]+b.Hold) })
	return ok(map[string]any{"holds": all})
}

// about answers with the state of a hold, including how much time is left. If a program can't compare the agent's
// clocks with its own, it reads its own clocks, sends this request, and adds the time left to the times that it has
// read.
func (a api) about(r *http.Request, p process) answer {
	h, bad := a.own(r, p)
	if bad != nil {
		return bad
	}
	made := a.clock.Now()
	j := h.describe()
	if j.Left > 0 {
		h.promise(promise{made, time.Duration(j.Left) * time.Millisecond})
	}
	return ok(j)
}

// release ends a hold whose program says that its work has returned. If the path ends in /done, release also records
// the key as done.
func (a api) release(r *http.Request, p process) answer {
	h, bad := a.own(r, p)
	if bad != nil {
		return bad
	}
	done := strings.HasSuffix(r.URL.Path, "/done")
	if done && h.asked.kind != onces {
		return wrong(http.StatusBadRequest, "not-once", "only a hold of /v1/once has a key to record as done: for a hold of /v1/%s, use release", h.asked.kind)
	}
	h.put(event{what: asked, done: done})
	slow(r)
	select {
	case <-h.ended:
		return h.status().becameOf(done)
	case <-r.Context().Done():
		return unknown(errors.New("the client closed its connection, or its side of it, before the lock was released"))
	}
}

func (a api) stepDown(r *http.Request, p process) answer {
	h, bad := a.own(r, p)
	if bad != nil {
		return bad
	}
	h.stop("stepdown")
	return result{http.StatusAccepted, map[string]string{"state": "stopping"}}
}

// stepDownAll asks all programs of the sender's user to release their locks, and answers once they have done so. For
// root and the agent's own user, it asks the programs of all users. With the parameter drain, which only these two may
// use, the agent also stops giving out locks.
func (a api) stepDownAll(r *http.Request, p process) answer {
	slow(r)
	everybody := seesAll(p)
	theirs := func() []*hold {
		return slices.DeleteFunc(a.all(), func(h *hold) bool { return !everybody && h.who.UID != p.Who().UID })
	}
	asked := parser{q: r.URL.Query()}
	drain := asked.choice("drain", "true") || asked.q.Has("drain")
	switch {
	case asked.wrong != nil:
		return asked.wrong
	case drain && !everybody:
		return wrong(http.StatusForbidden, "not-yours", "only root and the agent's own user may drain the agent")
	case drain:
		a.Drain(r.Context(), "stepdown")
	default:
		stop(r.Context(), theirs(), "stepdown")
	}
	return ok(map[string]int{"held": len(theirs())})
}

// These limit how long Spanner may take over requests that belong to none of this agent's holds.
const (
	orphanLimit = 30 * time.Second
	leaderLimit = 8 * time.Second // less than health.Serve allows for a response
)

// releaseOrphan releases locks that a program got from an agent that has ended. The program must know the hold's id.
func (a api) releaseOrphan(r *http.Request, _ process) answer {
	q := r.URL.Query()
	number, err := strconv.ParseInt(q.Get("token"), 10, 64)
	token, id, names := table.Token(number), q.Get("hold"), q["name"]
	if err != nil || id == "" || len(names) == 0 {
		return wrong(http.StatusBadRequest, "bad-parameter", "name=, hold= and a numeric token= are required: take them from the lines of the hold")
	}
	if a.find(id) != nil {
		return wrong(http.StatusConflict, "not-orphaned", "this agent knows that hold: use /v1/holds/%s/release", id)
	}
	for _, name := range names {
		if err := table.CheckName(name); err != nil {
			return wrong(http.StatusBadRequest, "bad-parameter", "%v", err)
		}
	}
	slow(r)
	ctx, cancel := context.WithTimeout(r.Context(), orphanLimit)
	defer cancel()
	began, left := a.clock.Now(), time.Duration(math.MaxInt64)
	seen, err := a.Locks.LookAtLeases(ctx, began.Time(), names...)
	if err != nil {
		return wrong(http.StatusServiceUnavailable, "unavailable", "%v", err)
	}
	for _, o := range seen {
		switch {
		case o.Token != token || !o.Confirmed() || o.LeaseRecord == nil:
			return wrong(http.StatusGone, "lost", "%.64q is no longer held under token %v", o.Name, token)
		case !strings.HasSuffix(o.LeaseRecord.ID, "/"+proofOf(id)):
			return wrong(http.StatusNotFound, "no-such-hold", "%.64q belongs to another hold", o.Name)
		}
		left = min(left, o.Heartbeat.Add(o.LeaseRecord.Lease).Sub(o.At))
	}
	switch err := a.freeOrphan(ctx, token, began, left, names); {
	case errors.Is(err, table.ErrSuperseded):
		return wrong(http.StatusGone, "lost", "%v", err)
	case err != nil:
		return unknown(err)
	}
	return ok(map[string]string{"state": "released"})
}

// freeOrphan releases locks whose leases had at least the duration left when they were read, just after began. If the
// token is no longer valid, the reply to the release may have been lost, and the request sent again.
func (a api) freeOrphan(ctx context.Context, token table.Token, began elect.Instant, left time.Duration, names []string) error {
	err := a.Locks.Release(ctx, token, names...)
	if !errors.Is(err, table.ErrSuperseded) || a.clock.Now().Since(began) >= left {
		return err
	}
	released, unknown := a.Locks.GivenBack(ctx, token, "", names...)
	if released || unknown != nil {
		return unknown
	}
	return err
}

func (a api) leading(r *http.Request) answer {
	name := r.URL.Query().Get("name")
	for _, h := range a.all() {
		if h.asked.kind == elections && h.asked.names[0] == name && h.status().phase.holds() && h.term.lock.Left() > 0 {
			return ok(map[string]string{"state": "leading"})
		}
	}
	return wrong(http.StatusServiceUnavailable, "not-leading", "no program of this agent leads %.64q", name)
}

// leaderJSON describes the leader of an election.
type leaderJSON struct {
	ID      string `json:"id"`
	Value   string `json:"value,omitempty"`
	Token   int64  `json:"token"`
	Leaving bool   `json:"leaving,omitempty"`
}

func leaderOf(l spindle.Leader) *leaderJSON {
	return &leaderJSON{ID: l.ID, Value: l.Value, Token: int64(l.Token), Leaving: l.Leaving}
}

// leader answers with the current leader of an election, which may be a program of this agent or any other candidate.
func (a api) leader(r *http.Request) answer {
	name := r.URL.Query().Get("name")
	if err := table.CheckName(name); err != nil {
		return wrong(http.StatusBadRequest, "bad-parameter", "%v", err)
	}
	if bad := a.allowed(name); bad != nil {
		return bad
	}
	slow(r)
	ctx, cancel := context.WithTimeout(r.Context(), leaderLimit)
	defer cancel()
	readOnly := options.Option(func(c *options.Config) { c.Store = a.Locks.Store })
	l, err := spindle.New(nil, a.TableName, name, readOnly).Leader(ctx)
	switch {
	case errors.Is(err, spindle.ErrNoLeader):
		return ok(map[string]any{"leader": nil})
	case err != nil:
		return wrong(http.StatusServiceUnavailable, "unavailable", "%v", err)
	}
	return ok(map[string]any{"leader": leaderOf(l)})
}
