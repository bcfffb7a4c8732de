package main

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// proxy starts a proxy for the server at addr, and returns its address. The proxy counts the messages that clients
// send: each HTTP request, and each message of a gRPC call. For example, a heartbeat of an etcd session is a message of
// a long call.
func (g *ground) proxy(addr string, sent *atomic.Int64) (string, error) {
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	if strings.Contains(addr, "://") {
		return "http://" + on.Addr().String(), g.proxyHTTP(on, addr, sent)
	}
	return on.Addr().String(), g.proxyGRPC(on, addr, sent)
}

func (g *ground) proxyHTTP(on net.Listener, addr string, sent *atomic.Int64) error {
	behind, err := url.Parse(addr)
	if err != nil {
		return err
	}
	forward := httputil.NewSingleHostReverseProxy(behind)
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // a certificate that the server made itself
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent.Add(1)
		forward.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(on) }()
	g.onClose(func() { _ = server.Close() })
	return nil
}

func (g *ground) proxyGRPC(on net.Listener, addr string, sent *atomic.Int64) error {
	behind, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	g.onClose(func() { _ = behind.Close() })
	server := grpc.NewServer(
		grpc.ForceServerCodec(asItIs{}),
		grpc.UnknownServiceHandler(func(_ any, client grpc.ServerStream) error { return forward(client, behind, sent) }),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	go func() { _ = server.Serve(on) }()
	g.onClose(server.Stop)
	return nil
}

// forward passes on the messages of one call in both directions.
func forward(client grpc.ServerStream, behind *grpc.ClientConn, sent *atomic.Int64) error {
	method, _ := grpc.MethodFromServerStream(client)
	md, _ := metadata.FromIncomingContext(client.Context())
	ctx := metadata.NewOutgoingContext(client.Context(), md)
	server, err := behind.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodec(asItIs{}))
	if err != nil {
		return err
	}
	go func() {
		for {
			var m []byte
			if err := client.RecvMsg(&m); err != nil {
				_ = server.CloseSend()
				return
			}
			sent.Add(1)
			if server.SendMsg(&m) != nil {
				return
			}
		}
	}()
	if md, err := server.Header(); err == nil {
		_ = client.SendHeader(md)
	}
	for {
		var m []byte
		if err := server.RecvMsg(&m); err != nil {
			client.SetTrailer(server.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := client.SendMsg(&m); err != nil {
			return err
		}
	}
}

// asItIs leaves messages encoded.
type asItIs struct{}

func (asItIs) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (asItIs) Unmarshal(data []byte, v any) error { *v.(*[]byte) = slices.Clone(data); return nil }
func (asItIs) Name() string                       { return "proto" }
