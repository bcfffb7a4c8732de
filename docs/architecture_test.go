// Package docs holds the documents, and tests that keep them true.
package docs

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/spindle-lock/spindle"

// TestTheMapOfTheRoomsIsTrue compares docs/architecture.md with what the packages import.
func TestTheMapOfTheRoomsIsTrue(t *testing.T) {
	text, err := os.ReadFile("architecture.md")
	require.NoError(t, err)
	allowed := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*\\|([^|]*)\\|$").FindAllStringSubmatch(string(text), -1) {
		rooms := []string{}
		for _, room := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			rooms = append(rooms, room[1])
		}
		allowed[row[1]] = rooms
	}
	list := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", module+"/...")
	out, err := list.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		packages := strings.Fields(line)
		room := roomOf(packages[0])
		if room == "docs" {
			continue
		}
		rooms, known := allowed[room]
		assert.True(t, known, "%s is not on the map: give it a row in docs/architecture.md", room)
		delete(allowed, room)
		for _, imported := range packages[1:] {
			if strings.HasPrefix(imported, module) {
				assert.True(t, slices.Contains(rooms, roomOf(imported)), "%s imports %s, which the map does not allow", room, roomOf(imported))
			}
		}
	}
	assert.Empty(t, allowed, "on the map and not in the project")
}

func roomOf(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}
