package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// push pushes the index to the repository, with the version as its tag. It uses the credentials that docker login has
// stored. A published version never changes: push fails if the tag already refers to another image.
func push(ctx context.Context, repository string, index v1.ImageIndex, version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version || module.IsPseudoVersion(version) {
		return fmt.Errorf("%s is not a release: build the programs from a clean checkout of a release tag", version)
	}
	tag, err := name.NewTag(repository + ":" + version)
	if err != nil {
		return err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	switch there, err := remote.Head(tag, options...); {
	case err == nil && there.Digest != digest:
		return fmt.Errorf("%s already exists with another digest (%s instead of %s); publish the change under a new version", tag, there.Digest, digest)
	case err == nil:
		return nil
	case !missing(err):
		return err
	}
	return remote.WriteIndex(tag, index, options...)
}

// missing reports whether the registry lacks what it was asked for. Errors that deny access count too, because some
// registries deny access to a missing repository. If access is really denied, the push then fails.
func missing(err error) bool {
	var e *transport.Error
	return errors.As(err, &e) && slices.Contains([]int{http.StatusNotFound, http.StatusUnauthorized, http.StatusForbidden}, e.StatusCode)
}
