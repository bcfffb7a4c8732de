package agent

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Clients are written by docs/agent.md, and what it promises is compared from version to version. So it has each
// parameter, and each code in the row of its status.
func TestTheDocumentHasEachParameterAndCode(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/agent.md")
	require.NoError(t, err)
	document := string(text)
	for kind, names := range parameters {
		request := regexp.MustCompile("(?m)^\\| `POST /v1/" + kind + "\\?.*$").FindString(document)
		require.NotEmpty(t, request, kind)
		for _, name := range names {
			assert.Contains(t, request, name+"=", "/v1/%s", kind)
		}
	}
	for _, name := range everyKind[1:] { // the first is the name
		assert.True(t, strings.Contains(document, "\n| `"+name+"` |"), name)
	}

	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	codes := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`wrong\(http\.Status(\w+), "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
			row := regexp.MustCompile(`(?m)^\| ` + strconv.Itoa(statusOf(m[1])) + ` \|.*$`).FindString(document)
			assert.Contains(t, row, "`"+m[2]+"`", "the status %s in %s", m[1], file)
			codes++
		}
	}
	assert.Greater(t, codes, 20)
}

// statusOf returns the status that package net/http calls so.
func statusOf(name string) int {
	for status := 400; status < 600; status++ {
		if strings.ReplaceAll(http.StatusText(status), " ", "") == name {
			return status
		}
	}
	return 0
}
