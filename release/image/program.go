package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// command is the package that each program is built from.
const command = "github.com/spindle-lock/spindle/cmd/spindle"

// A program is a build of the command for one platform.
type program struct {
	release
	file     string
	platform v1.Platform
}

// A release is what all programs of an image have in common.
type release struct {
	version  string
	revision string    // the commit
	at       time.Time // of the commit
}

// readPrograms reads the build information of the files. They must be builds of one commit, for different platforms.
func readPrograms(files []string) (all []program, err error) {
	seen := map[string]string{}
	for _, file := range files {
		p, err := readProgram(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if other := seen[p.platform.String()]; other != "" {
			return nil, fmt.Errorf("%s and %s are both for %s", other, file, p.platform)
		}
		seen[p.platform.String()] = file
		if len(all) > 0 && p.release != all[0].release {
			return nil, fmt.Errorf("%s is version %s from commit %s, but %s is version %s from commit %s; build all programs from one commit", files[0], all[0].version, all[0].revision, file, p.version, p.revision)
		}
		all = append(all, p)
	}
	return all, nil
}

func readProgram(file string) (program, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return program{}, err
	}
	if info.Path != command {
		return program{}, fmt.Errorf("built from %s instead of %s", info.Path, command)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	switch {
	case settings["GOOS"] != "linux":
		return program{}, fmt.Errorf("built for %s instead of linux", settings["GOOS"])
	case settings["CGO_ENABLED"] != "0":
		return program{}, errors.New("built without CGO_ENABLED=0: the image has no C library")
	case settings["vcs.revision"] == "":
		return program{}, errors.New("built without -buildvcs=true: the image needs the commit and its time")
	}
	at, err := time.Parse(time.RFC3339, settings["vcs.time"])
	if err != nil {
		return program{}, err
	}
	return program{
		release:  release{info.Main.Version, settings["vcs.revision"], at.UTC()},
		file:     file,
		platform: v1.Platform{OS: "linux", Architecture: settings["GOARCH"]},
	}, nil
}
