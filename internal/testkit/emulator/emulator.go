// Package emulator finds, starts and stops Cloud Spanner emulators.
//
// An emulator that this package starts is stopped when the process that started it ends, no matter how that process
// ends. A watchdog, which runs in its own session, stops the emulator.
//
// The package can start emulators only on Unix systems. On other systems, [Open] and [Shared] require that
// SPANNER_EMULATOR_HOST names a running emulator.
package emulator

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// hostVariable is the environment variable that makes Spanner client libraries connect to an emulator.
const hostVariable = "SPANNER_EMULATOR_HOST"

// reachTimeout is how long an emulator that should be running may take to accept a connection.
const reachTimeout = 30 * time.Second

// An Emulator is a running Cloud Spanner emulator. Its methods are safe for concurrent use.
type Emulator struct {
	addr    string
	process *process // nil if SPANNER_EMULATOR_HOST names the emulator
}

// Open returns the emulator at SPANNER_EMULATOR_HOST, or an error if no server accepts connections at that address. If
// the variable is not set, Open starts an emulator as [Start] does.
func Open(ctx context.Context) (*Emulator, error) {
	if addr := os.Getenv(hostVariable); addr != "" {
		return given(ctx, addr)
	}
	return Start(ctx)
}

// Start starts an emulator for this process on a free loopback port, and returns when the emulator answers. It does so
// even if SPANNER_EMULATOR_HOST is set. Flags such as "--enable_fault_injection" are passed to emulator_main, after the
// flags that Start itself sets.
//
// The emulator runs until [Emulator.Close] is called or this process exits. If no emulator is installed, the error says
// how to install one. If the emulator does not report that it is listening, the error contains the emulator's output.
func Start(ctx context.Context, flags ...string) (*Emulator, error) {
	src, err := find(ctx)
	if err != nil {
		return nil, err
	}
	p, addr, err := launch(ctx, src.command(flags))
	if err != nil {
		return nil, err
	}
	return &Emulator{addr: addr, process: p}, nil
}

// given returns the running emulator that SPANNER_EMULATOR_HOST names.
func given(ctx context.Context, value string) (*Emulator, error) {
	addr := value
	for _, scheme := range []string{"http://", "https://", "passthrough:///"} {
		addr = strings.TrimPrefix(addr, scheme)
	}
	if err := reach(ctx, addr); err != nil {
		return nil, fmt.Errorf("emulator: no emulator answers at %s=%q (%w); start one at that address, or unset %[1]s to have one started for you", hostVariable, value, err)
	}
	return &Emulator{addr: addr}, nil
}

// reach checks that a gRPC server at addr accepts a connection within reachTimeout.
func reach(ctx context.Context, addr string) error {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()

	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if state == connectivity.TransientFailure {
			return fmt.Errorf("cannot connect to %s", addr)
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("no connection to %s: %w", addr, ctx.Err())
		}
	}
	return nil
}

// Addr returns the emulator's gRPC address as host:port, the same form as in SPANNER_EMULATOR_HOST.
func (e *Emulator) Addr() string { return e.addr }

// Close stops the emulator if [Start] started it, and waits until the emulator has exited. It does not stop an emulator
// that SPANNER_EMULATOR_HOST names. Close can be called more than once.
func (e *Emulator) Close() error {
	if e.process == nil {
		return nil
	}
	return e.process.end()
}

// ClientOptions returns options that make any Google Cloud client connect to this emulator without credentials,
// regardless of environment variables.
func (e *Emulator) ClientOptions() []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint("passthrough:///" + e.addr),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		option.WithoutAuthentication(),
	}
}

// Connect returns a client for the database with the given path, projects/P/instances/I/databases/D. The client exports
// no metrics. The caller must close it.
//
// When a process creates its first client and SPANNER_EMULATOR_HOST is not set, the Spanner library looks for Google
// Cloud's metadata server to find out the region. No option of the client prevents this.
func (e *Emulator) Connect(ctx context.Context, path string) (*spanner.Client, error) {
	config := spanner.ClientConfig{DisableNativeMetrics: true}
	return spanner.NewClientWithConfig(ctx, path, config, append(e.ClientOptions(), option.WithGRPCConnectionPool(1))...)
}
