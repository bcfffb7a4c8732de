package emulator

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/stretchr/testify/require"
)

func needEmulator(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an emulator")
	}
}

// requireEnds waits until no server listens at addr.
func requireEnds(t *testing.T, addr string) {
	t.Helper()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, 10*time.Second, 10*time.Millisecond, "the emulator at %s is left running", addr)
}

func started(t *testing.T, flags ...string) *Emulator {
	t.Helper()
	e, err := Start(t.Context(), flags...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func TestCloseEndsTheEmulatorAndCanBeRepeated(t *testing.T) {
	needEmulator(t)
	e := started(t)
	require.NoError(t, e.Close())
	_, err := net.Dial("tcp", e.Addr())
	require.Error(t, err, "Close returns when the emulator has ended")
	require.NoError(t, e.Close())
}

// The emulator of a process that ends without Close also ends, however the process ends.
func TestTheEmulatorEndsWithTheProcess(t *testing.T) {
	needEmulator(t)
	endInput := func(_ *exec.Cmd, input io.Closer) error { return input.Close() }
	for name, tt := range map[string]struct {
		role string
		end  func(*exec.Cmd, io.Closer) error
	}{
		"os.Exit":                                {"exit", endInput},
		"panic":                                  {"panic", endInput},
		"SIGKILL":                                {"sleep", func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Kill() }},
		"SIGKILL of a process with a shared one": {"shared", func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Kill() }},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childVariable+"="+tt.role)
			input, err := cmd.StdinPipe()
			require.NoError(t, err)
			output, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())

			line, err := bufio.NewReader(output).ReadString('\n')
			require.NoError(t, err)
			addr := strings.TrimSpace(line)
			require.NoError(t, reach(t.Context(), addr))

			require.NoError(t, tt.end(cmd, input))
			_ = cmd.Wait()
			requireEnds(t, addr)
		})
	}
}

func TestStartReportsWhatAnEmulatorThatEndsEarlyPrinted(t *testing.T) {
	needEmulator(t)
	_, err := Start(t.Context(), "--no_such_flag")
	require.ErrorContains(t, err, "ended before it was ready")
	require.ErrorContains(t, err, "no_such_flag")
}

func TestStartEndsWhenItsContextDoes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	silent := command{argv: []string{"sleep", "60"}, patience: time.Minute}
	_, _, err := launch(ctx, silent)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestOpenUsesTheEmulatorThatTheEnvironmentNames(t *testing.T) {
	needEmulator(t)
	running := started(t)
	t.Setenv(hostVariable, "http://"+running.Addr())
	e, err := Open(t.Context())
	require.NoError(t, err)
	require.Equal(t, running.Addr(), e.Addr())
	require.NoError(t, e.Close())
	require.NoError(t, reach(t.Context(), running.Addr()), "Close leaves it alone")
}

func TestOpenSaysSoWhenTheEmulatorOfTheEnvironmentDoesNotAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	t.Setenv(hostVariable, l.Addr().String())
	_, err = Open(t.Context())
	require.ErrorContains(t, err, hostVariable)
	require.ErrorContains(t, err, l.Addr().String())
	require.ErrorContains(t, err, "unset "+hostVariable)
}

func TestAProcessSharesOneEmulatorAndReplacesOneThatDied(t *testing.T) {
	needEmulator(t)
	dead, next := started(t), started(t)
	require.NotEqual(t, dead.Addr(), next.Addr())
	t.Cleanup(func() { shared.emulator = nil })
	shared.emulator = dead
	e, err := Shared(t.Context())
	require.NoError(t, err)
	require.Same(t, dead, e)
	require.NoError(t, dead.Close())
	t.Setenv(hostVariable, next.Addr())
	e, err = Shared(t.Context())
	require.NoError(t, err)
	require.Equal(t, next.Addr(), e.Addr())
}

func TestCreateDatabaseAppliesStatementsInBothDialects(t *testing.T) {
	needEmulator(t)
	e := started(t)
	for dialect, statement := range map[databasepb.DatabaseDialect]string{
		databasepb.DatabaseDialect_GOOGLE_STANDARD_SQL: "CREATE TABLE t (id INT64) PRIMARY KEY (id)",
		databasepb.DatabaseDialect_POSTGRESQL:          "CREATE TABLE t (id bigint PRIMARY KEY)",
	} {
		t.Run(dialect.String(), func(t *testing.T) {
			path, err := e.CreateDatabase(t.Context(), dialect, statement)
			require.NoError(t, err)
			client, err := e.Connect(t.Context(), path)
			require.NoError(t, err)
			defer client.Close()
			_, err = client.Apply(t.Context(), []*spanner.Mutation{spanner.Insert("t", []string{"id"}, []any{1})})
			require.NoError(t, err)
			require.NoError(t, e.DropDatabase(t.Context(), path))
			require.NoError(t, e.DropDatabase(t.Context(), path), "it is gone already")

			_, err = e.CreateDatabase(t.Context(), dialect, statement, "CREATE NONSENSE")
			require.ErrorContains(t, err, "NONSENSE")
		})
	}
}
