package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// An answer is a response other than lines.
type answer interface{ write(http.ResponseWriter) }

// A result is the answer to a request that was not refused.
type result struct {
	status int
	body   any
}

func ok(body any) answer { return result{http.StatusOK, body} }

// unknown answers a release whose outcome is not known.
func unknown(err error) answer {
	return result{http.StatusAccepted, map[string]string{"state": "unknown", "detail": err.Error()}}
}

func (r result) write(w http.ResponseWriter) { write(w, r.status, "application/json", r.body) }

// A problem says what is wrong with a request, or why the request was refused. Its format is defined by RFC 9457.
type problem struct {
	Code   string `json:"code"` // for programs
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"` // for people: what was given, what was expected, how to fix it

	retryAfter int // in seconds; 0: asking again would not help
}

func wrong(status int, code, format string, args ...any) *problem {
	return &problem{Code: code, Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

func (p *problem) write(w http.ResponseWriter) {
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	write(w, p.Status, "application/problem+json", p)
}

func write(w http.ResponseWriter, status int, contentType string, v any) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	b, _ := json.Marshal(v)
	_, _ = w.Write(append(b, '\n'))
}

// A page is an answer that another handler writes.
type page struct {
	http.Handler
	r *http.Request
}

func (p page) write(w http.ResponseWriter) { p.ServeHTTP(w, p.r) }
