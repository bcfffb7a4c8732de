package table

import (
	"context"
	"fmt"
	"sync/atomic"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// The Spanner client repeats a request that Spanner temporarily can't serve. If the request then times out, the client
// may return only DEADLINE_EXCEEDED, which does not say what is wrong. Therefore, the request's context has a place for
// the last answer, and the interceptors in DialOptions store it there.

type heardKey struct{}

// listen returns a context for one request, and a function that adds the last answer to the request's error if the
// request has timed out or Spanner was unavailable. The error then has the answer's code. The function adds only
// answers that report an outage. Other answers could mean that nothing was written, which is not known after a timeout.
func listen(ctx context.Context) (context.Context, func(error) error) {
	heard := new(atomic.Pointer[error])
	return context.WithValue(ctx, heardKey{}, heard), func(err error) error {
		if last := heard.Load(); last != nil && FaultOf(err) == Unreachable {
			return fmt.Errorf("%w; the client repeated the request until it timed out: %w", spanner.ToSpannerError(*last), err)
		}
		return err
	}
}

// note returns err. If err is an answer that reports an outage, note also stores it for ctx's request.
func note(ctx context.Context, err error) error {
	code := spanner.ErrCode(err)
	if heard, ok := ctx.Value(heardKey{}).(*atomic.Pointer[error]); ok && code != codes.DeadlineExceeded && code != codes.Canceled && FaultOf(err).Kind == Outage {
		heard.Store(&err)
	}
	return err
}

// DialOptions returns options for the client of a Spanner store. For each request, connections with these options note
// the last answer that reports an outage.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(noteAnswer), grpc.WithChainStreamInterceptor(noteStream)}
}

func noteAnswer(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return note(ctx, invoke(ctx, method, req, reply, cc, opts...))
}

func noteStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return s, note(ctx, err)
	}
	return noting{s, ctx}, nil
}

// noting is a stream whose error is noted.
type noting struct {
	grpc.ClientStream
	ctx context.Context
}

func (n noting) RecvMsg(m any) error { return note(n.ctx, n.ClientStream.RecvMsg(m)) }
