package table

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// The Spanner client repeats a request that Spanner temporarily can't serve. If the request then times out, the client
// may return only DEADLINE_EXCEEDED, which does not say what is wrong. Therefore, the request's context has places for
// the last answer, one for each caller, and the interceptors in DialOptions store it there.

type heardKey struct{}

type heard = atomic.Pointer[error]

func heardIn(ctx context.Context) []*heard {
	all, _ := ctx.Value(heardKey{}).([]*heard)
	return all
}

// Listen returns a context for one request, and a function that adds the last answer to the request's error if the
// request has timed out or Spanner was unavailable. The error then has the answer's code. The function adds only
// answers that report an outage. Other answers could mean that nothing was written, which is not known after a timeout.
func Listen(ctx context.Context) (context.Context, func(error) error) {
	heard := new(heard)
	return context.WithValue(ctx, heardKey{}, append(slices.Clip(heardIn(ctx)), heard)), func(err error) error {
		if last := heard.Load(); last != nil && FaultOf(err) == Unreachable {
			return fmt.Errorf("%w; the client repeated the request until it timed out: %w", spanner.ToSpannerError(*last), err)
		}
		return err
	}
}

// ListenFor returns ctx for a request that several callers share. Its answers are stored for all of them.
func ListenFor(ctx context.Context, callers []context.Context) context.Context {
	var all []*heard
	for _, c := range callers {
		all = append(all, heardIn(c)...)
	}
	return context.WithValue(ctx, heardKey{}, all)
}

// note returns err. If err is an answer that reports an outage, note also stores it for ctx's request.
func note(ctx context.Context, err error) error {
	code := spanner.ErrCode(err)
	if code != codes.DeadlineExceeded && code != codes.Canceled && FaultOf(err).Kind == Outage {
		for _, heard := range heardIn(ctx) {
			heard.Store(&err)
		}
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
