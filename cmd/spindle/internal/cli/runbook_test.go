package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Operators copy the commands of the runbook in an emergency: this program must read each of them.
func TestTheCommandsOfTheRunbookAreRead(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/runbook.md")
	require.NoError(t, err)
	commands := regexp.MustCompile(`(?m)^ +(?:\$ )?spindle ([^#|>&\n]+)`).FindAllStringSubmatch(string(text), -1)
	for _, c := range commands {
		t.Run(c[1], func(t *testing.T) { parse(t, strings.Fields(c[1])) })
	}
	assert.Greater(t, len(commands), 12)
}
