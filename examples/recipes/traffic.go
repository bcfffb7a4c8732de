package recipes

import (
	"net/http"

	"github.com/spindle-lock/spindle"
)

// Traffic returns a handler that serves requests only while this process leads. The readiness probe fails on the other
// processes, so a Kubernetes Service sends requests only to the leader.
func Traffic(lock *spindle.Lock, work http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", spindle.Probe(lock.Live))
	mux.Handle("GET /readyz", spindle.Probe(lock.Leading))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if err := lock.Leading(r); err != nil { // the last probe may be outdated
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		work.ServeHTTP(w, r)
	})
	return mux
}
