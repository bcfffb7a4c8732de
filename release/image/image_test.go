package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const version = "v1.2.3"

// A checkout is a git repository that stands in for spindle's: a small program with the same import path.
type checkout struct {
	t   *testing.T
	dir string
}

func newCheckout(t *testing.T) checkout {
	c := checkout{t, t.TempDir()}
	c.write("go.mod", "module github.com/spindle-lock/spindle\n\ngo 1.25.0\n")
	c.write("cmd/spindle/main.go", "package main\n\nfunc main() { println(\"spindle\") }\n")
	c.run("git", "init", "-q")
	c.commit()
	c.run("git", "tag", version)
	return c
}

func (c checkout) write(path, text string) {
	path = filepath.Join(c.dir, path)
	require.NoError(c.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(c.t, os.WriteFile(path, []byte(text), 0o600))
}

func (c checkout) commit() {
	c.run("git", "add", "-A")
	c.run("git", "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-qm", "test")
}

func (c checkout) run(name string, args ...string) { c.with(nil, name, args...) }

func (c checkout) with(env []string, name string, args ...string) {
	c.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z", "GOWORK=off", "GOFLAGS=",
		"GOMODCACHE="+filepath.Join(c.dir, ".git", "modules")) // go build records there that it has seen this version of spindle
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "%s %q: %s", name, args, out)
}

// build builds the program for a platform, as the release does.
func (c checkout) build(goos, goarch string) (file string) {
	c.t.Helper()
	return c.buildWith(goos, goarch, "CGO_ENABLED=0")
}

func (c checkout) buildWith(goos, goarch string, env ...string) (file string) {
	c.t.Helper()
	file = filepath.Join(c.t.TempDir(), "spindle")
	c.with(append(env, "GOOS="+goos, "GOARCH="+goarch), "go", "build", "-trimpath", "-buildvcs=true", "-o", file, "./cmd/spindle")
	return file
}

// standIns are programs of one release, for the tests that don't run them.
var standIns []string

func programsOf(t *testing.T) []string {
	t.Helper()
	once.Do(func() {
		c := newCheckout(t)
		dir, err := os.MkdirTemp("", "spindle-image")
		require.NoError(t, err)
		for _, arch := range []string{"amd64", "arm64"} {
			file := filepath.Join(dir, arch)
			require.NoError(t, os.Rename(c.build("linux", arch), file))
			standIns = append(standIns, file)
		}
	})
	return standIns
}

var once sync.Once

func TestMain(m *testing.M) {
	time.Local = time.FixedZone("elsewhere", 5*60*60) // the image is the same wherever it is built
	code := m.Run()
	if len(standIns) > 0 {
		_ = os.RemoveAll(filepath.Dir(standIns[0]))
	}
	os.Exit(code)
}

// written runs the command, and reads the layout that it has written.
func written(t *testing.T, programs ...string) (index v1.ImageIndex, digest string) {
	t.Helper()
	dir := t.TempDir()
	var out bytes.Buffer
	require.NoError(t, run(context.Background(), append([]string{"-layout", dir}, programs...), &out))
	path, err := layout.FromPath(dir)
	require.NoError(t, err)
	top, err := path.ImageIndex()
	require.NoError(t, err)
	manifest, err := top.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1, "a runtime that reads the layout finds one image")
	named := manifest.Manifests[0]
	assert.Equal(t, version, named.Annotations["org.opencontainers.image.ref.name"])
	assert.Equal(t, named.Digest.String()+"\n", out.String())
	index, err = top.ImageIndex(named.Digest)
	require.NoError(t, err)
	require.NoError(t, validate.Index(index), "each digest and size in the layout is right")
	return index, named.Digest.String()
}

// images returns the images of an index by their platforms.
func images(t *testing.T, index v1.ImageIndex) map[string]v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	all := map[string]v1.Image{}
	for _, m := range manifest.Manifests {
		require.NotNil(t, m.Platform)
		image, err := index.Image(m.Digest)
		require.NoError(t, err)
		all[m.Platform.String()] = image
	}
	return all
}

// filesOf returns the file system of an image.
func filesOf(t *testing.T, image v1.Image) (headers map[string]*tar.Header, texts map[string][]byte) {
	t.Helper()
	headers, texts = map[string]*tar.Header{}, map[string][]byte{}
	from := mutate.Extract(image)
	defer func() { _ = from.Close() }()
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, texts
		}
		require.NoError(t, err)
		name := strings.TrimSuffix(h.Name, "/")
		headers[name] = h
		texts[name], err = io.ReadAll(r)
		require.NoError(t, err)
	}
}

func TestTheSameProgramsGiveTheSameDigest(t *testing.T) {
	_, one := written(t, programsOf(t)...)
	_, two := written(t, programsOf(t)...)
	assert.Equal(t, one, two)
}

// A kubelet refuses a user that it can't prove to be another than root, and starts /spindle with the arguments of the
// manifest.
func TestEachPlatformRunsSpindleAsAUserThatIsNotRoot(t *testing.T) {
	index, _ := written(t, programsOf(t)...)
	all := images(t, index)
	require.Len(t, all, 2)
	for _, arch := range []string{"amd64", "arm64"} {
		image := all["linux/"+arch]
		require.NotNil(t, image, arch)
		config, err := image.ConfigFile()
		require.NoError(t, err)
		assert.Equal(t, arch, config.Architecture)
		assert.Equal(t, "65532:65532", config.Config.User)
		assert.Equal(t, []string{"/spindle"}, config.Config.Entrypoint)
		assert.Empty(t, config.Config.Cmd)
		assert.Equal(t, []string{"PATH=/"}, config.Config.Env)

		headers, texts := filesOf(t, image)
		program, err := readProgram(programsOf(t)[0])
		require.NoError(t, err)
		if arch == program.platform.Architecture {
			text, err := os.ReadFile(program.file)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(text, texts["spindle"]), "it has the program of its platform")
		}
		assert.Contains(t, string(texts["etc/passwd"]), ":65532:65532:")
		var names []string
		for name, h := range headers {
			names = append(names, name)
			assert.Zero(t, h.Uid, "%s: the user can't change it", name)
			if name != "tmp" {
				assert.Zero(t, h.Mode&0o7022, "%s: the user can't change it", name)
			}
		}
		assert.ElementsMatch(t, []string{"etc", "etc/group", "etc/passwd", "etc/ssl", "etc/ssl/certs", "etc/ssl/certs/ca-certificates.crt", "spindle", "tmp"}, names)
		assert.EqualValues(t, 0o755, headers["spindle"].Mode)
		assert.EqualValues(t, 0o1777, headers["tmp"].Mode)
	}
}

// Without them, no connection to Spanner is possible.
func TestTheCertificatesCanBeRead(t *testing.T) {
	index, _ := written(t, programsOf(t)...)
	for platform, image := range images(t, index) {
		_, texts := filesOf(t, image)
		google := false
		count := 0
		for rest := texts[certificates]; ; count++ {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				assert.Empty(t, bytes.TrimSpace(rest), platform)
				break
			}
			c, err := x509.ParseCertificate(block.Bytes)
			require.NoError(t, err)
			assert.True(t, c.IsCA, c.Subject)
			google = google || c.Subject.CommonName == "GTS Root R1"
		}
		assert.Greater(t, count, 100, platform)
		assert.True(t, google, "the root of Google's APIs is among them")
	}
}

// Registries and scanners show them, and GitHub connects the package with the repository by its source.
func TestTheLabelsComeFromTheProgram(t *testing.T) {
	index, _ := written(t, programsOf(t)...)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	want := map[string]string{
		"org.opencontainers.image.source":   "https://github.com/spindle-lock/spindle",
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.created":  "2026-01-02T03:04:05Z",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	for _, image := range images(t, index) {
		config, err := image.ConfigFile()
		require.NoError(t, err)
		assert.Equal(t, manifest.Annotations, config.Config.Labels)
		assert.Subset(t, config.Config.Labels, want)
		assert.Len(t, config.Config.Labels["org.opencontainers.image.revision"], 40)
		require.Len(t, config.History, 1)
		for _, created := range []v1.Time{config.Created, config.History[0].Created} {
			assert.Equal(t, "2026-01-02T03:04:05Z", created.UTC().Format("2006-01-02T15:04:05Z"))
		}
	}
}

// An image must not contain a program that can't run in it, or whose origin it could not name.
func TestProgramsThatDontFitAreRefused(t *testing.T) {
	c := newCheckout(t)
	amd64 := programsOf(t)[0]
	for _, refused := range []struct {
		programs []string
		because  string
	}{
		{nil, "no programs"},
		{[]string{c.build("windows", "amd64")}, "built for windows instead of linux"},
		{[]string{c.buildWith("linux", "amd64", "CGO_ENABLED=1", "CC=false")}, "the image has no C library"},
		{[]string{amd64, amd64}, "are both for linux/amd64"},
		{[]string{"image_test.go"}, "could not read Go build info"},
	} {
		err := run(context.Background(), refused.programs, io.Discard)
		assert.ErrorContains(t, err, refused.because)
	}
	c.write("more.go", "package spindle\n")
	c.commit()
	err := run(context.Background(), []string{amd64, c.build("linux", "arm64")}, io.Discard)
	assert.ErrorContains(t, err, "from commit ", "a release has one commit")
}

func emptyRegistry() http.Handler { return registry.New(registry.Logger(log.New(io.Discard, "", 0))) }

// repositoryOn returns the name of a repository on a registry that serves until the test ends.
func repositoryOn(t *testing.T, registry http.Handler) string {
	t.Helper()
	server := httptest.NewServer(registry)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/spindle-lock/spindle"
}

func TestAVersionIsPushedOnceAndStaysAsItIs(t *testing.T) {
	repository := repositoryOn(t, emptyRegistry())
	index, digest := written(t, programsOf(t)...)
	for range 2 { // also if the first attempt got as far as this
		var out bytes.Buffer
		require.NoError(t, run(context.Background(), append([]string{"-push", repository}, programsOf(t)...), &out))
		assert.Equal(t, digest+"\n", out.String())
	}
	err := push(context.Background(), repository, mutate.Annotations(index, map[string]string{"another": "image"}).(v1.ImageIndex), version)
	assert.ErrorContains(t, err, "exists with another digest")
	for _, not := range []string{"v0.0.0-20260102030405-0123456789ab", "v1.2.3+dirty", "(devel)", "v1.2"} {
		assert.ErrorContains(t, push(context.Background(), repository, index, not), "is not a release", not)
	}
}

// The first version is pushed even if the registry denies access to a repository that does not exist. Any other error does
// not mean that the version is missing, so nothing is pushed.
func TestTheFirstVersionIsPushedWhereAMissingRepositoryIsDenied(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden, http.StatusBadRequest, http.StatusConflict} {
		has := emptyRegistry()
		var asked atomic.Bool
		repository := repositoryOn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, version) && asked.CompareAndSwap(false, true) { // before it may push
				w.WriteHeader(code)
				return
			}
			has.ServeHTTP(w, r)
		}))
		err := push(context.Background(), repository, empty.Index, version)
		tag, bad := name.NewTag(repository + ":" + version)
		require.NoError(t, bad)
		_, there := remote.Get(tag)
		if code == http.StatusBadRequest || code == http.StatusConflict {
			assert.Error(t, err, code)
			assert.Error(t, there, code)
			continue
		}
		assert.NoError(t, err, code)
		assert.NoError(t, there, code)
	}
}

// If the layout can't be written, the command fails and pushes nothing: its caller would not expect a published version.
func TestNothingIsPushedAfterALayoutThatFailed(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	var out bytes.Buffer
	err := run(context.Background(), append([]string{"-layout", file, "-push", strings.TrimPrefix(server.URL, "http://") + "/spindle"}, programsOf(t)...), &out)
	server.Close()
	assert.ErrorContains(t, err, file)
	assert.Zero(t, requests)
	assert.Empty(t, out.String())
}

// Some roots are trusted only for older certificates. The image's programs would not know of this condition, and would
// trust such a root for every certificate.
func TestRootsThatAreTrustedUnderAConditionAreLeftOut(t *testing.T) {
	text := roots()
	for root := range bundle.Roots() {
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		assert.Equal(t, root.Constraint == nil, strings.Contains(text, string(block)))
	}
}
