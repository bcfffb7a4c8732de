package main

import (
	"fmt"
	"net/http"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/spindle-lock/spindle"
)

func (r *replica) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /leader", r.whoLeads(func(w http.ResponseWriter, _ *http.Request, leader spindle.Leader) {
		fmt.Fprintln(w, leader.Value, leader.Token)
	}))
	mux.Handle("GET /livez", spindle.Probe(r.lock.Live))     // liveness, and readiness if followers also serve requests
	mux.Handle("GET /readyz", spindle.Probe(r.lock.Leading)) // readiness if only the leader serves requests
	mux.HandleFunc("GET /jobs", r.whoLeads(func(w http.ResponseWriter, req *http.Request, leader spindle.Leader) {
		if leader.Value != r.url {
			http.Redirect(w, req, leader.Value+req.URL.RequestURI(), http.StatusTemporaryRedirect)
		} else if err := r.jobs(w, req); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	return mux
}

// whoLeads returns a handler that calls handle with the last leader that this replica has seen. The handler makes no
// RPC. If this replica has learned nothing about the lock for the leader's whole lease, the handler responds with an
// error, because another replica may lead by now. A leader that has just crashed still appears to lead, so clients must
// retry if a redirect gets no response.
func (r *replica) whoLeads(handle func(http.ResponseWriter, *http.Request, spindle.Leader)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		leader, age, ok := r.lock.Seen()
		if !ok || age > leader.Lease {
			http.Error(w, "no leader is known; try again", http.StatusServiceUnavailable)
			return
		}
		handle(w, req, leader)
	}
}

// jobs lists the latest runs.
func (r *replica) jobs(w http.ResponseWriter, req *http.Request) error {
	query := spanner.NewStatement("SELECT second, token FROM runs ORDER BY second DESC LIMIT 60")
	return r.db.Single().Query(req.Context(), query).Do(func(row *spanner.Row) error {
		var second time.Time
		var token int64
		if err := row.Columns(&second, &token); err != nil {
			return err
		}
		_, err := fmt.Fprintln(w, second.Format(time.TimeOnly), "under token", token)
		return err
	})
}
