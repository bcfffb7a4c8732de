//go:build unix && prometheus

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryQueryOfTheDashboardIsAnswered scrapes the demo with a real Prometheus, and asks it all that the dashboard asks.
// A program beside it reports its own locks, and has a group, which the demo has not. Prometheus loads the alert rules too.
func TestEveryQueryOfTheDashboardIsAnswered(t *testing.T) {
	demo := start(t, []string{"SPINDLE_DB=", "SPANNER_EMULATOR_HOST="}, "spindle", "demo", "--serve=127.0.0.1:0")
	page, err := url.Parse(demo.says(`The page is at (http://\S+)`))
	require.NoError(t, err)
	library, db := libraryMetrics(t)
	serve := start(t, []string{"SPINDLE_DB=" + db.Path, "SPANNER_EMULATOR_HOST=" + db.Host}, "spindle", "serve", "--table", db.Table, "--listen", "127.0.0.1:0")
	groups, err := url.Parse(serve.says(`is shown at (http://\S+)`))
	require.NoError(t, err)
	prometheus := startPrometheus(t, []string{page.Host, library, groups.Host})
	began := time.Now()
	demo.says("The page stays available until")
	require.Eventually(t, func() bool {
		return len(prometheus.ask(t, `changes(spindle_table_up[10s]) == 0`, began)) > 0
	}, 30*time.Second, 200*time.Millisecond)

	for _, query := range queriesOf(t, "../../deploy/grafana/dashboard.json") {
		answer := prometheus.ask(t, query, began)
		for late := time.Now().Add(30 * time.Second); len(answer) == 0 && time.Now().Before(late); time.Sleep(200 * time.Millisecond) {
			answer = prometheus.ask(t, query, began) // the program beside the demo goes on
		}
		assert.NotEmpty(t, answer, "nothing answers %s", query)
	}
	assert.NotEmpty(t, prometheus.ask(t, `spindle_lock_changes_total{lock="backup"} >= 4`, began), "the demo's failovers are counted")

	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	require.Eventually(t, func() bool {
		prometheus.get(t, "/api/v1/rules", nil, &rules)
		for _, g := range rules.Data.Groups {
			for _, r := range g.Rules {
				if r.Health != "ok" {
					return false
				}
			}
		}
		return len(rules.Data.Groups) == 2
	}, 30*time.Second, 200*time.Millisecond, "the alert rules can be evaluated: %+v", rules)
}

type promServer struct{ base string }

func startPrometheus(t *testing.T, targets []string) *promServer {
	dir := t.TempDir()
	rules, err := filepath.Abs("../../deploy/prometheus/alerts.yaml")
	require.NoError(t, err)
	list, _ := json.Marshal(targets)
	config := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 1s}\nrule_files: [%s]\nscrape_configs: [{job_name: demo, static_configs: [{targets: %s}]}]\n", rules, list)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644))
	address := freeAddress(t)
	start(t, nil, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	p := &promServer{"http://" + address}
	require.Eventually(t, func() bool {
		response, err := http.Get(p.base + "/-/ready")
		if err == nil {
			_ = response.Body.Close()
		}
		return err == nil && response.StatusCode == http.StatusOK
	}, 30*time.Second, 50*time.Millisecond)
	return p
}

func (p *promServer) get(t *testing.T, path string, query url.Values, into any) {
	response, err := http.Get(p.base + path + "?" + query.Encode())
	require.NoError(t, err)
	defer response.Body.Close()
	require.NoError(t, json.NewDecoder(response.Body).Decode(into))
}

// ask returns what answers a query since then.
func (p *promServer) ask(t *testing.T, query string, since time.Time) []any {
	var answer struct {
		Status, Error string
		Data          struct{ Result []any }
	}
	at := func(t time.Time) string { return fmt.Sprintf("%.3f", float64(t.UnixMilli())/1000) }
	p.get(t, "/api/v1/query_range", url.Values{"query": {query}, "start": {at(since)}, "end": {at(time.Now())}, "step": {"0.5"}}, &answer)
	require.Equal(t, "success", answer.Status, "%s: %s", query, answer.Error)
	return answer.Data.Result
}

// queriesOf are the queries of a dashboard's panels and variables, as Grafana asks them.
func queriesOf(t *testing.T, path string) (all []string) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Query json.RawMessage
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	as := strings.NewReplacer("$table", ".*", "$lock", ".*", "$__rate_interval", "5s")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, as.Replace(target.Expr))
		}
	}
	labels := regexp.MustCompile(`label_values\((.*), \w+\)`)
	for _, v := range dashboard.Templating.List {
		var q struct{ Query string }
		if json.Unmarshal(v.Query, &q) == nil {
			all = append(all, as.Replace(labels.FindStringSubmatch(q.Query)[1]))
		}
	}
	require.Greater(t, len(all), 20)
	return all
}
