package doctor

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/internal/table"
)

// verdict is what a check makes of a probe.
func verdict(judge func() string) Verdict {
	e := &exam{made: map[string]Check{}}
	c := e.check(probe{run: func(*exam) string { return judge() }})
	if c.Verdict != OK && c.Found == "" {
		panic("a verdict without a finding")
	}
	return c.Verdict
}

// unlessRefuted is a probe that finds nothing to say.
func unlessRefuted(judge func()) func() string { return func() string { judge(); return "" } }

// failing is a probe whose step fails.
func failing(err error) func() string { return unlessRefuted(func() { must(err) }) }

// A clock is ok only if it is known not to run a hundredth too slow: what could not be measured is not ok.
func TestAClockIsOkIfItIsKnownNotToBeTooSlow(t *testing.T) {
	for _, c := range []struct {
		drift, within float64
		want          Verdict
	}{
		{0, 0, OK}, {0.01, 0, OK}, {0.0101, 0, Failed}, {-0.01, 0, OK}, {-0.0101, 0, Warning},
		{0, 0.0099, OK}, {0, 0.0101, Note}, {0, 1, Note},
		{0.005, 0.0049, OK}, {0.005, 0.0051, Note},
		{-0.005, 0.0099, OK}, {-0.005, 0.0101, Note}, {-0.005, 0.5, Note},
		{0.02, 0.0099, Failed}, {0.02, 0.0101, Note}, {0.05, 0.03, Failed}, {0.05, 0.05, Note},
		{-0.02, 0.0099, Warning}, {-0.02, 0.0101, Note}, {-0.05, 0.03, Warning}, {-0.05, 0.05, Note},
	} {
		assert.Equal(t, c.want, verdict(Clock{Drift: c.drift, Within: c.within}.judge), "%+v", c)
	}
}

// A comparison goes on only as long as its result is open.
func TestAClockIsKnownOnceItsVerdictIsCertain(t *testing.T) {
	for _, c := range []struct {
		drift, within float64
		known         bool
	}{
		{0, 0, true}, {0, 0.0099, true}, {0, 0.0101, false}, {0.005, 0.0051, false}, {-0.005, 0.0101, false},
		{0.02, 0.0099, true}, {0.5, 0.4, true}, {0.5, 0.5, false}, {-0.02, 0.0099, true}, {-0.5, 0.4, true}, {-0.5, 0.5, false},
	} {
		assert.Equal(t, c.known, Clock{Drift: c.drift, Within: c.within}.isKnown(), "%+v", c)
	}
}

func TestTimestampsGrowAndAreStoredAsTheyWereReturned(t *testing.T) {
	last := time.Date(2026, 5, 1, 12, 0, 0, 123456000, time.UTC)
	for _, c := range []struct {
		at, stored time.Duration // after the last
		want       Verdict
	}{
		{time.Microsecond, time.Microsecond, OK}, {time.Second, time.Second, OK},
		{0, 0, Failed}, {-time.Microsecond, -time.Microsecond, Failed}, {-time.Hour, -time.Hour, Failed},
		{time.Microsecond + 1, time.Microsecond + 1, Failed}, {time.Second - 1, time.Second - 1, Failed},
		{time.Microsecond, 2 * time.Microsecond, Failed}, {2 * time.Microsecond, time.Microsecond, Failed}, {time.Microsecond, 0, Failed},
	} {
		assert.Equal(t, c.want, verdict(unlessRefuted(func() { follows(last, last.Add(c.at), last.Add(c.stored)) })), "%+v", c)
	}
	assert.Equal(t, OK, verdict(unlessRefuted(func() { follows(time.Time{}, last, last) })), "the first of all")
}

func TestReadsAdvanceWhileNothingIsWritten(t *testing.T) {
	for _, c := range []struct {
		on, worst       time.Duration
		present, strong Verdict
	}{
		{idle, 0, OK, OK}, {idle / 2, 0, OK, OK}, {time.Hour, 0, OK, OK},
		{idle/2 - 1, 0, Failed, Note}, {0, 0, Failed, Note}, {-idle, 0, Failed, Note},
		{idle, time.Nanosecond, OK, Failed}, {idle, time.Second, OK, Failed}, {idle, time.Second + 1, Warning, Failed},
		{0, time.Minute, Failed, Failed},
	} {
		assert.Equal(t, c.present, verdict(func() string { return advances(c.on, c.worst) }), "present: %+v", c)
		assert.Equal(t, c.strong, verdict(func() string { return isStrong(c.on, c.worst) }), "strong: %+v", c)
	}
}

func TestTokensGrowAndFencedCommitsComeBeforeTheClaimThatSupersedesThem(t *testing.T) {
	for later, want := range map[table.Token]Verdict{-1: Failed, 0: Failed, 1: OK, 1000: OK} {
		assert.Equal(t, want, verdict(unlessRefuted(func() { larger(500, 500+later) })), "a token %d after the first", later)
		assert.Equal(t, want, verdict(unlessRefuted(func() { landedBefore(500+later, 500, 400) })), "a claim %d after a fenced commit", later)
	}
	for _, c := range []struct {
		landed, refused int
		want            Verdict
	}{{0, 0, NotChecked}, {0, 10, NotChecked}, {1, 0, OK}, {1, 10, OK}} {
		assert.Equal(t, c.want, verdict(func() string { return raced(c.landed, c.refused) }), "%+v", c)
	}
}

// What may pass says nothing about an assumption, and is no reason to stop using the database. What may not pass does.
func TestWhatMayPassIsNotCheckedAndNotFailed(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Internal, codes.ResourceExhausted,
		codes.PermissionDenied, codes.Unauthenticated} {
		assert.Equal(t, NotChecked, verdict(failing(status.Error(code, "not now"))), "%v", code)
	}
	for _, code := range []codes.Code{codes.NotFound, codes.FailedPrecondition, codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented, codes.DataLoss} {
		assert.Equal(t, Failed, verdict(failing(status.Error(code, "never"))), "%v", code)
	}
	for _, err := range []error{context.Canceled, context.DeadlineExceeded, errNoCommit, table.ErrAborted, table.ErrNotFound, table.ErrNoTimestamp, // a check of its own
		answer(codes.NotFound, "Transaction not found: 7"), answer(codes.FailedPrecondition, "Invalid transaction ID")} {
		assert.Equal(t, NotChecked, verdict(failing(err)), "%v", err)
	}
	for _, code := range []codes.Code{codes.FailedPrecondition, codes.Unavailable} {
		assert.Equal(t, NotChecked, verdict(unlessRefuted(func() { prepared(0, answer(code, "never")) })), "what only prepares a check says nothing")
	}
	assert.Equal(t, Failed, verdict(failing(errors.New("anything else"))))
	assert.Equal(t, OK, verdict(failing(nil)))
}

// A check is made if those that it needs did not fail. A schema that may not be read is no reason to stop.
func TestACheckWhoseNeedIsNotMetIsNotMade(t *testing.T) {
	for need, met := range map[string]map[Verdict]bool{
		checkTable:      {OK: true, Note: true, Warning: true, NotChecked: true, Failed: false},
		checkTimestamps: {OK: true, Note: true, Warning: true, NotChecked: false, Failed: false},
	} {
		for v, made := range met {
			e := &exam{recorder: &recorder{}, made: map[string]Check{need: {Verdict: v}}}
			missing := e.missing(probe{needs: []string{need}})
			assert.Equal(t, made, missing == "", "%s is %s", need, v)
		}
	}
	for n, made := range map[int]bool{0: true, 1: false} {
		e := &exam{recorder: &recorder{unanswered: n}, made: map[string]Check{}}
		assert.Equal(t, made, e.missing(probe{needs: []string{checkReplies}}) == "", "%d commits without a timestamp", n)
		e = &exam{recorder: &recorder{denied: n}, made: map[string]Check{}}
		assert.Equal(t, made, e.missing(probe{needs: []string{checkPermissions}}) == "", "%d denials", n)
	}
}

func TestRoundTripsAreTheMedianAndTheSlowest(t *testing.T) {
	trips := func(n int) (all []time.Duration) {
		for i := range n {
			all = append(all, time.Duration(n-i)*time.Millisecond)
		}
		return all
	}
	assert.Equal(t, RoundTrip{P50: time.Millisecond, P99: time.Millisecond, N: 1}, roundTripOf(trips(1)))
	assert.Equal(t, RoundTrip{P50: 15 * time.Millisecond, P99: 30 * time.Millisecond, N: 30}, roundTripOf(trips(30)), "the slowest, if there are few")
	assert.Equal(t, RoundTrip{P50: 50 * time.Millisecond, P99: 99 * time.Millisecond, N: 100}, roundTripOf(trips(100)))
}

// The check of replies counts the reply to every commit, even if it comes after the check was made. Otherwise, a client
// that is too old for the database would pass.
func TestALateReplyWithoutATimestampFailsTheCheckOfReplies(t *testing.T) {
	for _, made := range []bool{false, true} {
		for unanswered, want := range []Verdict{OK, Failed, Failed} {
			e := &exam{recorder: &recorder{}, made: map[string]Check{checkPermissions: {Verdict: OK}}}
			if made {
				e.made[checkReplies] = e.check(probeOf(checkReplies))
			}
			e.unanswered = unanswered
			for _, c := range e.checks() {
				if c.Name == checkReplies {
					assert.Equal(t, want, c.Verdict, "%d replies, made before: %v", unanswered, made)
				}
			}
		}
	}
}

// If several checks could not be made, Run's error names the first: its cause is usually the cause of the others.
func TestTheFirstCheckThatCouldNotBeMadeIsNamed(t *testing.T) {
	e := &exam{recorder: &recorder{}, made: map[string]Check{}}
	for _, name := range []string{"right", "first", "second"} {
		e.check(probe{name: name, run: func(*exam) string {
			if name != "right" {
				must(answer(codes.Unavailable, "an outage of the "+name))
			}
			return ""
		}})
	}
	assert.ErrorContains(t, e.gap, `"first" could not be checked`)
	assert.NotContains(t, e.gap.Error(), "second")
}

// A finding can have its own consequence and advice, which then replace the consequence and the advice of its check.
// Otherwise, doctor would tell a user to repair a correct table when the user should grant a role.
func TestAFindingSaysWhatToDoAboutItself(t *testing.T) {
	e := &exam{recorder: &recorder{}, made: map[string]Check{}}
	for _, v := range []Verdict{Note, Warning, Failed, NotChecked} {
		for _, own := range []finding{{}, {means: "own"}, {do: "own"}, {means: "own", do: "own too"}} {
			own.verdict, own.found = v, "found"
			c := e.check(probe{name: "check", means: "usual", do: "usual too", run: func(*exam) string { panic(stop{&own}) }})
			assert.Equal(t, Check{Name: "check", Verdict: v, Found: "found", Means: cmp.Or(own.means, "usual"), Do: cmp.Or(own.do, "usual too")}, c)
		}
	}
	for err, want := range map[error]Check{
		errors.New("any\nother  error"): {Verdict: Failed, Found: "any other error", Means: "usual", Do: "usual too"},
		table.ErrAborted:                {Verdict: NotChecked, Found: table.ErrAborted.Error()},
		table.ErrNoTimestamp:            {Verdict: NotChecked, Found: table.ErrNoTimestamp.Error()},
	} {
		assert.Equal(t, want, e.check(probe{means: "usual", do: "usual too", run: func(*exam) string { must(err); return "" }}))
	}
}

// The error of a report names each check that failed, and counts them. A program that logs it needs no more.
func TestAReportNamesEachCheckThatFailed(t *testing.T) {
	r := Report{Table: "mylocks"}
	for _, v := range []Verdict{OK, Note, Warning, NotChecked} {
		r.Checks = append(r.Checks, Check{Name: string(v), Verdict: v, Found: "found"})
	}
	assert.NoError(t, r.Err())
	assert.True(t, r.OK())
	r.Checks = append(r.Checks, Check{Name: "a", Verdict: Failed, Found: "x"}, Check{Name: "b", Verdict: Failed, Found: "y"})
	assert.EqualError(t, r.Err(), "doctor: 2 of 6 checks failed on table mylocks: a: x\nb: y")
	assert.False(t, r.OK())
}
