package table

import (
	"context"
	"fmt"
	"sync/atomic"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// The Spanner client repeats a request that Spanner can't serve now. If the request's time is then up, the client
// returns only DEADLINE_EXCEEDED, which does not say what is wrong. So the request's context has a place for the last
// answer, and the interceptors in DialOptions put it there.

// heard is the last answer to the attempts at one request, or empty.
type heard struct{ last atomic.Pointer[error] }

type heardKey struct{}

// listen returns a context for one request, and a function that adds the last answer to the request's error.
func listen(ctx context.Context) (context.Context, func(error) error) {
	h := &heard{}
	return context.WithValue(ctx, heardKey{}, h), h.explain
}

// explain returns err, together with the last answer if the request's time is up. The error code is then that of the
// answer. Only an outage is added, because other answers mean that nothing was written, which is not known.
func (h *heard) explain(err error) error {
	if last := h.last.Load(); last != nil && FaultOf(err) == Unreachable {
		return fmt.Errorf("%w; the client repeated the request until its time was up: %w", spanner.ToSpannerError(*last), err)
	}
	return err
}

func (h *heard) note(err error) error {
	code := spanner.ErrCode(err)
	if code != codes.DeadlineExceeded && code != codes.Canceled && FaultOf(err).Kind == Outage {
		h.last.Store(&err)
	}
	return err
}

// DialOptions make a client's connections note the last answer to each request of a Spanner.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(noteAnswer), grpc.WithChainStreamInterceptor(noteStream)}
}

func noteAnswer(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	if h, ok := ctx.Value(heardKey{}).(*heard); ok {
		return h.note(err)
	}
	return err
}

func noteStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	h, ok := ctx.Value(heardKey{}).(*heard)
	switch {
	case !ok:
		return s, err
	case err != nil:
		return s, h.note(err)
	}
	return noting{s, h}, nil
}

// noting is a stream whose error is noted.
type noting struct {
	grpc.ClientStream
	heard *heard
}

func (n noting) RecvMsg(m any) error { return n.heard.note(n.ClientStream.RecvMsg(m)) }
