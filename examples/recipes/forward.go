package recipes

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/spindle-lock/spindle"
)

// forwarded is the header that marks requests forwarded by a follower.
const forwarded = "X-Forwarded-To-Leader"

// Forward returns a handler that serves requests while this process leads. Otherwise, the handler forwards them to the
// URL that the leader published with spindle.WithValue. If no leader becomes known within patience, the handler replies
// with status 503.
func Forward(lock *spindle.Lock, patience time.Duration, work http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if leads, _ := lock.HasLock(); leads {
			work.ServeHTTP(w, r)
			return
		}
		if r.Header.Get(forwarded) != "" { // by a process that mistook this one for the leader
			tryAgain(w)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		leader, err := lock.Wait(ctx) // returns immediately if a leader is known
		target, unreadable := url.Parse(leader.Value)
		if err != nil || unreadable != nil {
			tryAgain(w)
			return
		}
		proxy := httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.SetXForwarded()
			p.Out.Header.Set(forwarded, leader.Token.String())
		}}
		proxy.ServeHTTP(w, r)
	})
}

func tryAgain(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "the leader is changing", http.StatusServiceUnavailable)
}
