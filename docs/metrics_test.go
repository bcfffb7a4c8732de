package docs

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryMetricIsInTheDocuments: docs/monitoring.md lists every metric, for users who write alerts, and every alert.
func TestEveryMetricIsInTheDocuments(t *testing.T) {
	monitoring, err := os.ReadFile("monitoring.md")
	require.NoError(t, err)
	for file, name := range map[string]string{
		"../cmd/spindle/internal/serve/metrics.go":    `"(spindle_\w+)"`,
		"../cmd/spindle/internal/health/collector.go": `"(spindle_\w+)"`,
		"../internal/telemetry/instruments.go":        `\("(spindle\.[a-z.]+)"`,
		"../group/metrics.go":                         `\("(spindle\.[a-z.]+)"`,
		"../deploy/prometheus/alerts.yaml":            `- alert: (\w+)`,
	} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		names := regexp.MustCompile(name).FindAllStringSubmatch(string(source), -1)
		assert.NotEmpty(t, names, file)
		for _, n := range names {
			assert.Contains(t, string(monitoring), "`"+n[1]+"`", "of %s", file)
		}
	}
}
