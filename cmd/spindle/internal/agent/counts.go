package agent

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func newOutcomes() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spindle_agent_holds_ended_total",
		Help: "Holds that ended, by outcome: released, lost, refused, or unknown if the release was not confirmed."}, []string{"outcome"})
	for _, outcome := range []string{"released", "lost", "refused", "unknown"} {
		c.WithLabelValues(outcome)
	}
	return c
}

// metrics answers with all metrics if names is true, and otherwise only with those that do not name locks.
func (a api) metrics(r *http.Request, names bool) answer {
	holds := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spindle_agent_holds",
		Help: "Requests that hold a lock of this agent, or wait for one, by state."}, []string{"state"})
	held := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spindle_agent_held",
		Help: "1 for each lock that a program of this agent holds."}, []string{"spindle_lock"})
	for _, state := range []string{"waiting", "held", "stopping", "orphaned", "releasing"} {
		holds.WithLabelValues(state)
	}
	for _, h := range a.all() {
		j := h.describe()
		if h.status().phase == over {
			continue // the hold ended after it was listed
		}
		holds.WithLabelValues(j.State).Inc()
		for _, name := range j.Names {
			if names && j.Token != 0 {
				held.WithLabelValues(name).Set(1)
			}
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.outcomes, holds, held)
	return page{promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}), r}
}

// fewAtATime limits how many expensive requests a handler serves at a time.
func fewAtATime(h http.Handler) http.Handler {
	const most = 4
	places := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			h.ServeHTTP(w, r)
		default:
			wrong(http.StatusServiceUnavailable, "unavailable", "the agent answers at most %d such requests at a time: try again later", most).write(w)
		}
	})
}
