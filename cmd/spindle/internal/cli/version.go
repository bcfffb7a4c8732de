package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version says which spindle this is, by what the go command noted when it was built.
func version(info *debug.BuildInfo) string {
	name, text := "(unknown)", ""
	if info.Main.Version != "" {
		name = info.Main.Version
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		text = "\n  revision " + revision
		if at := settings["vcs.time"]; at != "" {
			text += " of " + at
		}
		if settings["vcs.modified"] == "true" {
			text += ", with uncommitted changes"
		}
	}
	return fmt.Sprintf("spindle %s%s\n  %s for %s/%s\n", name, text, info.GoVersion, runtime.GOOS, runtime.GOARCH)
}

// buildInfo is empty for a program that was not built as a module.
func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{GoVersion: runtime.Version()}
}
