package emulator

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
)

// program writes an executable shell script.
func program(t *testing.T, path, body string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return path
}

func TestFindTakesTheFirstSourceThatThereIs(t *testing.T) {
	dir := t.TempDir()
	named := program(t, filepath.Join(dir, "named"), "")
	inPath := program(t, filepath.Join(dir, "path", binaryName), "")
	beside := program(t, filepath.Join(dir, "sdk", "bin", "cloud_spanner_emulator", binaryName), "")
	gcloud := program(t, filepath.Join(dir, "sdk", "bin", "gcloud"), "")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "links"), 0o755))
	require.NoError(t, os.Symlink(gcloud, filepath.Join(dir, "links", "gcloud")))
	engine := program(t, filepath.Join(dir, "engine", "docker"), "exit 0")
	program(t, filepath.Join(dir, "noengine", "docker"), "echo Cannot connect to the Docker daemon. >&2; exit 1")
	beside, err := filepath.EvalSymlinks(beside)
	require.NoError(t, err)

	for _, tt := range []struct {
		behaviour string
		variable  string
		path      []string
		want      source
		wantErr   []string
	}{
		{"the variable comes first", named, []string{"path", "links", "engine"}, binary(named), nil},
		{"then PATH", "", []string{"links", "engine", "path"}, binary(inPath), nil},
		{"then the place where gcloud installs it", "", []string{"engine", "links"}, binary(beside), nil},
		{"then a docker engine", "", []string{"engine"}, docker(engine), nil},
		{"a wrong variable is an error", filepath.Join(dir, "none"), []string{"path"}, nil,
			[]string{binaryVariable, filepath.Join(dir, "none"), "unset it"}},
		{"nothing found says how to install it", "", []string{"noengine"}, nil, []string{
			"Cannot connect to the Docker daemon", "gcloud components install cloud-spanner-emulator",
			"start a Docker engine", "set " + hostVariable, "set " + binaryVariable}},
		{"no docker either", "", nil, nil, []string{"there is no docker in PATH"}},
	} {
		t.Run(tt.behaviour, func(t *testing.T) {
			t.Setenv(binaryVariable, tt.variable)
			var path []string
			for _, p := range tt.path {
				path = append(path, filepath.Join(dir, p))
			}
			setPath(t, path)
			got, err := find(t.Context())
			for _, want := range tt.wantErr {
				require.ErrorContains(t, err, want)
			}
			if tt.wantErr == nil {
				require.NoError(t, err)
				require.Equal(t, tt.want, got)
			}
		})
	}
}

func setPath(t *testing.T, dirs []string) {
	t.Helper()
	path := ""
	for _, dir := range dirs {
		path += dir + string(os.PathListSeparator)
	}
	t.Setenv("PATH", path+filepath.Join(t.TempDir(), "empty"))
}

// The container publishes its port only on loopback, and gets the flags. The stand-in behaves like docker from the point of
// view of the watchdog. Its client keeps running until the container is removed.
func TestTheContainerIsReachedAtItsPublishedAddressAndRemoved(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	go server.Serve(l)
	defer server.Stop()

	dir := t.TempDir()
	fake := program(t, filepath.Join(dir, "docker"), `cd `+dir+`
case $1 in
run) echo $$ >pid; printf %s "$4" >name; printf %s "$*" >args; echo "Server address: 0.0.0.0:9010"; exec sleep 600;;
port) test "$2" = "$(cat name)" && echo `+l.Addr().String()+`;;
rm) test "$3" = "$(cat name)" && printf %s "$3" >removed && kill $(cat pid);;
esac`)
	said := func(file string) string {
		text, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		return string(text)
	}
	p, addr, err := launch(t.Context(), docker(fake).command([]string{"--enable_fault_injection"}))
	require.NoError(t, err)
	require.Equal(t, l.Addr().String(), addr)
	require.NoError(t, p.end())
	require.Equal(t, said("name"), said("removed"))
	require.Equal(t, "run --rm --name "+said("name")+" --publish 127.0.0.1::9010 gcr.io/cloud-spanner-emulator/emulator "+
		"./emulator_main --host_port 0.0.0.0:9010 --enable_fault_injection", said("args"))
}
