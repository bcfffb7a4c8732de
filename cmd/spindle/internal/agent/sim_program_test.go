package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spindle-lock/spindle/internal/table"
)

// client is one process that uses the agent of its host, as docs/agent.md tells it to. After it has ended, another one
// takes its slot.
type client struct {
	w     *world
	slot  int
	role  role
	host  *host
	name  string
	shift reading // what its clocks show, minus what the agent's clocks show, as in a time namespace
	died  chan struct{}

	// Under w.mu.
	process *fakeProcess // another one after the program has forked and its parent has ended
	dead    bool
	resumes time.Time // until when it is stopped
	now     *tenure   // the last one, which may be over
}

// tenure is one hold, as its program sees it.
type tenure struct {
	p      *client
	socket *socket
	key    string        // for once
	reads  time.Duration // how long it takes to read a line, at most
	eof    bool          // closing the socket releases the lock

	// Under w.mu.
	id string
	grant
	trusts  bool    // the agent's clocks can be compared with the program's
	less    reading // what to subtract from each until
	until   reading // by the program's clocks; the program may act while all clocks are before it
	working bool    // the program acts, as long as it may
	stop    bool    // the agent has asked for the release
	ended   bool    // the response has ended, or the program has closed it
	lines   response
	news    chan struct{}
}

// grant is what the line held says.
type grant struct {
	names []string
	token int64
	fence []table.Write
}

func (p *client) dice(about ...any) dice { return p.w.dice(append([]any{p.name}, about...)...) }

// clocks are the program's clocks.
func (p *client) clocks() reading { return p.host.clocks().plus(p.shift, 1) }

func (r reading) plus(o reading, sign int64) reading {
	return reading{Boottime: r.Boottime + sign*o.Boottime, Monotonic: r.Monotonic + sign*o.Monotonic, Unix: r.Unix + sign*o.Unix}
}

// before reports whether all clocks show an earlier time than in o.
func (r reading) before(o reading) bool {
	return r.Boottime < o.Boottime && r.Monotonic < o.Monotonic && r.Unix < o.Unix
}

// acts reports whether the program acts under the lock now: it runs, its work has not returned, and its own check says
// that it may. w.mu is held.
func (t *tenure) acts() bool {
	return t.working && !t.p.dead && t.p.stopped() <= 0 && t.p.clocks().before(t.until)
}

// stopped returns how long the program is stopped yet. w.mu is held.
func (p *client) stopped() time.Duration {
	return max(time.Until(p.resumes), time.Until(p.host.resumes))
}

// gate blocks the caller while the program is stopped. It returns false once the program has ended.
func (p *client) gate(where string) bool {
	for {
		p.w.mu.Lock()
		wait, dead := p.stopped(), p.dead
		p.w.mu.Unlock()
		if dead || wait <= 0 {
			return !dead
		}
		time.Sleep(wait + p.dice("gate", where).between(1, 100*time.Microsecond))
	}
}

// nap lets time pass. It returns false once the program has ended.
func (p *client) nap(d time.Duration, news <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-news:
	case <-p.died:
	}
	return p.gate("nap")
}

// run is the program's main function.
func (p *client) run() {
	for p.gate("turn") {
		p.w.mu.Lock()
		over := p.w.closing
		p.w.mu.Unlock()
		if over {
			p.w.mu.Lock()
			p.ends("its work is complete", 0, 0)
			p.w.mu.Unlock()
			return
		}
		p.turn()
		p.nap(p.dice("pause").spread(time.Millisecond, p.role.lease/4), nil)
	}
}

// turn is one request for a hold, and what follows.
func (p *client) turn() {
	d := p.dice("turn")
	if p.role.floods {
		p.flood(d)
		return
	}
	t := &tenure{p: p, news: make(chan struct{}, 1)}
	p.w.mu.Lock()
	if t.socket = p.host.dial(p.process); t.socket != nil {
		p.now = t
	}
	path := p.role.path + "&lease=" + p.role.lease.String() + p.drawn(d, t)
	p.w.mu.Unlock()
	if t.socket == nil {
		return
	}
	before := p.clocks()
	_, _ = fmt.Fprintf(t.socket, "POST %s HTTP/1.0\r\nHost: agent\r\n\r\n", path)
	over := make(chan struct{})
	go func() { defer close(over); t.read(before) }()
	t.work(d)
	<-over
}

// drawn returns the parameters that differ between turns. w.mu is held.
func (p *client) drawn(d dice, t *tenure) (more string) {
	if p.role.kind == onces {
		t.key = fmt.Sprintf("%08d", p.w.key)
		more += "&key=" + t.key
	}
	if p.w.calm {
		return more
	}
	more += pick(d, "", "", "", "&wait=0", "&wait="+d.spread(time.Millisecond, 3*p.role.lease).String())
	if t.eof = d.chance(0.15); t.eof {
		more += "&eof=release"
	}
	if d.chance(0.2) {
		t.reads = d.spread(time.Millisecond, 2*p.role.lease)
		more += pick(d, "", "&stall="+(p.role.lease/2).String())
	}
	return more
}

// read reads the response.
func (t *tenure) read(before reading) {
	defer t.tell(func() { t.ended = true })
	defer t.socket.closes()
	r := bufio.NewReader(t.socket)
	response, err := http.ReadResponse(r, nil)
	if !t.p.gate("read") || err != nil {
		return
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if t.reads > 0 && !t.p.nap(t.p.dice("slow reader").between(1, t.reads), nil) || !t.p.gate("read") {
			return
		}
		var l said
		if len(lines.Bytes()) > 0 && json.Unmarshal(lines.Bytes(), &l) == nil {
			t.hear(l, before)
		}
	}
}

func (t *tenure) tell(f func()) {
	t.p.w.mu.Lock()
	defer t.p.w.mu.Unlock()
	f()
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// hear handles a line.
func (t *tenure) hear(l said, before reading) {
	until := l.Until
	if ask := (l.Event == "held" || l.Event == "until") && !t.trusts; ask {
		until = t.ask()
	}
	t.tell(func() {
		w, p := t.p.w, t.p
		if wrong := t.lines.hears(l.Event); l.Event != "" && wrong != "" { // otherwise it is a problem
			w.violate("lines", "%s: %s", p.name, wrong)
		}
		if p.dead {
			return
		}
		switch l.Event {
		case "hello":
			t.id = l.Hold
			t.compare(before, l.Now)
		case "held":
			t.grant = grant{l.Names, l.Token, fenceOf(l.Fence)}
			t.working = !t.ended
			t.until = until.plus(t.less, -1)
			w.tracef(p.name, "holds %v under %d", t.names, t.token)
			w.begins(t)
		case "until":
			t.until = until.plus(t.less, -1)
		case "stop":
			t.stop = true
		case "lost":
			t.working = false
			w.expectSilence(t, 0)
		case "done":
			w.completed(t.key)
		}
		if l.Event != "until" {
			w.tracef(p.name, "reads %s %s", l.Event, l.Reason)
		}
		w.check()
	})
}

// compare compares the agent's clocks with the program's. It is called after the line hello has been read.
func (t *tenure) compare(before, now reading) {
	after := t.p.clocks()
	t.less = after.plus(before, -1)
	in := func(before, now, after int64) bool { return before <= now && now <= after && after-before <= 100 }
	t.trusts = in(before.Boottime, now.Boottime, after.Boottime) && in(before.Monotonic, now.Monotonic, after.Monotonic) && in(before.Unix, now.Unix, after.Unix)
	if !t.trusts {
		t.less = reading{}
	}
}

// ask asks how much time is left, because the clocks can't be compared.
func (t *tenure) ask() (until reading) {
	asked := t.p.clocks()
	var j holdJSON
	if _, body := t.p.call("GET", "/v1/holds/"+t.id); json.Unmarshal(body, &j) != nil || j.Left == 0 {
		return t.until
	}
	return asked.plus(reading{Boottime: j.Left, Monotonic: j.Left, Unix: j.Left}, 1)
}

func fenceOf(all []fenceJSON) (writes []table.Write) {
	for _, f := range all {
		update := f.Mutation["update"].(map[string]any)
		name := update["values"].([]any)[0].([]any)[0].(string)
		writes = append(writes, table.Write{Kind: table.Update, Name: name})
	}
	return writes
}

// call sends a request that has a short response. The status is 0 if there is none in time.
func (p *client) call(method, path string) (status int, body []byte) {
	p.w.mu.Lock()
	s := p.host.dial(p.process)
	p.w.mu.Unlock()
	if s == nil {
		return 0, nil
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		limit := time.NewTimer(3 * p.role.lease)
		defer limit.Stop()
		select {
		case <-p.died:
		case <-limit.C:
		case <-over:
		}
		s.closes()
	}()
	_, _ = fmt.Fprintf(s, "%s %s HTTP/1.0\r\nHost: agent\r\n\r\n", method, path)
	r, err := http.ReadResponse(bufio.NewReader(s), nil)
	if err != nil || !p.gate("call") {
		return 0, nil
	}
	body, _ = io.ReadAll(r.Body)
	return r.StatusCode, body
}

// work waits for the lock, works, and ends the tenure in one of many ways.
func (t *tenure) work(d dice) {
	p, w := t.p, t.p.w
	length := d.spread(p.role.lease/20, 2*p.role.lease)
	if w.isCalm() {
		length = d.spread(p.role.lease/50, p.role.lease/5)
	}
	if !t.waits() {
		return
	}
	for end := time.Now().Add(length); time.Now().Before(end); {
		if !p.nap(d.spread(p.role.lease/100, p.role.lease/4), t.news) {
			return
		}
		w.mu.Lock()
		if d.chance(0.3) && t.token > 0 {
			t.fencedWrite()
		}
		w.check()
		over := !t.acts() || t.stop && d.chance(0.3)
		w.mu.Unlock()
		if over {
			break
		}
	}
	w.mu.Lock()
	lost := !t.working
	w.mu.Unlock()
	switch {
	case lost && d.chance(0.5): // a program need not release what it has lost
		t.socket.closes()
	case w.isCalm() || !d.chance(p.role.strays):
		t.release(d)
	default:
		t.stray(d)
	}
}

// waits returns true once the program holds the lock, and false if it won't.
func (t *tenure) waits() bool {
	for {
		t.p.w.mu.Lock()
		working, ended, dead := t.working, t.ended, t.p.dead
		t.p.w.mu.Unlock()
		if working || ended || dead {
			return working && !dead
		}
		select {
		case <-t.news:
		case <-t.p.died:
		}
	}
}

// stray ends the tenure in a way other than a release.
func (t *tenure) stray(d dice) {
	p, w := t.p, t.p.w
	w.mu.Lock()
	how := pick(d, "closes its socket", "shuts its socket down", "ends", "hangs")
	w.tracef(p.name, "%s", how)
	w.fault("program " + how)
	switch closes := how == "closes its socket" || how == "shuts its socket down"; {
	case closes && t.eof:
		w.expectRelease(t, 0)
	case closes:
		w.expectSilence(t, documentedDoubt)
	}
	if how != "hangs" && (t.eof || happened(t.socket.process.exited)) {
		t.working = false // as docs/agent.md asks of such programs
	}
	w.mu.Unlock()
	switch how {
	case "closes its socket": // and goes on working
		t.socket.closes()
	case "shuts its socket down":
		t.socket.shutsDown()
	case "ends":
		w.mu.Lock()
		p.ends("by itself", d.spread(10*time.Microsecond, 10*time.Millisecond), d.spread(10*time.Microsecond, 10*time.Millisecond))
		w.mu.Unlock()
		return
	}
	for end := time.Now().Add(3 * p.role.lease); time.Now().Before(end); {
		if !p.nap(d.between(time.Millisecond, p.role.lease/10), nil) {
			return
		}
		w.mu.Lock()
		t.fencedWrite()
		w.check()
		w.mu.Unlock()
	}
	if d.chance(0.5) {
		t.release(d)
	}
	w.mu.Lock()
	t.working = false
	w.mu.Unlock()
	t.socket.closes()
}

// release releases the lock, once the work has returned.
func (t *tenure) release(d dice) {
	p, w := t.p, t.p.w
	w.mu.Lock()
	t.working = false
	w.tracef(p.name, "releases %d", t.token)
	path := "/v1/holds/" + t.id + "/release"
	if p.role.kind == onces && d.chance(0.7) {
		path = "/v1/holds/" + t.id + "/done"
	}
	w.mu.Unlock()
	status, _ := p.call("POST", path)
	switch status {
	case http.StatusOK:
		w.released(t, path)
	case 0, http.StatusNotFound: // the agent has ended
		orphan := fmt.Sprintf("/v1/release?token=%d&hold=%s", t.token, t.id)
		for _, name := range t.names {
			orphan += "&name=" + name
		}
		p.call("POST", orphan)
	}
	t.socket.closes()
}

// ends ends the process. Its connection is closed and its end is seen after the given times. w.mu is held.
func (p *client) ends(why string, closes, exits time.Duration) {
	if p.dead {
		return
	}
	p.dead = true
	p.w.tracef(p.name, "ends: %s", why)
	close(p.died)
	process, t := p.process, p.now
	time.AfterFunc(exits, process.exits)
	if t != nil {
		time.AfterFunc(closes, t.socket.closes)
		p.w.expectRelease(t, max(closes, exits))
	}
	p.w.quiet(max(closes, exits))
	p.w.restartProgram(p)
}
