package recipes

import (
	"net/http"

	"github.com/spindle-lock/spindle"
)

// Traffic serves requests on the leader only. The readiness probe makes a Service of Kubernetes send them there.
func Traffic(lock *spindle.Lock, work http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /livez", spindle.Probe(lock.Live))
	mux.Handle("GET /readyz", spindle.Probe(lock.Leading))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if err := lock.Leading(r); err != nil { // the last probe was a second ago
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		work.ServeHTTP(w, r)
	})
	return mux
}
