//go:build mutants

package mutants

// mutant is a change of the source that must break an invariant of the simulation (see
// verify/simulation/check_test.go).
type mutant struct {
	name   string
	breaks string
	edits  []edit
}

// edit replaces a text that occurs exactly once, in the body of one function. Outside of function bodies, it can only
// add text (an import, a field), which is then present for all mutants.
type edit struct{ file, old, new string }

const (
	claimGo     = "internal/table/claim.go"
	holdGo      = "internal/table/hold.go"
	observeGo   = "internal/table/observe.go"
	spannerGo   = "internal/table/spanner.go"
	candidateGo = "internal/elect/candidate.go"
	observerGo  = "internal/elect/observer.go"
	pastGo      = "internal/elect/yield.go"
	coolDownGo  = "internal/elect/yield.go"
	historyGo   = "internal/elect/history.go"
	electGo     = "internal/elect/claim.go"
	clockGo     = "internal/elect/clock.go"
	termGo      = "internal/elect/term.go"
	keepGo      = "internal/elect/keep.go"
	gateGo      = "internal/elect/gate.go"
	releaseGo   = "internal/elect/end.go"
	announceGo  = "internal/elect/end.go"
	runGo       = "run.go"
	leadGo      = "leader.go"
	linkGo      = "verify/simulation/link_test.go"

	courseGo        = "course.go"
	electHandoverGo = "internal/elect/handover.go"
	tableReleaseGo  = "internal/table/release.go"
	preferenceGo    = "internal/elect/yield.go"
	optionsGo       = "internal/options/options.go"
	tableGo         = "internal/table/table.go"
)

func one(name, breaks, file, old, new string) mutant {
	return mutant{name, breaks, []edit{{file, old, new}}}
}

var mutants = []mutant{
	// The steps on the table.
	one("heartbeat without the lease row check", "one holder", holdGo,
		"return t.under(ctx, \"heartbeat\", token, names, mark(ColHeartbeat, Now))",
		"var all []Write\n\tfor _, name := range names {\n\t\tall = append(all, mark(ColHeartbeat, Now)(LeaseRef{name, token})...)\n\t}\n\treturn t.Store.Commit(ctx, \"heartbeat\", all)"),
	one("required lease is the lock row", "one holder", holdGo,
		"\treturn Write{Kind: Update, Name: LeaseKey(name, token)}\n", "\treturn Write{Kind: Update, Name: name}\n"),
	one("release that does not check", "one holder", tableReleaseGo,
		"return t.under(ctx, step, token, names, release, also...)",
		"var all []Write\n\tfor _, name := range names {\n\t\tall = append(all, release(LeaseRef{name, token})...)\n\t}\n\treturn t.Store.Commit(ctx, step, append(all, also...))"),
	one("release that leaves the lease row", "rows", tableReleaseGo,
		"[]Write{{Kind: Delete, Name: h.Key()}, {Kind: Update", "[]Write{{Kind: Update"),
	one("claim without comparing the heartbeat", "one holder", claimGo,
		" || !row.Heartbeat.Equal(o.Heartbeat) {", " {"),
	one("claim that leaves the old lease row", "fence", claimGo,
		"\t\twrites = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, o.Token)})\n", ""),
	one("claim that leaves orphanLeases", "fence", claimGo,
		"\t\twrites = append(writes, Write{Kind: Delete, Name: LeaseKey(o.Name, token)})\n", "\t\t_ = token\n"),
	one("claim over orphanLeases that nobody waited for", "one holder", claimGo,
		"return !slices.Contains(o.Orphans, tokenOf(lease.Name)) })", "return false && lease.Name == \"\" })"),
	one("confirm without the token check", "rows", claimGo,
		"return TokenAt(row.Token) == token && row", "return row"),
	one("withdrawal of another's claim", "rows", claimGo,
		"TokenAt(row.Token) == token && !row.Heartbeat.IsZero()", "!row.Heartbeat.IsZero()"),
	one("withdrawal that leaves the lease row", "rows", claimGo,
		"[]Write{{Kind: Delete, Name: LeaseKey(name, token)}, {Kind: Update", "[]Write{{Kind: Update"),
	one("orphanLeases of a later instant than the absence", "one holder", observerGo,
		"return on.LookAtLeases(ctx, observed[0].At, c.Names...)", "at := observed[0].At\n\t\tif observed, err = on.LookAtLeases(ctx, at, c.Names...); err == nil {\n\t\t\tobserved[0].At = at\n\t\t}\n\t\treturn observed, err"),

	// The fence.
	one("fence on the lock row", "fence", spannerGo,
		"return s.mutation(requireLease(name, token))", "return s.mutation(Write{Kind: Update, Name: name})"),
	one("fence that deletes", "fence", spannerGo,
		"return s.mutation(requireLease(name, token))", "return s.mutation(Write{Kind: Delete, Name: LeaseKey(name, token)})"),
	one("fence that only reads", "fence", linkGo,
		"\tp.rpc(ctx, \"fenced write\", true, func() reply {\n", `
	if valid, err := (table.Table{Store: link{p}}).Valid(ctx, table.Token(token), lockName); !valid || err != nil {
		return
	}
	writes = writes[1:]
	p.rpc(ctx, "fenced write", true, func() reply {
`),

	// The candidate.
	one("own lease instead of the holder's", "one holder", historyGo,
		"o.Token, o.LeaseRecord, o.LeaseRecord.Lease", "o.Token, o.LeaseRecord, r.lease"),
	one("record of an earlier holder", "one holder", historyGo,
		"if h.holder != token {", "if h.record == nil {"),
	one("expiry by the local clock", "one holder", candidateGo,
		"free := h.freeIn(o, rules)\n", "free := h.freeIn(o, rules) + o.At.Sub(time.Unix(0, c.Clock.Now().Wall))\n"),
	one("own token rule for every token", "one holder", historyGo,
		"case o.Token == r.own && r.own != 0 &&", "case r.own != 0 &&"),
	one("reclaim of everybody's", "one holder", historyGo,
		"case r.reclaim && o.Holder() == r.id:", "case r.reclaim:"),
	one("absence believed at once", "one holder", historyGo,
		"case !o.Exists && h.assumedLease == 0:", "case !o.Exists:"),
	one("holder that was seen forgotten with its rows", "one holder", historyGo,
		"\t\th.absent, h.orphanLeases = o.At, o.OrphanLeases\n", "\t\th.absent, h.orphanLeases, h.assumedLease = o.At, o.OrphanLeases, 0\n"),
	one("absence not forgotten once there is a row", "one holder", historyGo,
		"\th.absent = time.Time{}\n", ""),
	one("orphan leases ignored", "one holder", historyGo,
		"\t\t\th.assumedLease = max(h.assumedLease, p.Lease)\n", "\t\t\t_ = p\n"),
	one("lock delay not waited for", "claim after expiry", historyGo,
		"return o.Heartbeat.Add(h.assumedLease + r.delay + h.priorityDelay(r))", "return o.Heartbeat.Add(h.assumedLease)"),
	one("bare claim never superseded", "a holder again", historyGo,
		"return o.Heartbeat.Add(r.lease).Sub(o.At) //", "return r.lease //"),
	one("bare claim that fails never given up", "a holder again", electGo,
		"\t\t\tc.withdraw(running, token, err)\n", "\t\t\tc.past.own, c.past.names = token, c.names\n"),
	one("confirmation of unknown outcome believed", "one holder", electGo,
		"\t\tcase err == nil:\n\t\t\treturn sent, nil\n", "\t\tcase !First(err):\n\t\t\treturn sent, nil\n"),
	one("first deadline counted from the reply", "one holder", electGo,
		"\tsent, err := c.confirm(ctx, token)\n", "\tsent, err := c.confirm(ctx, token)\n\tsent = c.Clock.Now()\n"),
	one("expiry judged by a strong read", "a holder again", tableGo,
		"rows, at, err := t.Store.Read(ctx, step, bound, keys)", "rows, at, err := t.Store.Read(ctx, step, Strong, keys)"),

	// The holder.
	one("deadline counted from the reply", "one holder", termGo,
		"\tnow := t.clock.Now()\n\textended = ", "\tnow := t.clock.Now()\n\tsent = now\n\textended = "),
	one("no allowance for the rate of the clock", "one holder", termGo,
		"return lease - lease/100 }", "return lease }"),
	one("wall clock only", "one holder", clockGo,
		"max(i.Wall-start.Wall, i.Mono-start.Mono)", "i.Wall-start.Wall"),
	one("monotonic clock only", "one holder", clockGo,
		"max(i.Wall-start.Wall, i.Mono-start.Mono)", "i.Mono-start.Mono"),
	one("failed heartbeat counted as acknowledged", "one holder", keepGo,
		"\tif a.err != nil {\n\t\twas, goesOn := k.endanger(a.err)", "\tif errors.Is(a.err, context.Canceled) {\n\t\twas, goesOn := k.endanger(a.err)"),
	{"term revived after its end", "no revival", []edit{
		{termGo, "func() { t.End(t.standing.Load().expired()) }", "func() { t.work.cancel(ErrExpired) }"},
		{termGo, "if t.left(s, now) <= 0 || !t.deadline.Stop() {", "if t.deadline.Stop(); false {"},
	}},
	{"held while it is released", "one holder", []edit{
		{leadGo, "\te.lock.show(view{})\n", ""},
		{termGo, "\tif t.advance(ended) {\n", "\tif t.advance(draining) {\n"},
	}},
	one("work told of the end late", "ctx ends", termGo,
		"\tt.work = within(t.over)\n", "\tt.work = within(ctx)\n\tcontext.AfterFunc(t.over, func() { time.AfterFunc(2*t.lease, func() { t.work.cancel(context.Cause(t.over)) }) })\n"),
	one("release before the leader function has returned", "work first", leadGo,
		"\tc.Lead(", "\tl.events.Put(event{what: returned})\n\tc.Lead("),
	one("next term does not wait for the leader function", "one leader function", courseGo,
		"\t\tif c.idle {\n\t\t\treturn c.end(lose)", "\t\tif true {\n\t\t\treturn c.end(lose)"),

	// Handovers.
	one("announcement without the lease row check", "rows", holdGo,
		"return t.under(ctx, \"announce\", token, names, mark(ColWriter, nil))",
		"var all []Write\n\tfor _, name := range names {\n\t\tall = append(all, mark(ColWriter, nil)(LeaseRef{name, token})...)\n\t}\n\treturn t.Store.Commit(ctx, \"announce\", all)"),
	one("successor named without the lease row check", "rows", holdGo,
		"return t.under(ctx, \"succeed\", token, []string{name}, mark(ColWriter, succeeds+id))",
		"return t.Store.Commit(ctx, \"succeed\", mark(ColWriter, succeeds+id)(LeaseRef{name, token}))"),
	{"heartbeat that writes the mark away", "rows", []edit{
		{tableGo, "\tStore Store\n", "\tStore Store\n\tID    string\n"},
		{optionsGo, "\t\tTable: t, Clock", "\t\tTable: table.Table{Store: t.Store, ID: c.ID}, Clock"},
		{holdGo, "names, mark(ColHeartbeat, Now))", "names, func(h LeaseRef) []Write { return append(mark(ColHeartbeat, Now)(h), mark(ColWriter, t.ID)(h)...) })"},
	}},
	one("request that names the lock", "rows", holdGo,
		"Name: h.Key(), Set: []Cell{{string(r), nil}}", "Name: h.Name, Set: []Cell{{string(r), nil}}"),
	one("release of a handover before the work has returned", "work first", courseGo,
		"\tif c.idle {\n\t\treturn c.end(cancelWork, release)", "\tif true {\n\t\treturn c.end(cancelWork, release)"),
	one("who stepped down may claim at once", "others first", coolDownGo,
		"PauseFor(c.Clock, length), true", "PauseFor(c.Clock, 0*length), true"),
	one("who does not know of its release may claim at once", "others first", coolDownGo,
		"\tif released {\n\t\tlength /= 3\n", "\tif length /= 3; !released {\n\t\tlength = 0\n"),
	one("holder that goes without waiting for its followers", "works on", announceGo,
		"\t\t\tk.linger(ctx, k.lease/3+k.clock.Now().Since(sent))\n", "\t\t\t_ = sent\n"),
	one("followers that ignore the announcement", "handover gap", stepGo,
		"latest := min(d.Wait+c.spread(seen), c.watch(seen))", "latest := d.Wait + c.spread(seen)"),
	one("work that is told to stop when Run's ctx ends, in spite of handover", "works on", electGo,
		"return c.begin(running, token", "return c.begin(ctx, token"),
	one("handover that nobody is waited for at the end of Run", "works on", courseGo,
		"before <= leaving && !c.handover {", "before <= leaving {"),
	one("holder that ignores no preference", "preference ends", preferenceGo,
		"\tp.spurned = false\n\treturn p.ignoring\n", "\tp.spurned = false\n\treturn 0 * p.ignoring\n"),
	one("equal priorities that ask", "equals do not ask", preferenceGo,
		"s.LeaseRecord.Rank <= c.LeaseRecord.Rank", "s.LeaseRecord.Rank < c.LeaseRecord.Rank"),
	one("StepDown that returns before the release", "step down", leadGo,
		"\tl.keeper.CancelWork(cause)\n", "\tl.keeper.CancelWork(cause)\n\tl.calls.answer(nil)\n"),
	one("holder that goes on after its announcement", "stop ends", courseGo,
		"\t\tif before == leaving {\n", "\t\tif false {\n"),
	one("requests accepted by everybody", "asked for", leadGo,
		"\tif e.config.Handover {\n\t\tl.keeper.Watch", "\tif true {\n\t\tl.keeper.Watch"),
}
