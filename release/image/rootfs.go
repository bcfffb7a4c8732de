package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"os"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the account that the image runs as. It is a number because Kubernetes can't tell whether a name is root's.
const user = "65532:65532"

// certificates is where Go's crypto/x509 looks first on Linux.
const certificates = "etc/ssl/certs/ca-certificates.crt"

const (
	passwd = "root:x:0:0:root:/:/sbin/nologin\nspindle:x:65532:65532:spindle:/:/sbin/nologin\n"
	groups = "root:x:0:\nspindle:x:65532:\n"
)

// files returns the program and the files that it needs, as a tar archive.
func files(p program) ([]byte, error) {
	text, err := os.ReadFile(p.file)
	if err != nil {
		return nil, err
	}
	return archive(
		entry{name: "etc/", mode: 0o755},
		entry{name: "etc/group", mode: 0o644, text: []byte(groups)},
		entry{name: "etc/passwd", mode: 0o644, text: []byte(passwd)},
		entry{name: "etc/ssl/", mode: 0o755},
		entry{name: "etc/ssl/certs/", mode: 0o755},
		entry{name: certificates, mode: 0o644, text: roots()},
		entry{name: "spindle", mode: 0o755, text: text},
		entry{name: "tmp/", mode: 0o1777},
	)
}

// roots returns Mozilla's root certificates in PEM format. It omits roots that are trusted only under conditions that
// the format can't express.
func roots() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a bytes.Buffer accepts all
		}
	}
	return text.Bytes()
}

// An entry is a file of an archive, or a directory if its name ends in a slash. It belongs to root.
type entry struct {
	name string
	mode int64
	text []byte
}

// archive returns a tar archive. Its files have no times, so that the same files give the same bytes.
func archive(entries ...entry) ([]byte, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.text)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.text); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return text.Bytes(), err
}
