package cli

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

func newVersion() *cobra.Command {
	var f terminal.Format
	c := &cobra.Command{
		Use:   "version",
		Short: "Show the version of spindle",
		Long: `Version shows the version of spindle, the commit it was built from, and the Go
version it was built with. It does not require a database. With -o json, it also
shows the version of the output schema (see spindle schema).
` + terminal.CommonCodes,
		Example: "  spindle version\n  spindle version -o json | jq -r .version",
		Args:    terminal.Exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := versionOf(buildInfo())
			if f.Objects() {
				return terminal.PrintJSON(os.Stdout, v)
			}
			_, err := fmt.Print(v)
			return err
		},
	}
	f.Flag(c.Flags())
	return c
}

// A versionJSON identifies this build of spindle, from the information that the go command recorded.
type versionJSON struct {
	Version  string `json:"version"`                                   // the version of the module
	Revision string `json:"revision,omitempty"`                        // the commit
	At       string `json:"revision_time,omitempty"`                   // when the commit was made
	Modified bool   `json:"modified"`                                  // the tree had uncommitted changes
	Go       string `json:"go"`                                        // the version of Go
	OS       string `json:"os"`                                        // as Go names it
	Arch     string `json:"arch"`                                      // as Go names it
	Schema   string `json:"schema" schema:"pattern=^[0-9]+\\.[0-9]+$"` // the version of this schema
}

func versionOf(info *debug.BuildInfo) versionJSON {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	return versionJSON{cmp.Or(info.Main.Version, "(unknown)"), settings["vcs.revision"], settings["vcs.time"], settings["vcs.modified"] == "true",
		info.GoVersion, runtime.GOOS, runtime.GOARCH, schemaVersion}
}

// String formats the version for people.
func (v versionJSON) String() string {
	text := ""
	if v.Revision != "" {
		text = "\n  revision " + v.Revision
		if v.At != "" {
			text += " of " + v.At
		}
		if v.Modified {
			text += ", with uncommitted changes"
		}
	}
	return fmt.Sprintf("spindle %s%s\n  %s for %s/%s\n", v.Version, text, v.Go, v.OS, v.Arch)
}

// buildInfo returns the build information. For a program that was not built as a module, it has only the version of Go.
func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return &debug.BuildInfo{GoVersion: runtime.Version()}
}
