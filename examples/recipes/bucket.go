package recipes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"

	"github.com/spindle-lock/spindle"
)

// Write writes an object under the token, and stores the token in the object's metadata. If the object already has a
// higher token, the error wraps spindle.ErrFenced. If another process writes or deletes the object after Write has read
// its metadata, Cloud Storage refuses the write, and Write tries again.
func Write(ctx context.Context, object *storage.ObjectHandle, token spindle.Token, value []byte) error {
	for {
		unchanged := storage.Conditions{DoesNotExist: true}
		switch there, err := object.Attrs(ctx); {
		case err == nil:
			if seen, _ := strconv.ParseInt(there.Metadata["token"], 10, 64); spindle.Token(seen) > token {
				return fmt.Errorf("write %s under token %v: %w: the object's token is %d", object.ObjectName(), token, spindle.ErrFenced, seen)
			}
			unchanged = storage.Conditions{GenerationMatch: there.Generation}
		case !errors.Is(err, storage.ErrObjectNotExist):
			return err
		}
		w := object.If(unchanged).NewWriter(ctx)
		w.Metadata = map[string]string{"token": token.String()}
		_, err := w.Write(value)
		err = errors.Join(err, w.Close())
		var refused *googleapi.Error
		if !errors.As(err, &refused) || refused.Code != http.StatusPreconditionFailed {
			return err
		}
	}
}
