package recipes

import (
	"net/http"

	"github.com/spindle-lock/spindle"
)

// Traffic serves requests only on the leader. Its readiness probe makes a Kubernetes Service send all requests to the
// leader.
func Traffic(lock *spindle.Lock, work http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", spindle.Probe(lock.Live))
	mux.Handle("GET /readyz", spindle.Probe(lock.Leading))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if err := lock.Leading(r); err != nil { // the last probe may be a second old
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		work.ServeHTTP(w, r)
	})
	return mux
}
