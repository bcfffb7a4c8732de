package recipes

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/spindletest"
)

// Once the next leader has written, late writes by the previous leader are refused.
func TestAServiceRefusesTheTokenOfAnEarlierLeader(t *testing.T) {
	needEmulator(t)
	service := &Service{}
	url, db := serve(t, service), spindletest.New(t)
	first, stop := compete(t, db)
	old := elected(t, first)
	require.NoError(t, Put(t.Context(), url, old, []byte("1")))
	require.NoError(t, Put(t.Context(), url, old, []byte("2")), "a leader writes more than once")
	stop()
	second, _ := compete(t, db)
	token := elected(t, second)
	require.NoError(t, Put(t.Context(), url, token, []byte("3")))
	assert.ErrorIs(t, Put(t.Context(), url, old, []byte("late")), spindle.ErrFenced)
	assert.Equal(t, "3", string(service.value))
	assert.Equal(t, token, service.seen)

	resp, err := http.Post(url, "text/plain", strings.NewReader("no token"))
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	assert.Equal(t, "3", string(service.value))
}

// A write ends with ctx, although the service does not answer. Work that writes on would outlive its term.
func TestAWriteEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel(); <-over }))
	defer close(over)
	assert.ErrorIs(t, Put(ctx, url, 1, nil), context.Canceled)
}
