//go:build mutants

package mutants

const (
	earGo  = "internal/notify/ear.go"
	lineGo = "internal/notify/line.go"
	bookGo = "internal/notify/book.go"
)

var notifyMutants = of("./internal/notify",
	one("a waiter whose holder falls silent sleeps on", "TestAWaiterPollsOnceALeaseWhileItsHolderAnswers", lineGo, "\tl.later(l.untilQuestion())\n\tl.ear.alarm()\n", "\tl.later(l.untilQuestion())\n"),
	one("an answer counts from its arrival", "TestAnAnswerIsAsOldAsItsQuestion", lineGo, "l.hears(l.asked)", "l.hears(l.ear.n.clock.Now())"),
	one("a question that is lost is not asked again", "TestALostQuestionIsAskedAgain", lineGo, "if l.sent <= repeats {", "if l.sent == 0 {"),
	one("a holder in jeopardy answers", "TestAHolderThatMayLoseTheLockDoesNotAnswer", bookGo, "case !p.Alive():", "case false:"),
	one("messages that lead to nothing always count", "TestMessagesThatLeadToNothingAreSoonIgnored", earGo, "l.deaf = true", "l.deaf = false"),
	one("messages are ignored, but the waiter sleeps", "TestMessagesThatLeadToNothingAreSoonIgnored", earGo, "if !l.Held || l.deaf ||", "if !l.Held ||"),
	one("a question about a term that is over is not answered", "TestAQuestionAboutATermThatIsOverIsAnswered", bookGo, "case p.over && m.kind != waiting:", "case p.over:"),
	one("the dead are not passed over", "TestWaitersAreToldInTheOrderOfTheirTickets", bookGo, "if p.lately(e) {\n\t\t\theard++\n\t\t}", "heard++"),
	one("whoever is told keeps it to itself", "TestWaitersAreToldInTheOrderOfTheirTickets", lineGo, "if m.after > 0 {\n\t\t\te.passOn", "if m.after < 0 {\n\t\t\te.passOn"),
	one("who gives up does not say so", "TestWhoHasGoneIsNotNoted", earGo, "if l.Held && l.asked != (elect.Instant{}) {", "if false {"),
	one("followers of one process are one", "TestFollowersOfOneProcessAreNotedApart", earGo, "waiter{nonce: e.nonce}", "waiter{nonce: 1}"),
	one("an old question counts again", "TestWhoHasGoneIsNotNoted", bookGo, "case e != nil && (m.seq < e.seq || m.seq == e.seq && m.kind != gone):", "case false:"),
	one("who has not read the lease row is told under its key", "TestAWaiterThatHasNotReadTheLeaseRowIsToldToo", bookGo, "answer := contact{from, secret, m.flags & byTicket}", "answer := contact{from, p.key, 0}"),
	one("registrations never expire", "TestWaitersAreToldInTheOrderOfTheirTickets", bookGo, "p.n.clock.Now().Since(e.asked) < 2*interval(p.Lease)", "true"),
	one("followers are not told that their leader is leaving", "TestFollowersPollWhileTheirLeaderIsLeaving", bookGo, "p.tell(w, e, message{kind: leaving})", "_, _ = w, e"),
	one("an answer does not say that the leader is leaving", "TestFollowersPollWhileTheirLeaderIsLeaving", bookGo, "said.flags |= handover", ""),
	one("whoever finds a lock free keeps it to itself", "TestWhoFindsALockFreeLeavesItToThoseAhead", earGo, "e.passOn(id, token, ahead)", ""),
	one("whoever finds a lock free takes it before those who sleep", "TestWhoFindsALockFreeLeavesItToThoseAhead", earGo, "wait = min(grace, headStart) - now.Since(e.passed[lock].at)", "wait = 0"),
	one("a waiter leaves a lock to others for longer than it would have paused", "TestNoMessagesKeepAWaiterFromPolling", earGo, "left = min(left, max(-now.Since(l.early), soonest-now.Since(e.polled)))", "left = max(-now.Since(l.early), soonest-now.Since(e.polled))"),
	one("a message makes a waiter poll twice at once", "TestNoMessagesKeepAWaiterFromPolling", earGo, "max(-now.Since(l.early), soonest-now.Since(e.polled))", "-now.Since(l.early)"),
	one("who takes one slot hides the others", "TestASlotThatAnotherHasTakenDoesNotHideTheNextOne", earGo, "l.contact, l.early, l.asked = contact{m.from, l.ownKey(), byTicket}, elect.Instant{}, e.n.clock.Now()", "l.contact, l.asked = contact{m.from, l.ownKey(), byTicket}, e.n.clock.Now()\n\tfor _, other := range e.lines {\n\t\tother.early = elect.Instant{}\n\t}"),
	one("the address that a question came from is not told", "TestWhatLiesBetweenTwoSockets", bookGo, "p.n.twice(m, e.last)", ""),
	one("the announced address is not told", "TestWhatLiesBetweenTwoSockets", bookGo, "e.contact.at, e.last = m.from, answer", "e.last = answer"),
	one("all who ask about a term that is over poll at once", "TestWaitersAreToldInTheOrderOfTheirTickets", bookGo, "said.kind = free; said.ahead >= mostFirst", "said.kind = free; false"),
	one("a waiter asks any number of holders", "TestWhoSleepsOnlyIfFewAreToBeAsked", earGo, "|| len(s.Locks) > mostAsked", ""),
	one("a set sleeps", "TestWhoSleepsOnlyIfFewAreToBeAsked", earGo, "|| e.seen.Ticket.Set ", ""),
	one("a limit that was reached once holds for ever", "TestALimitHoldsInEachPeriodAnew", "internal/notify/notifier.go", "*w = window{began: now}", "w.began = now"),
	one("polls that a true message caused count as in vain", "TestAWaiterThatIsToldTheTruthGoesOnListening", earGo, "if e.told && !news {", "if e.told {"),
	one("a closed Notifier goes on", "TestAfterCloseAProcessIsSilentAndItsWaitersPoll", "internal/notify/notifier.go", "\t\tn.closed = true\n", ""),
	one("each poll asks the holder", "TestHowOftenAWaiterAsksDependsOnItsPlace", earGo, "if l.Held && l.contact.at.IsValid() && l.timer == nil {", "if l.Held && l.contact.at.IsValid() {"),
	one("each copy of a message causes a poll", "TestASecondCopyOfAMessageCausesNoSecondPoll", lineGo, "if l.deaf || l.told && m.token == l.Token {", "if l.deaf {"),
	one("each copy of an announcement causes a poll", "TestASecondCopyOfAMessageCausesNoSecondPoll", lineGo, "\tif !l.leaving {\n", "\tif true {\n"),
	one("a poll without the lease row forgets the holder", "TestAPollThatShowsLessTakesNothingAway", earGo, "if c := contactOf(s.Contact, 0); c != (contact{}) {", "if c := contactOf(s.Contact, 0); true {"),
	one("a poll that shows a handover does not count", "TestAPollThatShowsLessTakesNothingAway", earGo, "l.leaving = l.leaving || s.Leaving", "_ = s.Leaving"),
	one("who is told by another waiter takes the lock before those ahead", "TestAWaiterTellsThoseWhoAreAheadOfItNow", lineGo, "if m.flags&relayed == 0 {\n\t\tl.exempt", "if true {\n\t\tl.exempt"),
	one("those who have left the queue count as ahead", "TestAWaiterTellsThoseWhoAreAheadOfItNow", earGo, "was.Ahead[len(was.Ahead)-int(m.ahead):]", "was.Ahead[:int(m.ahead)]"),
	one("signatures are not checked", "TestForgedAndReflectedMessagesAreDropped", "internal/notify/message.go", "return k != key{} && hmac.Equal(sum[:], b[Size-len(key{}):])", "return hmac.Equal(sum[:], sum[:])"),
)

var restMutants = of("./internal/wait",
	one("a waiter behind sets does not learn that it is first", "TestAWaiterBehindSetsLearnsThatItIsFirst", "internal/wait/place.go",
		"n < half || n < table.MostTickets && q.Beyond() && len(q.Before()) < half {", "n < half {"),
	one("a ticket that is written keeps its place in the gate", "TestEachWriteOfTicketsGivesItsPlaceInTheGateBack", "internal/wait/ticket.go", "\tdefer leave()\n", "\t_ = leave\n"),
	one("a follower rests on after the end of its ctx", "TestARestEndsWithItsCtx", "internal/wait/follower.go", "f.Ear.Sleep(ctx, ", "f.Ear.Sleep(context.WithoutCancel(ctx), "),
	one("a follower takes its own lease for the leader's", "TestAFollowerRestsForTheShorterLease", "internal/wait/follower.go", "lease = min(lease, step.Seen[0].LeaseRecord.Lease)", "_ = step.Seen[0].LeaseRecord.Lease"),
	one("a Notifier stretches an explicit interval", "TestHowLongAFollowerRests", "internal/wait/follower.go", "c.Poll == 0 && ", ""),
	one("a candidate that leaves the lock to others is told first", "TestHowLongAFollowerRests", "internal/wait/follower.go", "rank = table.MaxRank", "_ = table.MaxRank"),
	one("a waiter sleeps past the end of the lease", "TestARestEndsOnceTheLockCanBeFree", "internal/wait/notify.go", "pause, min(long, latest))", "pause, long)"),
	one("the first waiter for a long lease trusts its holder's answers", "TestTheFirstWaiterForALongLeasePollsMoreOften", "internal/wait/notify.go", "lease > time.Minute", "false"),
)

// With notifications, package lock's waiters sleep longer, so that more depends on who tells whom.
var notifiedMutants = of("./lock",
	one("a process that has told everybody passes it on, too", "TestNotifiedWaitersPollSeldomAndClaimAtOnce", earGo, "if id := idOf(e.place, lock); !e.n.told(id, token) {", "if id := idOf(e.place, lock); true {"),
	one("a holder answers until the end of its lease", "TestWaitersPollWhenTheirHolderMayLoseTheLock", "internal/options/options.go", "c.Lease, t.Secure", "c.Lease, t.Held"),
	one("a release tells nobody", "TestNotifiedWaitersPollSeldomAndClaimAtOnce", "lock/held.go", "\th.book.Free(h.record.Key != \"\") // also if the outcome is unknown\n", ""),
	one("who is next for a semaphore sleeps on", "TestSlotsThatAreFreedTogetherAreHandedOutAtOnce", earGo, "l.free(message{token: m.token, flags: relayed})", ""),
	one("a key that is done is told to the next in line only", "TestAllWhoWaitForAKeyLearnAtOnceThatItIsDone", "lock/held.go", "h.book.Free(h.record.Key != \"\")", "h.book.Free(false)"),
	one("nobody is told that a lock is taken", "TestNotifiedWaitersPollSeldomAndClaimAtOnce", bookGo, "if !t.Set {\n\t\t\tp.n.post", "if false {\n\t\t\tp.n.post"),
)
