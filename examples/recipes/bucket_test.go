package recipes

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"cloud.google.com/go/storage"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	"github.com/spindle-lock/spindle"
)

const earlier, later = spindle.Token(1795294355747585), spindle.Token(1795294355747586)

// before is a transport that calls a function before the first upload.
type before struct {
	http.RoundTripper
	upload func()
}

func (b *before) RoundTrip(r *http.Request) (*http.Response, error) {
	if upload := b.upload; upload != nil && strings.HasPrefix(r.URL.Path, "/upload/") {
		b.upload = nil
		upload()
	}
	return b.RoundTripper.RoundTrip(r)
}

// newObject returns two handles of an object that does not exist yet. The handles belong to two clients of a server
// that imitates Cloud Storage. The first client calls upload before its first upload.
func newObject(t *testing.T, upload func()) (first, second *storage.ObjectHandle) {
	t.Helper()
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Writer: io.Discard})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "backups"})
	object := func(transport http.RoundTripper) *storage.ObjectHandle {
		client, err := storage.NewClient(context.Background(), option.WithHTTPClient(&http.Client{Transport: transport}))
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		return client.Bucket("backups").Object("latest")
	}
	return object(&before{server.HTTPClient().Transport, upload}), object(server.HTTPClient().Transport)
}

func content(t *testing.T, object *storage.ObjectHandle) string {
	t.Helper()
	r, err := object.NewReader(t.Context())
	require.NoError(t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(b)
}

// After a write under a higher token, a write under a lower token is refused.
func TestAnObjectIsNotOverwrittenUnderALowerToken(t *testing.T) {
	object, _ := newObject(t, nil)
	for _, value := range []string{"1", "2"} {
		require.NoError(t, Write(t.Context(), object, earlier, []byte(value)))
	}
	require.NoError(t, Write(t.Context(), object, later, []byte("3")))
	assert.ErrorIs(t, Write(t.Context(), object, earlier, []byte("late")), spindle.ErrFenced)
	assert.Equal(t, "3", content(t, object))
}

// A write is also refused if the leader was paused between its read of the metadata and the write.
func TestAWriteThatIsOvertakenIsRefused(t *testing.T) {
	for _, exists := range []bool{false, true} {
		var slow, fast *storage.ObjectHandle
		slow, fast = newObject(t, func() { assert.NoError(t, Write(t.Context(), fast, later, []byte("next"))) })
		if exists {
			require.NoError(t, Write(t.Context(), fast, earlier, []byte("1")))
		}
		assert.ErrorIs(t, Write(t.Context(), slow, earlier, []byte("late")), spindle.ErrFenced)
		assert.Equal(t, "next", content(t, fast))
	}
}
