package table

import (
	"testing"

	"cloud.google.com/go/spanner"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestALostSessionIsNotASupersededToken(t *testing.T) {
	notFound := func(kind string) error {
		st, err := status.New(codes.NotFound, "not found").WithDetails(&errdetails.ResourceInfo{ResourceType: "type.googleapis.com/" + kind})
		require.NoError(t, err)
		return st.Err()
	}
	for _, wrap := range []func(error) error{func(err error) error { return err }, spanner.ToSpannerError} {
		assert.False(t, Missing(wrap(notFound("google.spanner.v1.Session"))))
		assert.True(t, Missing(wrap(notFound("google.spanner.admin.database.v1.Database"))))
		assert.True(t, Missing(wrap(status.Error(codes.NotFound, "Row [mylock_1] in table locktable is missing."))))
		assert.False(t, Missing(wrap(status.Error(codes.Unavailable, "later"))))
		assert.False(t, Missing(nil))
	}
	assert.False(t, Missing(spanner.ToSpannerError(status.Error(codes.NotFound, "Transaction not found: 17"))))
}
