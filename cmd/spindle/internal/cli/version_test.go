package cli

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheVersionSaysWhatWasBuilt(t *testing.T) {
	on := "\n  go1.26.0 for " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	info := &debug.BuildInfo{GoVersion: "go1.26.0"}
	assert.Equal(t, "spindle (unknown)"+on, versionOf(info).String())

	info.Main.Version = "v1.2.3"
	assert.Equal(t, "spindle v1.2.3"+on, versionOf(info).String(), "go install of a release knows no revision")

	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "1c2e69b"}, {Key: "vcs.time", Value: "2026-11-21T13:55:42Z"}, {Key: "vcs.modified", Value: "false"}}
	assert.Equal(t, "spindle v1.2.3\n  revision 1c2e69b of 2026-11-21T13:55:42Z"+on, versionOf(info).String())

	info.Settings[2].Value = "true"
	assert.Contains(t, versionOf(info).String(), "2026-11-21T13:55:42Z, with uncommitted changes\n")
}
