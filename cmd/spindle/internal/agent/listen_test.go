//go:build unix

package agent

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	rpc "google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/commandtest"
	"github.com/spindle-lock/spindle/cmd/spindle/internal/database"
)

// stale leaves a socket behind on which no process listens, as a killed agent does.
func stale(t *testing.T, path string) {
	on, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	on.SetUnlinkOnClose(false)
	require.NoError(t, on.Close())
}

// An agent replaces the socket of an agent that was killed, and programs can connect. The socket has the permissions that it should have,
// whatever the umask is: they decide who may take locks.
func TestTheSocketOfAKilledAgentIsReplaced(t *testing.T) {
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o666, 0o777} {
		path := filepath.Join(t.TempDir(), "s")
		stale(t, path)
		on, err := listenOn(path, mode)
		require.NoError(t, err)
		defer func() { _ = on.Close() }()
		conn, err := net.Dial("unix", path)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode().Perm())
	}
}

// An agent leaves the socket of a running agent alone, and says why it does not start.
func TestTheSocketOfARunningAgentIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := listenOn(path, 0o600)
	require.NoError(t, err)
	defer func() { _ = first.Close() }()
	_, err = listenOn(path, 0o600)
	require.EqualError(t, err, "--listen unix:"+path+": another agent is already listening there: stop it, or choose another path")
	conn, err := net.Dial("unix", path)
	require.NoError(t, err, "the first agent can still be reached")
	require.NoError(t, conn.Close())
	_, err = listenOn(path+strings.Repeat("s", 107), 0o600) // the kernel says only "invalid argument"
	require.ErrorContains(t, err, "too long for a Unix socket")
}

// If agents start at the same time where one was killed, one of them has the socket, and the others say so.
func TestOneOfSeveralAgentsThatStartAtOnceHasTheSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 50 {
		stale(t, path)
		listeners := make(chan net.Listener, 8)
		var starts sync.WaitGroup
		for range cap(listeners) {
			starts.Go(func() {
				on, err := listenOn(path, 0o600)
				if err == nil {
					listeners <- on
					return
				}
				assert.ErrorContains(t, err, "another agent")
			})
		}
		starts.Wait()
		require.Len(t, listeners, 1)
		conn, err := net.Dial("unix", path)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		require.NoError(t, (<-listeners).Close())
	}
}

// A mistake in --listen never deletes a file.
func TestAFileThatIsNotASocketIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "data")
	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))
	link := filepath.Join(dir, "link")
	stale(t, filepath.Join(dir, "s"))
	require.NoError(t, os.Symlink("s", link))
	for _, p := range []string{path, link, dir} {
		_, err := listenOn(p, 0o600)
		require.ErrorContains(t, err, "a file that is not a socket is in the way, and the agent does not remove it")
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "precious", string(text))
	assert.FileExists(t, link)
}

// An agent serves although the database can't be reached when it begins, as when a machine boots: its programs get their locks later.
// It does not serve if the flags are wrong.
func TestAnAgentBeginsDuringAnOutage(t *testing.T) {
	for code, serves := range map[codes.Code]bool{codes.Unavailable: true, codes.DeadlineExceeded: true, codes.NotFound: false, codes.PermissionDenied: false} {
		timeout := time.Minute // a refusal comes in time, however busy the machine is
		if serves {
			timeout = time.Second / 10 // the outage lasts until then
		}
		s := &serving{Database: &database.Database{Path: "projects/p/instances/i/databases/d", Table: "locktable", Timeout: timeout}}
		db, err := s.Open(option.WithEndpoint("passthrough:///127.0.0.1:1"), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
				return rpc.Error(code, "no session")
			})))
		require.NoError(t, err)
		if err := s.look(t.Context(), db); serves {
			assert.NoError(t, err, "%v", code)
		} else {
			assert.ErrorContains(t, err, "no session", "%v", code)
		}
		db.Close()
	}
}

// An agent that gets no answer from the database serves after --timeout: its service manager would otherwise end it.
func TestAnAgentDoesNotWaitForADatabaseThatDoesNotAnswer(t *testing.T) {
	commandtest.Captured(t)
	s := &serving{Database: &database.Database{Path: "projects/p/instances/i/databases/d", Table: "locktable", Timeout: 50 * time.Millisecond}}
	db, err := s.Open(option.WithEndpoint("passthrough:///127.0.0.1:1"), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(func(_ context.Context, _ string, _, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			if session, ok := reply.(*spannerpb.Session); ok {
				session.Name = s.Path + "/sessions/s"
			}
			return nil
		})),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
			if end, limited := ctx.Deadline(); !limited || time.Until(end) > s.Timeout {
				return nil, rpc.Error(codes.NotFound, "there is no limit")
			}
			<-ctx.Done()
			return nil, rpc.FromContextError(ctx.Err()).Err()
		})))
	require.NoError(t, err)
	defer db.Close()
	assert.NoError(t, s.look(t.Context(), db))
}

// An agent that is so busy that it can't accept a connection keeps its socket.
func TestTheSocketOfABusyAgentIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer syscall.Close(fd)
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}))
	require.NoError(t, syscall.Listen(fd, 0))
	for err = nil; err == nil; {
		var c net.Conn
		if c, err = net.Dial("unix", path); err == nil {
			defer c.Close()
		}
	}
	_, err = listenOn(path, 0o600)
	assert.ErrorContains(t, err, "another process may be listening there")
	_, err = os.Lstat(path)
	assert.NoError(t, err)
}
