package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// TestEveryAlertLeadsToItsSectionOfTheRunbook: an operator who is alerted gets a link to what to do, and every section
// of the runbook about an alert is about one that exists.
func TestEveryAlertLeadsToItsSectionOfTheRunbook(t *testing.T) {
	runbook, err := os.ReadFile("runbook.md")
	require.NoError(t, err)
	var sections []string
	for _, heading := range regexp.MustCompile(`(?m)^### (Spindle\w+)$`).FindAllStringSubmatch(string(runbook), -1) {
		sections = append(sections, heading[1])
	}

	text, err := os.ReadFile("../deploy/prometheus/alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	var alerts []string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			assert.Equal(t, "https://github.com/spindle-lock/spindle/blob/main/docs/runbook.md#"+strings.ToLower(r.Alert), r.Annotations["runbook_url"])
		}
	}
	assert.NotEmpty(t, alerts)
	assert.ElementsMatch(t, alerts, sections)
	assert.Subset(t, anchors(string(runbook)), lower(alerts))
}

func lower(names []string) (all []string) {
	for _, n := range names {
		all = append(all, strings.ToLower(n))
	}
	return all
}

// TestTheTestsThatTheRunbookNamesExist: each promise of the runbook names the test that keeps it.
func TestTheTestsThatTheRunbookNamesExist(t *testing.T) {
	runbook, err := os.ReadFile("runbook.md")
	require.NoError(t, err)
	named := regexp.MustCompile("\\[`(Test\\w+)`\\]\\((\\S+_test.go)\\)").FindAllStringSubmatch(string(runbook), -1)
	assert.NotEmpty(t, named)
	for _, n := range named {
		source, err := os.ReadFile(n[2])
		require.NoError(t, err)
		assert.Contains(t, string(source), "\nfunc "+n[1]+"(", n[2])
	}
}
