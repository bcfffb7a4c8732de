package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// newIndex returns an index with one image for each program.
func newIndex(programs []program) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range programs {
		image, err := newImage(p)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &p.platform}})
	}
	return mutate.Annotations(index, labels(programs[0].release)).(v1.ImageIndex), nil
}

func newImage(p program) (v1.Image, error) {
	tar, err := files(p)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(tar)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression),
		tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS:           p.platform.OS,
		Architecture: p.platform.Architecture,
		Created:      v1.Time{Time: p.at},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       user,
			Entrypoint: []string{"/spindle"},
			Env:        []string{"PATH=/"}, // so that kubectl exec ... -- spindle ls works
			WorkingDir: "/",
			Labels:     labels(p.release),
		},
	})
	if err != nil {
		return nil, err
	}
	image = mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: p.at}, CreatedBy: "spindle"}, MediaType: types.OCILayer})
}

// labels returns the image's labels. They are annotations that the OCI image specification defines.
func labels(r release) map[string]string {
	const home = "https://github.com/spindle-lock/spindle"
	return map[string]string{
		"org.opencontainers.image.title":         "spindle",
		"org.opencontainers.image.description":   "Leader election and locks on Cloud Spanner",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.source":        home,
		"org.opencontainers.image.documentation": home + "/blob/main/docs/command.md",
		"org.opencontainers.image.version":       r.version,
		"org.opencontainers.image.revision":      r.revision,
		"org.opencontainers.image.created":       r.at.Format(time.RFC3339),
	}
}

// writeLayout writes the index to a directory as an OCI layout, with the version as its name.
func writeLayout(dir string, index v1.ImageIndex, version string) error {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version}))
}
