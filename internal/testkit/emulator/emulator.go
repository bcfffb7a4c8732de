// Package emulator finds, starts and ends Cloud Spanner emulators.
//
// An emulator that this package starts never outlives the process that started it, however that process ends: a watchdog,
// in its own session, ends the emulator with it.
//
// Starting an emulator works on Unix systems. Elsewhere, [Open] and [Shared] use the emulator that SPANNER_EMULATOR_HOST
// names.
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

// hostVariable is the variable that points every Spanner client library at an emulator.
const hostVariable = "SPANNER_EMULATOR_HOST"

// reachTimeout bounds how long an emulator that should be running may take to
// accept a connection.
const reachTimeout = 5 * time.Second

// An Emulator is a running Cloud Spanner emulator. Its methods may be called
// from several goroutines at once.
type Emulator struct {
	addr    string
	process *process // nil: SPANNER_EMULATOR_HOST names it
}

// Open returns the emulator at SPANNER_EMULATOR_HOST if that is set, and otherwise starts one as [Start] does. It fails if
// nothing accepts connections at the given address.
func Open(ctx context.Context) (*Emulator, error) {
	if addr := os.Getenv(hostVariable); addr != "" {
		return given(ctx, addr)
	}
	return Start(ctx)
}

// Start starts an emulator of this process's own on a free loopback port,
// whether or not SPANNER_EMULATOR_HOST is set, and returns when it answers.
// The flags are passed to emulator_main after those that Start needs itself,
// for example "--enable_fault_injection".
//
// The emulator ends with [Emulator.Close], or with this process. If Start finds no emulator, the error says how to install
// one; if the emulator ends before it answers, the error has what it printed.
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

// given returns the emulator that the user of this process runs.
func given(ctx context.Context, value string) (*Emulator, error) {
	addr := value
	for _, scheme := range []string{"http://", "https://", "passthrough:///"} {
		addr = strings.TrimPrefix(addr, scheme)
	}
	if err := reach(ctx, addr); err != nil {
		return nil, fmt.Errorf("emulator: %s=%q, but no emulator answers there (%w): start one at that address, or unset %[1]s to have one started", hostVariable, value, err)
	}
	return &Emulator{addr: addr}, nil
}

// reach waits until a gRPC server answers at addr.
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

// Addr returns the emulator's gRPC address as host:port, in the form that SPANNER_EMULATOR_HOST takes.
func (e *Emulator) Addr() string { return e.addr }

// Close ends the emulator if [Start] started it, and returns when it has ended. It leaves alone an emulator that
// SPANNER_EMULATOR_HOST names. Closing twice is fine.
func (e *Emulator) Close() error {
	if e.process == nil {
		return nil
	}
	return e.process.end()
}

// ClientOptions returns the options with which any Google Cloud client connects to this emulator, whatever the environment
// says. The clients look for no credentials.
func (e *Emulator) ClientOptions() []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint("passthrough:///" + e.addr),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		option.WithoutAuthentication(),
	}
}

// Connect returns a client of the database with the given path, which has the
// form projects/P/instances/I/databases/D. It exports no metrics. The caller
// closes it. Unless SPANNER_EMULATOR_HOST is set, the first client of a process
// asks a metadata server, should there be one, for the region; no option of the
// Spanner client prevents that.
func (e *Emulator) Connect(ctx context.Context, path string) (*spanner.Client, error) {
	config := spanner.ClientConfig{DisableNativeMetrics: true}
	return spanner.NewClientWithConfig(ctx, path, config, append(e.ClientOptions(), option.WithGRPCConnectionPool(1))...)
}
