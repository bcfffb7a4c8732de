package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Run shows the table until the user quits, a signal arrives or ctx ends. If the first read fails fatally, Run returns
// its error. Otherwise, unfinished describes the action that was in progress when the user quit, and is "" if there was
// none.
func Run(ctx context.Context, t *Table, options ...tea.ProgramOption) (unfinished string, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wake := make(chan struct{}, 1)
	m := newModel(ctx, t, wake)
	m.suspends = canSuspend()
	p := tea.NewProgram(m, append(options, tea.WithContext(ctx))...)
	r := &reader{t, p.Send, wake}
	var running sync.WaitGroup
	running.Go(func() { r.read(ctx) })
	if t.Released != nil {
		running.Go(func() { r.readReleased(ctx) })
	}
	last, err := p.Run()
	stop()
	running.Wait()
	if errors.Is(err, tea.ErrInterrupted) || errors.Is(err, context.Canceled) {
		err = nil
	}
	if m, ok := last.(Model); ok {
		return m.unfinished(), errors.Join(m.fatal, err)
	}
	return "", err
}

const tick = 250 * time.Millisecond

type now time.Time

// ticks sends the model the time.
func ticks() tea.Cmd { return tea.Tick(tick, func(t time.Time) tea.Msg { return now(t) }) }
