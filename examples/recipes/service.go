package recipes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/spindle-lock/spindle"
)

// Service is an HTTP service outside Spanner. It stores a value and the highest token under which the value was
// written, and refuses writes under a lower token.
type Service struct {
	mu    sync.Mutex // in a database, use a transaction instead
	seen  spindle.Token
	value []byte
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, err := strconv.ParseInt(r.Header.Get("Fencing-Token"), 10, 64)
	value, unread := io.ReadAll(r.Body)
	if err != nil || unread != nil {
		http.Error(w, "the Fencing-Token header must be a decimal number, and the body must be complete", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock() // after the write, because the check and the write must be atomic
	if spindle.Token(token) < s.seen {
		http.Error(w, fmt.Sprintf("token %d is outdated: the highest token so far is %v", token, s.seen), http.StatusPreconditionFailed)
		return
	}
	s.seen, s.value = spindle.Token(token), value
}

// Put writes to a Service under the token. If the service has seen a higher token, the error wraps spindle.ErrFenced.
// After any other error, the write may still arrive, even after a later Put under the same token. Therefore, step down
// before you write again: the next term has a higher token.
func Put(ctx context.Context, url string, token spindle.Token, value []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(value))
	if err != nil {
		return err
	}
	r.Header.Set("Fencing-Token", token.String())
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusPreconditionFailed:
		return fmt.Errorf("put %s: %w", url, spindle.ErrFenced)
	}
	return fmt.Errorf("put %s: %s", url, resp.Status)
}
