package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// A problem says what is wrong with a request, or why the request was refused. Its format is defined by RFC 9457.
type problem struct {
	Code   string `json:"code"` // for programs
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"` // for people: what was given, what was expected, how to fix it

	retryAfter int // in seconds; 0: asking again would not help
}

// Error implements error.
func (p *problem) Error() string { return p.Detail }

func wrong(status int, code, format string, args ...any) *problem {
	return &problem{Code: code, Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

func (p *problem) write(w http.ResponseWriter) {
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	writeJSON(w, p.Status, "application/problem+json", p)
}

func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	b, _ := json.Marshal(v)
	_, _ = w.Write(append(b, '\n'))
}

func answer(w http.ResponseWriter, status int, v any) { writeJSON(w, status, "application/json", v) }
