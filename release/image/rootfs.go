package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io/fs"
	"os"
	"testing/fstest"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the account that the image runs as. It is a number because Kubernetes can't tell whether a name is root's.
const user = "65532:65532"

// certificates is where Go's crypto/x509 looks first on Linux.
const certificates = "etc/ssl/certs/ca-certificates.crt"

// files returns the program and the files that it needs, as a tar archive. The files belong to root and have no
// timestamps, so that the same contents always give the same bytes.
func files(p program) ([]byte, error) {
	text, err := os.ReadFile(p.file)
	if err != nil {
		return nil, err
	}
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }
	dir := &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.AddFS(fstest.MapFS{
		"etc":           dir,
		"etc/group":     file("root:x:0:\nspindle:x:65532:\n"),
		"etc/passwd":    file("root:x:0:0:root:/:/sbin/nologin\nspindle:x:65532:65532:spindle:/:/sbin/nologin\n"),
		"etc/ssl":       dir,
		"etc/ssl/certs": dir,
		certificates:    file(roots()),
		"spindle":       {Data: text, Mode: 0o755},
		"tmp":           {Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}); err != nil {
		return nil, err
	}
	err = w.Close()
	return archive.Bytes(), err
}

// roots returns Mozilla's root certificates in PEM format. It omits roots that are trusted only under conditions that
// the format can't express.
func roots() string {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // writing to a bytes.Buffer does not fail
		}
	}
	return text.String()
}
