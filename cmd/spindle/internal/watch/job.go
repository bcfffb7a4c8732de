package watch

import (
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/spindle-lock/spindle/internal/table"
)

// A job is an action on one term of a lock, from the key press to the result.
type job struct {
	Action
	name, label string
	token       table.Token
	began       time.Time
	doing       bool // the user has confirmed it
	yes         func(context.Context) (string, error)
	ctx         context.Context
	stop        context.CancelFunc
}

// Each step of a job sends one of these messages when it finishes. The model ignores messages from any job but the current
// one, because the user has abandoned all the others.
type (
	asked struct {
		job *job
		Question
		err error
	}
	done struct {
		job    *job
		result string
		err    error
	}
)

// begin starts the action of a key, on the row whose details are shown or otherwise on the chosen row.
func (m Model) begin(key string) (Model, tea.Cmd) {
	row := m.chosen()
	if m.subject != nil {
		row = m.subject
	}
	for _, a := range m.Actions {
		switch {
		case a.Key != key || row == nil:
			continue
		case m.job != nil:
			return m.show(result, m.job.busy()), nil
		}
		ctx, stop := context.WithCancel(m.ctx)
		j := &job{Action: a, name: row.Name, label: row.Label, token: row.Token, began: m.now, ctx: ctx, stop: stop}
		m.job = j
		return m, func() tea.Msg {
			question, err := j.Ask(j.ctx, j.name, j.token)
			return asked{j, question, err}
		}
	}
	return m, nil
}

// confirm starts the action that the user has confirmed.
func (m Model) confirm() (Model, tea.Cmd) {
	j := *m.job
	j.doing, j.began = true, m.now
	m.job = &j
	return m.show(listing, ""), func() tea.Msg {
		text, err := j.yes(j.ctx)
		return done{&j, text, err}
	}
}

// hear handles a message from a job.
func (m Model) hear(msg tea.Msg) (Model, tea.Cmd) {
	switch msg := msg.(type) {
	case asked:
		switch {
		case msg.job != m.job:
		case msg.err != nil:
			m.job = nil
			return m.show(result, msg.err.Error()), nil
		default:
			j := *msg.job
			j.yes = msg.Yes
			m.job = &j
			return m.show(asking, msg.Text), nil
		}
	case done:
		if msg.job == m.job {
			m.job = nil
			text := msg.result
			if msg.err != nil {
				text = msg.err.Error()
			}
			if m.mode == filtering {
				m.late = text
				return m, nil
			}
			return m.show(result, text), nil
		}
	}
	return m, nil
}

// forgetQuestion gives up an action that the user has not confirmed yet.
func (m Model) forgetQuestion() Model {
	if m.job != nil && !m.job.doing {
		m.job.stop()
		m.job = nil
	}
	return m
}

// giveUp stops waiting for a job. A request that was sent to Spanner may still take effect.
func (m Model) giveUp() Model {
	j := m.job
	j.stop()
	m.job = nil
	if j.doing {
		return m.show(result, j.unknown())
	}
	return m
}

func (j *job) busy() string {
	return fmt.Sprintf("The %s of %s is still in progress. Wait for it, or press Esc to give up.", j.Name, j.label)
}

func (j *job) unknown() string {
	return fmt.Sprintf("The outcome of the %s of %s, token %v, is unknown. The request may still take effect.", j.Name, j.label, j.token)
}

// progress describes what a job is waiting for.
func (j *job) progress(now time.Time) string {
	what := "reading %s before its %s"
	if j.doing {
		what = "%s: waiting for its %s"
	}
	return fmt.Sprintf(what+", for %s; Esc gives up", j.label, j.Name, seconds(now.Sub(j.began)))
}

// unfinished describes the action that is still in progress when the user quits, or returns "" if there is none.
func (m Model) unfinished() string {
	if m.job == nil || !m.job.doing {
		return ""
	}
	return m.job.unknown()
}
