//go:build mutants

package mutants

const (
	watchJobGo    = "cmd/spindle/internal/watch/job.go"
	watchKeysGo   = "cmd/spindle/internal/watch/keys.go"
	watchModelGo  = "cmd/spindle/internal/watch/model.go"
	watchOrderGo  = "cmd/spindle/internal/watch/order.go"
	watchReaderGo = "cmd/spindle/internal/watch/reader.go"
	watchViewGo   = "cmd/spindle/internal/watch/view.go"
)

var watchMutants = of("./cmd/spindle/internal/watch",
	one("an old read looks like the present", "TestAnOutageIsSaidAndNothingIsMadeUpFromOldReads", watchViewGo,
		"\tif m.stale() {\n\t\ts = terminal.Faint\n", "\tif false {\n\t\ts = terminal.Faint\n"),
	one("a read that hangs is not noticed", "TestAnOutageIsSaidAndNothingIsMadeUpFromOldReads", watchViewGo,
		"!m.reading.IsZero() && passed(m.reading, m.now) >= suspicion", "false"),
	one("the cursor stays on its line", "TestTheChosenLockStaysChosenWhereverItGoes", watchModelGo,
		"if i := m.index(m.selected); i >= 0 {", "if i := m.index(m.selected); i >= 1<<30 {"),
	one("new trouble is above the screen", "TestAtTheTopTheCursorStaysThere", watchKeysGo,
		"case \"home\", \"g\":\n\t\treturn 0, true", "case \"home\", \"g\":\n\t\treturn 1, true"),
	one("released locks are listed", "TestTroubleIsFirstAndReleasedLocksAreHiddenAndCounted", watchModelGo,
		"if m.showIdle {\n\t\tm.rows", "if true {\n\t\tm.rows"),
	one("a holder that is late is as any other", "TestTheOrderOfTrouble", watchOrderGo,
		"if r.late() {", "if false {"),
	one("a question that was given up is asked", "TestAKeyBeforeTheQuestionIsNoAnswer", watchJobGo,
		"case msg.job != m.job:\n", "case false:\n"),
	one("every key is yes", "TestEveryOtherKeyThanYesIsNo", watchKeysGo,
		"if m.mode == asking && key == \"y\" {", "if m.mode == asking {"),
	one("a result comes while somebody types", "TestAResultWaitsForTheFilter", watchJobGo,
		"if m.mode == filtering {", "if false {"),
	one("two actions at a time", "TestOneActionAtATime", watchJobGo,
		"case m.job != nil:\n", "case false:\n"),
	one("a read without a time limit", "TestAReadHasATimeLimit", watchReaderGo,
		"context.WithTimeout(ctx, r.Limit)\n\t\ts, err", "context.WithTimeout(ctx, time.Hour)\n\t\ts, err"),
	one("one slow read puts the next one off", "TestOneSlowReadPutsNothingOff", watchReaderGo,
		"share*min(took, before)", "share*max(took, before)"),
	one("a large table is read all the time", "TestALargeTableIsReadAFifthOfTheTime", watchReaderGo,
		"min(share*min(took, before), longestPause)", "min(took, before)"),
)
