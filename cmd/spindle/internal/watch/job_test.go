package watch

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spindle-lock/spindle/internal/table"
)

// ops is an action that remembers what it was asked to do.
type ops struct {
	asked, did []string
	refuse     error
	fails      error
	stopped    bool
}

func (o *ops) action() Action {
	return Action{Key: "r", Name: "release", Ask: func(ctx context.Context, name string, token table.Token) (Question, error) {
		o.asked = append(o.asked, name+" "+token.String())
		return Question{"Release " + name + ", which web-1 holds?", func(ctx context.Context) (string, error) {
			o.did = append(o.did, name+" "+token.String())
			o.stopped = ctx.Err() != nil
			return "released " + name, o.fails
		}}, o.refuse
	}}
}

func withOps(t *testing.T) (*display, *ops) {
	x, o := open(t, 80, 24), &ops{}
	x.Table.Actions = []Action{o.action()}
	x.reads(held("a", "web-1", lease), held("b", "web-1", lease))
	x.press("j")
	return x, o
}

// An action is for the lock that was chosen and the term that was on the screen, whatever the screen shows at the answer.
func TestAnActionIsAskedAboutAndActsOnTheTermThatWasOnTheScreen(t *testing.T) {
	x, o := withOps(t)
	x.press("r")
	assert.Equal(t, []string{"b 1763645616123456"}, o.asked)
	assert.Contains(t, x.text(), "reading b before its release, for 0s; Esc gives up")
	x.deliver()
	assert.Contains(t, x.text(), "Release b, which web-1 holds?")
	assert.Contains(t, x.text(), "y: release   any other key: no")
	other := held("b", "web-2", lease)
	other.Token = 7
	x.reads(expired("0", "web-3"), held("a", "web-1", lease), other)
	assert.Contains(t, x.text(), "Release b, which web-1 holds?")
	x.press("y")
	assert.Equal(t, []string{"b 1763645616123456"}, o.did)
	x.pass(3 * time.Second)
	assert.Contains(t, x.text(), "b: waiting for its release, for 3s; Esc gives up")
	x.deliver()
	assert.Contains(t, x.text(), "released b")
	x.press("q")
	assert.False(t, x.quit, "any key goes back")
	assert.Empty(t, x.unfinished())
}

func TestEveryOtherKeyThanYesIsNo(t *testing.T) {
	for _, key := range []string{"n", "q", "enter", "esc", "r", "Y", "ctrl+z"} {
		x, o := withOps(t)
		x.press("r")
		x.deliver()
		x.press(key)
		x.press("y")
		x.deliver()
		if key != "ctrl+z" {
			assert.Empty(t, o.did, key)
		}
	}
}

// Keys that were pressed before the question appeared don't answer it.
func TestAKeyBeforeTheQuestionIsNoAnswer(t *testing.T) {
	x, o := withOps(t)
	x.press("r", "y")
	x.deliver()
	assert.Empty(t, o.did)
	x.press("n")

	x.press("r", "/", "heavy")
	x.deliver()
	assert.Equal(t, "heavy", x.filter, "the question came while a filter was typed: it was given up")
	x.press("y")
	assert.Empty(t, o.did)
}

// A result that comes while somebody types must not turn the rest of the text into keys.
func TestAResultWaitsForTheFilter(t *testing.T) {
	x, o := withOps(t)
	x.press("r")
	x.deliver()
	x.press("y", "/", "w")
	x.deliver()
	x.press("r", "y")
	assert.Equal(t, "wry", x.filter)
	assert.Len(t, o.did, 1)
	x.press("esc")
	assert.Contains(t, x.text(), "released b")
}

func TestARefusalAndAFailureAreShown(t *testing.T) {
	x, o := withOps(t)
	o.refuse = errors.New("nothing was released: a is free")
	x.press("r")
	x.deliver()
	assert.Contains(t, x.text(), "nothing was released: a is free")
	x.press("esc")
	o.refuse, o.fails = nil, errors.New("code = Unavailable\n  the database can't be reached")
	x.press("enter", "r")
	x.deliver()
	x.press("y")
	x.deliver()
	assert.Contains(t, x.text(), "code = Unavailable\n  the database can't be reached")
}

// Nothing that may still happen is left unsaid.
func TestWhoLeavesOrGivesUpIsToldWhatMayStillHappen(t *testing.T) {
	const unknown = "The outcome of the release of b, token 1763645616123456, is unknown; it may still take effect."
	x, _ := withOps(t)
	x.press("r")
	x.deliver()
	assert.Empty(t, x.unfinished(), "nothing was begun")
	x.press("y", "q")
	assert.True(t, x.quit)
	assert.Equal(t, unknown, x.unfinished())

	x, o := withOps(t)
	x.press("r")
	x.deliver()
	x.press("y", "esc")
	said := func() string { return strings.ReplaceAll(x.text(), "\n", " ") }
	assert.Contains(t, said(), unknown)
	x.deliver()
	assert.Contains(t, said(), unknown, "what comes later is not heard")
	assert.False(t, o.stopped)
	x.press("x", "r", "r")
	x.deliver()
	assert.Contains(t, x.text(), "Release b")
}

func TestOneActionAtATime(t *testing.T) {
	x, o := withOps(t)
	x.press("r", "k", "r")
	assert.Len(t, o.asked, 1)
	assert.Contains(t, x.text(), "The release of b is still in progress. Wait for it, or give it up with Esc.")
}
