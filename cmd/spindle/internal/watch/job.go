package watch

import (
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/spindle-lock/spindle/internal/table"
)

// A job is an action on one term of a lock, from its key to its result.
type job struct {
	Action
	name, label string
	token       table.Token
	began       time.Time
	doing       bool // it was confirmed
	yes         func(context.Context) (string, error)
	ctx         context.Context
	stop        context.CancelFunc
}

// What the steps of a job send. Only the job that is under way is heard: another was given up.
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

// begin begins the action of a key on the chosen row, or on the one whose detail is shown.
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

// confirm does what was asked about.
func (m Model) confirm() (Model, tea.Cmd) {
	j := *m.job
	j.doing, j.began = true, m.now
	m.job = &j
	return m.show(listing, ""), func() tea.Msg {
		text, err := j.yes(j.ctx)
		return done{&j, text, err}
	}
}

// hear takes in how far a job has come.
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

// forgetQuestion gives up an action that is not confirmed yet.
func (m Model) forgetQuestion() Model {
	if m.job != nil && !m.job.doing {
		m.job.stop()
		m.job = nil
	}
	return m
}

// giveUp stops waiting for a job. What Spanner was asked for may still happen.
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
	return fmt.Sprintf("Wait for the %s of %s first, or give it up with Esc.", j.Name, j.label)
}

func (j *job) unknown() string {
	return fmt.Sprintf("It is not known what came of the %s of %s, token %v: it may happen yet.", j.Name, j.label, j.token)
}

// progress says what a job waits for.
func (j *job) progress(now time.Time) string {
	what := "looking at %s before its %s"
	if j.doing {
		what = "%s: waiting for its %s"
	}
	return fmt.Sprintf(what+", for %s; Esc gives up", j.label, j.Name, seconds(now.Sub(j.began)))
}

// unfinished says what is under way when the user leaves.
func (m Model) unfinished() string {
	if m.job == nil || !m.job.doing {
		return ""
	}
	return m.job.unknown()
}
