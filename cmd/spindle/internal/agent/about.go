package agent

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/internal/table"
)

// holdJSON describes a hold.
type holdJSON struct {
	Hold    string   `json:"hold"`
	Kind    string   `json:"kind"`
	Names   []string `json:"names"`
	State   string   `json:"state"`
	Token   int64    `json:"token,omitempty"`
	Left    int64    `json:"left_ms"`
	Program string   `json:"program"`
	Holder  string   `json:"holder"`
	Detail  string   `json:"detail,omitempty"`
}

func (h *hold) describe() holdJSON {
	s := h.status()
	j := holdJSON{Hold: h.id, Kind: h.asked.kind, Names: h.asked.names, State: s.outcome(), Program: h.who.String(), Holder: h.holder}
	switch {
	case s.phase.holds():
		j.Token, j.Left = int64(h.lock.token()), max(h.lock.left().Milliseconds(), 0)
	case j.State == "lost":
		j.Detail = s.lost
	case j.State == "refused":
		j.Detail = s.refusal.Error()
	}
	return j
}

func (a *Agent) list(w http.ResponseWriter, _ *http.Request, p process) (kept bool) {
	all := []holdJSON{}
	for _, h := range a.all() {
		if uid := p.Who().UID; h.who.UID == uid || uid == 0 {
			all = append(all, h.describe())
		}
	}
	slices.SortFunc(all, func(a, b holdJSON) int { return strings.Compare(a.Names[0]+a.Hold, b.Names[0]+b.Hold) })
	answer(w, http.StatusOK, map[string]any{"holds": all})
	return false
}

// about answers with the state of a hold, including how much time is left. If a program can't compare the agent's
// clocks with its own, it reads its own clocks, sends this request, and adds the time left to what it has read.
func (a *Agent) about(w http.ResponseWriter, r *http.Request, p process) (kept bool) {
	if h := a.own(w, r, p); h != nil {
		made := a.clock.Now()
		j := h.describe()
		if j.Left > 0 {
			h.promise(promise{made, time.Duration(j.Left) * time.Millisecond})
		}
		answer(w, http.StatusOK, j)
	}
	return false
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
func (a *Agent) leader(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if err := table.CheckName(name); err != nil {
		wrong(http.StatusBadRequest, "bad-parameter", "%v", err).write(w)
		return
	}
	if bad := a.allowed(name); bad != nil {
		bad.write(w)
		return
	}
	slow(r)
	ctx, cancel := context.WithTimeout(r.Context(), waitFor)
	defer cancel()
	l, err := spindle.New(nil, a.TableName, name, a.reading()).Leader(ctx)
	switch {
	case errors.Is(err, spindle.ErrNoLeader):
		answer(w, http.StatusOK, map[string]any{"leader": nil})
	case err != nil:
		wrong(http.StatusServiceUnavailable, "unavailable", "%v", err).write(w)
	default:
		answer(w, http.StatusOK, map[string]any{"leader": leaderOf(l)})
	}
}

// seesAll reports whether a program's user is root or the agent's own user, who may see and stop the holds of all users.
func seesAll(p process) bool {
	uid := p.Who().UID
	return uid == 0 || uid == os.Getuid()
}
