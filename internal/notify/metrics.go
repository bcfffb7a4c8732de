package notify

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/spindle-lock/spindle/internal/telemetry"
)

// counters count a Notifier's messages.
type counters struct {
	sent, received metric.Int64Counter
	vain           metric.Int64Counter // polls that messages caused and that found nothing new
}

// fate is the outcome of a received message. If several waiters and holders have handled the message, the largest value
// counts.
type fate int

const (
	flooded   fate = iota // dropped because too many messages arrived
	malformed             // not in the format of this version
	unknown               // about a lock that is not known here
	unsigned              // not signed with the key of anybody who is known here
	stale                 // signed, but older than what is known
	valid
	fates
)

var (
	ofKinds = [kinds]metric.MeasurementOption{waiting: of("kind", "waiting"), heard: of("kind", "heard"), gone: of("kind", "gone"),
		leaving: of("kind", "leaving"), free: of("kind", "free"), taken: of("kind", "taken")}
	ofFates = [fates]metric.MeasurementOption{flooded: of("result", "flooded"), malformed: of("result", "malformed"),
		unknown: of("result", "unknown"), unsigned: of("result", "unsigned"), stale: of("result", "stale"), valid: of("result", "valid")}
)

func of(key, value string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
}

// Report makes a meter count the messages. Only the first call has an effect.
func (n *Notifier) Report(api metric.Meter) {
	n.reported.Do(func() {
		c := counting(api)
		n.do(func() { n.counters = c })
	})
}

func counting(api metric.Meter) counters {
	count := func(name, unit, what string) metric.Int64Counter {
		return telemetry.Made(api.Int64Counter("spindle.notifications."+name, metric.WithDescription(what), metric.WithUnit(unit)))
	}
	return counters{
		sent:     count("sent", "{message}", "Notifications that were sent, by kind."),
		received: count("received", "{message}", "Notifications that were received, by result. All except valid ones were dropped."),
		vain:     count("vain", "{poll}", "Polls that notifications caused and that found nothing new."),
	}
}

// uncounted has the counters that a Notifier uses before Report.
var uncounted = counting(noop.Meter{})

func add(c metric.Int64Counter, of ...metric.AddOption) { c.Add(context.Background(), 1, of...) }
