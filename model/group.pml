/*
 * Partitions that live with a member, as a Promela model. See README.md for what it covers; `./check` runs it. A member
 * is a lock, whose own steps are in spindle.pml: here it has a heartbeat, a deadline, and an end.
 *
 * Configuration, by -D:
 *   N=2|3              processes; each is a member of its own slot, again and again, under a new token each time
 *   P=1|2              partitions
 *   L0, L1, L2         leases in ticks
 *   OPERATOR           somebody deletes rows by hand, at any time and any number of times
 *   LIVENESS           with `calm`, after which nothing fails any more
 *   SICK               process 0 beats and looks, but no confirmation of a take of its own is ever applied
 *   NOTHING_LATE       fewer faults, for more members and partitions: what is given up on is lost, no duplicates
 *   STIFF              process 1 beats and looks, but none of its gives and settlements is ever applied
 *   MUTANT_...         one thing broken, see the list below
 *   LIMIT_...          what the protocol does not stand
 *   TOP                only the assertions on what a user sees, and member_gone
 *   ACTS_ONLY          not that one either
 *
 * Faults. All are unlimited in number; none is scheduled, each may happen at any point.
 *   pause        time may pass between any two steps of anybody (tick)
 *   crash        at any point; the process comes back with an empty memory, or never
 *   lost request, lost reply, timeout
 *                the caller may give up on any commit. It stays under way and lands at any later time, or never
 *   duplicates   heartbeats, gives and releases land again, at any later time
 *
 * Abstractions, and why nothing is lost:
 *   terms        a row names a member by slot and token. All terms that are over are alike, so a name is OVER or
 *                the slot: its present term, which is not over. What named that says OVER once the term is. So the
 *                number of terms is not bounded
 *   tokens       of a partition are alike too: the newest, or an old one
 *   observations a process does not keep the rows it saw, but whether it would still find them: obs. Any commit
 *                that writes the row takes that away. A burial goes by a row that is the same for everybody
 *   heartbeat    of a member is one step, which sets its deadline too: no deadline is later than that. One that is
 *                earlier, as time passes before the commit, is the same as one whose reply is lost and a late duplicate
 *   join         is a claim that always succeeds, and a confirmation. What comes between is in spindle.pml
 *   time         as in spindle.pml: ages and time left, up to the longest lease
 *   looks        one step for each partition, which sees the members' rows at the same instant. Several partitions need
 *                not be seen at one
 *   the plan     anything, while faults happen: a process may want and not want a partition at any time. When calm, the
 *                first slot that has a live member by the look has partition 0, and the last one partition 1
 */

#ifndef N
#define N 2
#endif
#ifndef P
#define P 1
#endif
#ifndef L0
#define L0 1
#endif
#ifndef L1
#define L1 1
#endif
#ifndef L2
#define L2 1
#endif
#define lease(i) ((i) == 0 -> L0 : ((i) == 1 -> L1 : L2))

#if N == 3 && L2 > L0 && L2 > L1
#define LMAX L2
#elif L0 > L1
#define LMAX L0
#else
#define LMAX L1
#endif

/* The mutants, and what each breaks:
 *   MUTANT_BURY_IGNORES_HEARTBEAT  burial compares only the token
 *   MUTANT_BURY_TWO_INSTANTS       burial: the age of one read, the heartbeat to compare with of the next
 *   MUTANT_LATE_DEADLINE           a member acts for one tick more
 *   MUTANT_CONFIRM_UNCHECKED       confirm: without the Update of M
 *   MUTANT_CLAIM_KEEPS_LEASE_ROW   claim: does not delete the lease row
 *   MUTANT_CLAIM_UNCOMPARED        claim: whatever is there
 *   MUTANT_GIVE_BEFORE_RETURN      give: when the work is told to stop
 *   MUTANT_GIVE_TAKEN_BACK         give: no reply, so the partition is acted on again
 *   MUTANT_LEAVE_BEFORE_RETURN     leave: while work goes on
 *   MUTANT_ADOPT                   what the look shows as its own is acted on
 *   MUTANT_EARLIER_TERM            the reply to a confirmation is believed in the next term
 *   MUTANT_TWO_READS               members and partitions are read at two instants
 *   MUTANT_SETTLE_UNCOMPARED       settle: whatever names the member, not what was seen
 *   MUTANT_MISSING_IS_OVER         a member without a row is over (this and those below need OPERATOR)
 *   MUTANT_TIMER_BY_SLOT           how long a member is missing is counted by slot, whatever its token
 *   MUTANT_LOOKS_UNHEEDED          a member acts, however long ago it saw the partition's lease row
 *   MUTANT_ABSENT_IS_FREE          a partition without rows is free at once
 *   MUTANT_GONE_OWN_LEASE          a partition without rows is free after the looker's lease, whatever it was promised for
 *   MUTANT_NO_SETTLE               nothing is settled (this and those below need LIVENESS)
 *   MUTANT_TAKE_FORGOTTEN          a confirmation without a reply is forgotten
 *   MUTANT_REFUSAL_SETTLES         a claim that is refused ends the looking after what was not sure before
 *   MUTANT_GIVE_FORGOTTEN          a give without a reply is forgotten
 *   MUTANT_BARE_FOR_EVER           a bare claim is its member's, however old it is
 *   MUTANT_NEVER_BURIED            nobody buries
 *   MUTANT_MISSING_FOR_EVER        a member without a row is waited for, for ever (needs OPERATOR)
 *   MUTANT_STRAYS_FOR_EVER         a stray lease row is waited for, whatever its member is (needs OPERATOR)
 *   MUTANT_STAYS_SICK              a member whose takes or gives always fail stays (needs SICK or STIFF)
 * Not found, and harmless, see README.md:
 *   MUTANT_BURY_IGNORES_BEATS      burial compares the token, and whether the member has confirmed, not the heartbeat
 *   MUTANT_CONFIRM_UNCHECKED       with ACTS_ONLY
 * What the protocol does not stand:
 *   LIMIT_MEMBER_LEASE_ROW         the lease row of a member is deleted though another has a shorter lease (needs OPERATOR)
 */

#ifdef LIVENESS
bool calm;        /* no fault happens any more */
#define faulty !calm
#else
#define calm false
#define faulty true
#endif
#ifdef NOTHING_LATE
#define late false
#else
#define late !calm
#endif

/* ---- Spanner: members ---- */

bool cur[N];      /* the slot has a term that is not over: its lock row is not released. What follows is about it */
byte age[N];      /* now - heartbeat, at most LMAX */
bool bury[N];     /* a burial is under way, whose observation still holds */
bool lateRel[N];  /* a release is under way */
bool bare[N];     /* it is claimed, and not confirmed: there is no M yet */
bool lateJoin[N]; /* a confirmation is under way */
#ifdef OPERATOR
bool norow[N];    /* its lock row was deleted */
bool nolease[N];  /* its lease row, M, was deleted */
#define hasRow(s) (!norow[s])
#define hasM(s) (cur[s] && !bare[s] && !nolease[s])
#else
#define hasRow(s) true
#define hasM(s) (cur[s] && !bare[s])
#endif
#ifdef MUTANT_BURY_TWO_INSTANTS
byte read[N];     /* 1 + how long ago a heartbeat was read. 0: it was not */
#endif

/* ---- Spanner: partitions ---- */

#define X(i, p) ((i) * P + (p))

byte state[P];    /* the lock row: */
#define RELEASED 0
#define BARE 1    /*   claimed, not confirmed */
#define LIVE 2    /*   confirmed */
#define ABSENT 3  /*   there is none */
byte with[P];     /* its writer: 0 = OVER (or none), 1 + s = the present term of slot s */
byte bareAge[P];  /* of a bare claim: now - token, at most LMAX */
byte promise[P];  /* the lease row of the newest token, and what that is promised with: */
#define NONE 0    /*   there is none */
#define OVER 1    /*   a term that is over */
#define M(s) ((s) + 2) /* the present term of slot s */
bool oldPromise[P]; /* there is a lease row of an older token */

/* Under way: sent, and neither certainly applied nor certainly lost. */
bool lateConf[P];       /* a confirmation of the row's bare claim */
bool lateGive[P];       /* a give under the newest token */
byte lateClaim[N * P];  /* a claim of process i on which it gave up: its obs */
bool lateOver[N * P];   /* and the term it was sent in is over */
bool lateSettle[N * P]; /* a settlement, whose observation still holds */

/* ---- the processes ---- */

byte in[N];
#define OUT 0
#define IN 1      /* a member */
#define DEAD 2    /* it will not come back */
#define JOIN 3    /* it has claimed the lock of a member, and is to confirm */
byte left[N];     /* time until the local deadline of the member */
byte own[N * P];  /* of each partition: */
#define NO 0
#define CLAIM 1   /*   seen to be free: to claim */
#define CONF 2    /*   claimed: to confirm */
#define CONFR 3   /*   confirmed, the reply is under way */
#define HELD 4    /*   acted on */
#define STOP 5    /*   the work was told to stop, and goes on */
#define GIVE 6    /*   the work has returned: to give */
#define UNSURE 7  /*   a take or give whose outcome is not known: to look after */
#define SETTLE 8  /*   seen to name the own member: to settle */
byte obs[N * P];  /* what was seen, when about to claim or settle: */
#define SAME 1    /*   (0: nothing) the row is still that */
#define OTHER 2   /*   it is not */
#define NOROW 3   /*   there was no row, and there is none */
bool newest[N * P]; /* the token it claimed under is still the newest */
#ifdef OPERATOR
byte look[N * P]; /* time until the partition must have been seen: lease - since(last look that showed its lease row) */
byte missing[N * N]; /* i * N + s: 1 + for how long process i has known that the term of s has no row. 0: it does not */
byte gone[N * P]; /* 1 + for how long process i has known that partition p has no rows */
#endif
#ifdef LIVENESS
bool beaten[N];   /* when calm: what is done once in each tick */
bool looked[N * P];
byte rest[N];     /* when calm: time until it joins again, as its takes or gives failed */
#endif

/* For use within one step. */
byte k, s;
bool ok;
bool two_act, stale_fenced_write, member_gone, rows_wrong, forgotten; /* what assertions say */

inline end() {
	k = 0;
	s = 0;
	ok = false;
	two_act = false;
	stale_fenced_write = false;
	member_gone = false;
	rows_wrong = false;
	forgotten = false
}

#if defined(OPERATOR) && !defined(MUTANT_LOOKS_UNHEEDED)
#define mayAct(i, p) (left[i] > 0 && look[X(i, p)] > 0)
#else
#define mayAct(i, p) (left[i] > 0)
#endif
#define acts(i, p) ((own[X(i, p)] == HELD || own[X(i, p)] == STOP) && mayAct(i, p))

/* No two members act on a partition: looked at whenever one begins to, or moves its deadline. */
inline assertAlone(i, p) {
	for (k : 0 .. N - 1) {
		if
		:: k != i && acts(k, p) && acts(i, p) -> two_act = true
		:: else
		fi
	}
	assert(!two_act)
}

/* After each commit on a partition's rows. A write fenced with an old token would commit if that had a lease row. A lease
 * row is there exactly if the row is confirmed, unless somebody deletes rows. What names a member's term that is not over
 * is looked after by that member. */
inline assertRows(p) {
	stale_fenced_write = oldPromise[p];
	assert(!stale_fenced_write);
#ifndef TOP
#ifndef OPERATOR
	rows_wrong = (state[p] == LIVE) != (promise[p] != NONE) || (state[p] == LIVE && promise[p] != with[p] + 1);
	assert(!rows_wrong);
#endif
	for (k : 0 .. N - 1) {
		if
		:: in[k] == IN && own[X(k, p)] == NO && ((state[p] == LIVE && with[p] == k + 1) || promise[p] == M(k)) -> forgotten = true
		:: else
		fi
	}
	assert(!forgotten)
#else
	skip
#endif
}

/* ---- commits ---- */

/* The row of partition p was written. */
inline changed(p) {
	for (k : 0 .. N - 1) {
		if :: obs[X(k, p)] != 0 -> obs[X(k, p)] = OTHER :: else fi;
		lateClaim[X(k, p)] = 0;
		lateOver[X(k, p)] = false;
#ifndef MUTANT_SETTLE_UNCOMPARED
		lateSettle[X(k, p)] = false
#endif
	}
}

/* A new claim: there is a newer token than any that somebody has. */
inline superseded(p) {
	for (k : 0 .. N - 1) {
		newest[X(k, p)] = false
#ifdef OPERATOR
		;
		gone[X(k, p)] = 0
#endif
	}
	lateConf[p] = false;
	lateGive[p] = false
}

/* The term of slot i is over: released, or another has begun. */
inline over(i) {
	cur[i] = false;
	age[i] = 0;
	bury[i] = false;
	lateRel[i] = false;
	bare[i] = false;
	lateJoin[i] = false;
#ifdef MUTANT_BURY_TWO_INSTANTS
	read[i] = 0;
#endif
#ifdef OPERATOR
	norow[i] = false;
	nolease[i] = false;
	for (k : 0 .. N - 1) {
#ifdef MUTANT_TIMER_BY_SLOT
		skip
#else
		missing[k * N + i] = 0
#endif
	}
#endif
	for (k : 0 .. P - 1) {
		if
		:: with[k] == i + 1 ->
			with[k] = 0;
			bareAge[k] = 0;
#ifndef MUTANT_CONFIRM_UNCHECKED
			lateConf[k] = false /* M is gone */
#endif
		:: else
		fi;
		if :: promise[k] == M(i) -> promise[k] = OVER :: else fi;
		if :: lateClaim[X(i, k)] != 0 -> lateOver[X(i, k)] = true :: else fi
	}
}

/* claim of p by process i of what it saw as o, in a term that is over (x) or the present one: ok = applied */
#ifdef MUTANT_CLAIM_UNCOMPARED
#define stillAs(o, p) ((o) != 0)
#else
#define stillAs(o, p) ((o) == SAME || (o) == NOROW)
#endif
inline doClaim(i, p, o, x) {
	ok = stillAs(o, p);
	if
	:: ok ->
#ifdef MUTANT_CLAIM_KEEPS_LEASE_ROW
		oldPromise[p] = oldPromise[p] || promise[p] != NONE;
#else
		oldPromise[p] = false; /* what was there was seen, and is deleted */
#endif
		state[p] = BARE;
		with[p] = (x -> 0 : i + 1);
		bareAge[p] = 0;
		promise[p] = NONE;
		changed(p);
		superseded(p);
		assertRows(p)
	:: else
	fi
}

/* confirm of the bare claim of p: ok = applied. It needs the M of the term that claimed. */
#ifdef MUTANT_CONFIRM_UNCHECKED
#define confirmable(p) true
#else
#define confirmable(p) (with[p] != 0 && hasM(with[p] - 1))
#endif
inline doConfirm(p) {
	ok = state[p] == BARE && confirmable(p);
	if
	:: ok ->
#ifndef ACTS_ONLY
		member_gone = with[p] == 0 || !hasM(with[p] - 1);
		assert(!member_gone);
#endif
		state[p] = LIVE;
		bareAge[p] = 0;
		promise[p] = with[p] + 1;
		lateConf[p] = false;
		changed(p);
		assertRows(p)
	:: else
	fi
}

/* give of p under the newest token: ok = applied, else NOT_FOUND. */
inline doGive(p) {
	ok = promise[p] != NONE && state[p] != ABSENT;
	if
	:: ok ->
		state[p] = RELEASED;
		with[p] = 0;
		bareAge[p] = 0;
		promise[p] = NONE;
		lateConf[p] = false;
		lateGive[p] = false;
		changed(p);
		assertRows(p)
	:: else
	fi
}

/* settle of p by process i, of what it saw as o: ok = applied. */
inline doSettle(i, p, o) {
#ifdef MUTANT_SETTLE_UNCOMPARED
	ok = state[p] != ABSENT && with[p] == i + 1;
#else
	ok = o == SAME || o == NOROW;
#endif
	if
	:: ok ->
		if :: state[p] != ABSENT -> state[p] = RELEASED :: else fi;
		with[p] = 0;
		bareAge[p] = 0;
		promise[p] = NONE;
		lateConf[p] = false;
		lateGive[p] = false;
		lateSettle[X(i, p)] = false;
		changed(p);
		assertRows(p)
	:: else
	fi
}

/* heartbeat of slot i: ok = applied, else NOT_FOUND. Who buries on an older observation will find it changed. */
inline doBeat(i) {
	ok = hasM(i) && hasRow(i);
	if
	:: ok ->
		age[i] = 0;
#if !defined(MUTANT_BURY_IGNORES_HEARTBEAT) && !defined(MUTANT_BURY_IGNORES_BEATS)
		bury[i] = false
#endif
	:: else
	fi
}

/* confirm of the member's lock of slot i: ok = applied. */
inline doJoin(i) {
	ok = cur[i] && bare[i] && hasRow(i);
	lateJoin[i] = false;
	if
	:: ok ->
		bare[i] = false;
		age[i] = 0;
#ifndef MUTANT_BURY_IGNORES_HEARTBEAT
		bury[i] = false
#endif
	:: else
	fi
}

/* ---- what a process sees ---- */

/* Slot j may be buried: its heartbeat is older than it promised, or than the looker's own lease where no promise is left. */
#define expired(i, j) (cur[j] && hasRow(j) && age[j] >= (hasM(j) -> lease(j) : lease(i)))

/* The term of slot j has no row, and had none for as long as the partition's lease row promises. */
#ifdef OPERATOR
#ifdef MUTANT_MISSING_IS_OVER
#define waitedFor(i, j) norow[j]
#elif defined(MUTANT_MISSING_FOR_EVER)
#define waitedFor(i, j) false
#else
#define waitedFor(i, j) (norow[j] && missing[(i) * N + (j)] > lease(j))
#endif
#else
#define waitedFor(i, j) false
#endif

#ifdef MUTANT_TWO_READS
bool reading[N];  /* process i has read the members' rows, and is to read the partition's */
bool stale[N];    /* since then, another has joined again */
#define otherToken(i, j) (stale[i] && (i) != (j))
#else
#define otherToken(i, j) false
#endif

/* To process i, what names the term w (0: over, 1 + slot) is free. Its own is, to itself. */
#define isOver(i, w) ((w) == 0 || (w) == (i) + 1 || waitedFor(i, (w) - 1) || otherToken(i, (w) - 1))

#ifdef MUTANT_BARE_FOR_EVER
#define bareTooLong(i, p) false
#else
#define bareTooLong(i, p) (bareAge[p] >= lease(i))
#endif
#ifdef MUTANT_STRAYS_FOR_EVER
#define strayOver(i, p) false
#else
#define strayOver(i, p) isOver(i, promise[p] - 1)
#endif
#ifdef OPERATOR
#ifdef MUTANT_ABSENT_IS_FREE
#define goneLong(i, p) true
#else
#ifdef MUTANT_GONE_OWN_LEASE
#define goneFor(i) lease(i)
#else
#define goneFor(i) LMAX /* as it has seen it promised, taken to be the longest */
#endif
#define goneLong(i, p) (gone[X(i, p)] > goneFor(i))
#endif
#else
#define goneLong(i, p) true
#endif

#define free(i, p) ( \
	(state[p] == RELEASED) || \
	(state[p] == BARE && (isOver(i, with[p]) || bareTooLong(i, p))) || \
	(state[p] == LIVE && isOver(i, with[p])) || \
	(state[p] == ABSENT && promise[p] != NONE && strayOver(i, p)) || \
	(state[p] == ABSENT && promise[p] == NONE && goneLong(i, p)))

#define namesMe(i, p) (((state[p] == BARE || state[p] == LIVE) && with[p] == (i) + 1) || promise[p] == M(i))
#define showsMine(i, p) (promise[p] == M(i) && newest[X(i, p)])

/* The plan, when calm. */
#define alive(j) (cur[j] && !bare[j] && hasRow(j) && age[j] < lease(j))
#if N == 3
#define first (alive(0) -> 0 : (alive(1) -> 1 : 2))
#define last (alive(2) -> 2 : (alive(1) -> 1 : 0))
#else
#define first (alive(0) -> 0 : 1)
#define last (alive(1) -> 1 : 0)
#endif
#define wanted(i, p) (((p) == 0 -> first : last) == (i))
#ifdef LIVENESS
#define mayWant(i, p) (!calm || (!looked[X(i, p)] && wanted(i, p)))
#define mayNotWant(i, p) (!calm || (!looked[X(i, p)] && !wanted(i, p)))
#define mayLook(i, p) (!calm || !looked[X(i, p)])
inline hasLooked(i, p) { looked[X(i, p)] = calm }
#else
#define mayWant(i, p) true
#define mayNotWant(i, p) true
#define mayLook(i, p) true
inline hasLooked(i, p) { skip }
#endif

/* ---- moves of a process ---- */

inline become(i, p, what) {
	own[X(i, p)] = what;
	obs[X(i, p)] = 0;
	if :: what == NO || what == UNSURE -> newest[X(i, p)] = false :: else fi;
#ifdef OPERATOR
	if :: what != CONFR && what != HELD && what != STOP -> look[X(i, p)] = 0 :: else fi
#endif
}

/* The member's term is over: it has learned so, its deadline has passed, or it has left. */
inline endTerm(i) {
	left[i] = 0;
	in[i] = OUT;
	for (k : 0 .. P - 1) {
#ifdef MUTANT_EARLIER_TERM
		if :: own[X(i, k)] != CONFR -> become(i, k, NO) :: else fi
#else
		become(i, k, NO)
#endif
	}
}

#ifdef MUTANT_LATE_DEADLINE
#define allowed(i) (lease(i) + 1)
#else
#define allowed(i) lease(i)
#endif

#ifdef MUTANT_LEAVE_BEFORE_RETURN
#define mayLeave(i) true
#elif P == 1
#define mayLeave(i) (own[i] != HELD && own[i] != STOP)
#else
#define mayLeave(i) (own[X(i, 0)] != HELD && own[X(i, 0)] != STOP && own[X(i, 1)] != HELD && own[X(i, 1)] != STOP)
#endif

#ifdef SICK
#define unable(i) ((i) == 0)
#else
#define unable(i) false
#endif
#ifdef STIFF
#define stiff(i) ((i) == 1)
#else
#define stiff(i) false
#endif

/* A take or a give has failed for good, and nothing else is done: the member ends its term, and rests. */
inline giveUp(i, p) {
#if (defined(SICK) || defined(STIFF)) && !defined(MUTANT_STAYS_SICK)
	if
	:: calm ->
		over(i);
		endTerm(i);
		rest[i] = lease(i)
	:: else -> become(i, p, UNSURE)
	fi
#else
	become(i, p, UNSURE)
#endif
}

/* What process me does about partition p. */
#define PARTITION(p) \
	/* Seen to be free, and wanted. */ \
	:: d_step { in[me] == IN && mayWant(me, p) && (own[X(me, p)] == NO || own[X(me, p)] == UNSURE) && free(me, p) -> \
		printf("process %d: sees that partition %d is free to it\n", me, p); \
		hasLooked(me, p); \
		become(me, p, CLAIM); \
		obs[X(me, p)] = (state[p] == ABSENT -> NOROW : SAME); \
		seen(); end() } \
	:: d_step { in[me] == IN && own[X(me, p)] == CLAIM -> \
		doClaim(me, p, obs[X(me, p)], !cur[me]); \
		printf("process %d: claims partition %d: %d (1 applied, 0 changed)\n", me, p, ok); \
		become(me, p, (ok -> CONF : refusedClaim)); \
		newest[X(me, p)] = ok; \
		end() } \
	:: d_step { faulty && in[me] == IN && own[X(me, p)] == CLAIM -> \
		printf("process %d: claims partition %d: no reply\n", me, p); \
		ok = late && (obs[X(me, p)] == SAME || obs[X(me, p)] == NOROW); \
		lateClaim[X(me, p)] = (ok -> obs[X(me, p)] : 0); \
		lateOver[X(me, p)] = ok && !cur[me]; \
		become(me, p, UNSURE); \
		end() } \
	:: d_step { in[me] == IN && own[X(me, p)] == CONF && !unable(me) && (newest[X(me, p)] && cur[me]) -> \
		doConfirm(p); \
		printf("process %d: confirms partition %d: %d (1 applied, 0 refused)\n", me, p, ok); \
		if :: ok -> seeNow(me, p); become(me, p, CONFR) :: else -> become(me, p, UNSURE) fi; \
		end() } \
	:: d_step { in[me] == IN && own[X(me, p)] == CONF && !unable(me) && !(newest[X(me, p)] && cur[me]) -> \
		confirmOld(p); \
		printf("process %d: confirms partition %d: refused\n", me, p); \
		become(me, p, UNSURE); \
		end() } \
	:: d_step { in[me] == IN && own[X(me, p)] == CONF && unable(me) -> \
		printf("process %d: can't confirm partition %d\n", me, p); \
		giveUp(me, p); \
		end() } \
	:: d_step { faulty && in[me] == IN && own[X(me, p)] == CONF -> \
		printf("process %d: confirms partition %d: no reply\n", me, p); \
		lateConf[p] = lateConf[p] || (late && !unable(me) && newest[X(me, p)] && state[p] == BARE && sentInTerm(p)); \
		become(me, p, takeUnknown); \
		end() } \
	:: d_step { in[me] == IN && own[X(me, p)] == CONFR -> \
		printf("process %d: confirmation of partition %d is acknowledged, it acts\n", me, p); \
		become(me, p, HELD); \
		assertAlone(me, p); \
		end() } \
	:: d_step { faulty && in[me] == IN && own[X(me, p)] == CONFR -> \
		printf("process %d: the reply to the confirmation of partition %d is lost\n", me, p); \
		become(me, p, takeUnknown); \
		end() } \
	/* Not wanted any more, or about to leave. */ \
	:: d_step { in[me] == IN && own[X(me, p)] == HELD && mayNotWant(me, p) -> \
		printf("process %d: tells the work on partition %d to stop\n", me, p); \
		hasLooked(me, p); \
		own[X(me, p)] = STOP } \
	:: d_step { in[me] == IN && own[X(me, p)] == STOP -> \
		printf("process %d: the work on partition %d has returned\n", me, p); \
		own[X(me, p)] = GIVE } \
	:: d_step { in[me] == IN && mayGive(me, p) && !stiff(me) -> \
		ok = false; \
		if :: newest[X(me, p)] -> doGive(p) :: else fi; \
		printf("process %d: gives partition %d: %d (1 applied, 0 NOT_FOUND)\n", me, p, ok); \
		if \
		:: own[X(me, p)] == GIVE && ok -> become(me, p, NO) \
		:: own[X(me, p)] == GIVE && !ok -> become(me, p, UNSURE) \
		:: else \
		fi; \
		end() } \
	:: d_step { in[me] == IN && mayGive(me, p) && stiff(me) -> \
		printf("process %d: can't give partition %d\n", me, p); \
		giveUp(me, p); \
		end() } \
	:: d_step { faulty && in[me] == IN && own[X(me, p)] == GIVE -> \
		printf("process %d: gives partition %d: no reply\n", me, p); \
		lateGive[p] = lateGive[p] || (late && !stiff(me) && newest[X(me, p)] && promise[p] != NONE); \
		giveUnknown(me, p); \
		end() } \
	/* Looks after what it is not sure of. */ \
	:: d_step { in[me] == IN && own[X(me, p)] == UNSURE && mayNotWant(me, p) && namesMe(me, p) && SETTLES -> \
		printf("process %d: sees that partition %d names its own member\n", me, p); \
		hasLooked(me, p); \
		become(me, p, SETTLE); \
		obs[X(me, p)] = (state[p] == ABSENT -> NOROW : SAME); \
		seen(); end() } \
	:: d_step { in[me] == IN && own[X(me, p)] == UNSURE && mayNotWant(me, p) && !namesMe(me, p) -> \
		printf("process %d: sees that partition %d does not name its own member\n", me, p); \
		hasLooked(me, p); \
		become(me, p, NO); \
		seen(); end() } \
	:: d_step { in[me] == IN && own[X(me, p)] == SETTLE && !stiff(me) -> \
		doSettle(me, p, obs[X(me, p)]); \
		printf("process %d: settles partition %d: %d (1 applied, 0 changed)\n", me, p, ok); \
		become(me, p, (ok -> NO : UNSURE)); \
		end() } \
	:: d_step { in[me] == IN && own[X(me, p)] == SETTLE && stiff(me) -> \
		printf("process %d: can't settle partition %d\n", me, p); \
		giveUp(me, p); \
		end() } \
	:: d_step { faulty && in[me] == IN && own[X(me, p)] == SETTLE -> \
		printf("process %d: settles partition %d: no reply\n", me, p); \
		lateSettle[X(me, p)] = late && !stiff(me) && (obs[X(me, p)] == SAME || obs[X(me, p)] == NOROW); \
		become(me, p, UNSURE); \
		end() } \
	ADOPTS(p) \
	SEES(p) \
	LOOKS(p)

#if defined(MUTANT_TAKE_FORGOTTEN)
#define takeUnknown NO
#else
#define takeUnknown UNSURE
#endif

#ifdef MUTANT_REFUSAL_SETTLES
#define refusedClaim NO
#else
#define refusedClaim UNSURE
#endif

#ifdef MUTANT_GIVE_TAKEN_BACK
#define giveUnknown(i, p) own[X(i, p)] = HELD; assertAlone(i, p)
#elif defined(MUTANT_GIVE_FORGOTTEN)
#define giveUnknown(i, p) become(i, p, NO)
#else
#define giveUnknown(i, p) become(i, p, UNSURE)
#endif

#ifdef MUTANT_GIVE_BEFORE_RETURN
#define mayGive(i, p) (own[X(i, p)] == STOP || own[X(i, p)] == GIVE)
#else
#define mayGive(i, p) (own[X(i, p)] == GIVE)
#endif

#ifdef MUTANT_NO_SETTLE
#define SETTLES false
#else
#define SETTLES true
#endif

/* A confirmation of a term that is over is refused. */
#ifdef MUTANT_CONFIRM_UNCHECKED
#define confirmOld(p) if :: newest[X(me, p)] -> doConfirm(p) :: else fi
#define sentInTerm(p) true
#else
#define confirmOld(p) skip
#define sentInTerm(p) (with[p] != 0)
#endif

#ifdef MUTANT_TWO_READS
#define seen() reading[me] = false; stale[me] = false
#else
#define seen() skip
#endif

#ifdef MUTANT_ADOPT
#define ADOPTS(p) \
	:: d_step { in[me] == IN && (own[X(me, p)] == NO || own[X(me, p)] == UNSURE) && promise[p] == M(me) -> \
		printf("process %d: takes partition %d for its own, as the table shows it\n", me, p); \
		become(me, p, HELD); \
		newest[X(me, p)] = true; \
		seeNow(me, p); \
		assertAlone(me, p); \
		end() }
#else
#define ADOPTS(p)
#endif

/* A look that shows the lease row of what is acted on, or shows that it is not there. */
#ifdef OPERATOR
#define seeNow(i, p) look[X(i, p)] = lease(i)
#define SEES(p) \
	:: d_step { in[me] == IN && own[X(me, p)] == HELD && mayWant(me, p) && showsMine(me, p) -> \
		printf("process %d: sees its lease row of partition %d\n", me, p); \
		hasLooked(me, p); \
		seeNow(me, p); \
		assertAlone(me, p); \
		end() } \
	:: d_step { in[me] == IN && own[X(me, p)] == HELD && mayLook(me, p) && !showsMine(me, p) -> \
		printf("process %d: sees that its lease row of partition %d is gone\n", me, p); \
		hasLooked(me, p); \
		own[X(me, p)] = STOP } \
	:: d_step { in[me] == IN && (own[X(me, p)] == NO || own[X(me, p)] == UNSURE) && state[p] == ABSENT && promise[p] == NONE && gone[X(me, p)] == 0 -> \
		printf("process %d: sees that partition %d has no rows\n", me, p); \
		gone[X(me, p)] = 1 }
#else
#define seeNow(i, p) skip
#define SEES(p)
#endif

/* When calm: nothing to do about it before the next tick. */
#ifdef LIVENESS
#define nothingToDo(i, p) (knownGone(i, p) && ( \
	(own[X(i, p)] == NO && !(wanted(i, p) && free(i, p))) || \
	(own[X(i, p)] == UNSURE && !SETTLES && !wanted(i, p) && namesMe(i, p)) || \
	(own[X(i, p)] == UNSURE && wanted(i, p) && !free(i, p)) || \
	(own[X(i, p)] == HELD && wanted(i, p) && NOTSEEN)))
#ifdef OPERATOR
#define NOTSEEN false
#define knownGone(i, p) (state[p] != ABSENT || promise[p] != NONE || gone[X(i, p)] > 0)
#else
#define NOTSEEN true
#define knownGone(i, p) true
#endif
#define LOOKS(p) \
	:: d_step { calm && in[me] == IN && !looked[X(me, p)] && nothingToDo(me, p) -> looked[X(me, p)] = true }
#else
#define LOOKS(p)
#endif

inline amnesia(i) {
#ifdef OPERATOR
	for (k : 0 .. N - 1) { missing[i * N + k] = 0 }
	for (k : 0 .. P - 1) { gone[X(i, k)] = 0 }
#endif
#ifdef MUTANT_EARLIER_TERM
	for (k : 0 .. P - 1) { become(i, k, NO) }
#endif
	skip
}

#ifdef LIVENESS
#define rested(i) (rest[i] == 0)
#define mayBeat(i) (!calm || !beaten[i])
inline hasBeaten(i) { beaten[i] = calm }
#else
#define rested(i) true
#define mayBeat(i) true
inline hasBeaten(i) { skip }
#endif

/* What process me does about the member of slot j that does not beat, or has no row. */
#ifdef MUTANT_NEVER_BURIED
#define BURIED(j)
#elif defined(MUTANT_BURY_TWO_INSTANTS)
#define BURIED(j) \
	:: d_step { in[me] == IN && me != j && cur[j] && read[j] == 0 -> printf("process %d: reads the heartbeat of member %d\n", me, j); read[j] = 1 } \
	:: d_step { in[me] == IN && me != j && cur[j] && read[j] > lease(j) && !bury[j] -> printf("process %d: reads the row of member %d again, later than the heartbeat it knows by a lease, and buries it\n", me, j); bury[j] = true }
#else
#define BURIED(j) \
	:: d_step { in[me] == IN && me != j && expired(me, j) && !bury[j] -> printf("process %d: sees that member %d has not beaten for its lease, and buries it\n", me, j); bury[j] = true }
#endif
#ifdef OPERATOR
#define MISSED(j) \
	:: d_step { in[me] == IN && me != j && cur[j] && norow[j] && missing[me * N + j] == 0 -> printf("process %d: sees that member %d has no row\n", me, j); missing[me * N + j] = 1 }
#else
#define MISSED(j)
#endif
#define BURIES(j) BURIED(j) MISSED(j)

proctype process(byte me) {
	do
	/* join: claim and confirmation of the own member lock. Its own last term is over to it. */
	:: d_step { in[me] == OUT && rested(me) ->
		printf("process %d: claims its member lock\n", me);
		over(me);
		cur[me] = true;
		bare[me] = true;
		in[me] = JOIN;
#ifdef MUTANT_TWO_READS
		for (k : 0 .. N - 1) { stale[k] = reading[k] && k != me || stale[k] }
#endif
		end()
	}
	:: d_step { in[me] == JOIN ->
		doJoin(me);
		printf("process %d: confirms its member lock: %d (1 applied, 0 refused)\n", me, ok);
		if
		:: ok ->
			in[me] = IN;
			left[me] = allowed(me);
#ifdef MUTANT_EARLIER_TERM
			for (s : 0 .. P - 1) { assertAlone(me, s) }
#endif
		:: else -> in[me] = OUT
		fi;
		end()
	}
	:: d_step { faulty && in[me] == JOIN ->
		printf("process %d: confirms its member lock: no reply\n", me);
		lateJoin[me] = late && cur[me] && bare[me] && hasRow(me);
		in[me] = OUT
	}
	/* The member's heartbeat. */
	:: d_step { in[me] == IN && left[me] > 0 && mayBeat(me) ->
		doBeat(me);
		printf("process %d: heartbeat: %d (1 acknowledged, 0 NOT_FOUND)\n", me, ok);
		hasBeaten(me);
		if
		:: ok ->
			left[me] = allowed(me);
			for (s : 0 .. P - 1) { assertAlone(me, s) }
		:: else -> endTerm(me)
		fi;
		end()
	}
	/* leave: the release of the member, after all work has returned. */
	:: d_step { faulty && in[me] == IN && mayLeave(me) ->
		ok = hasM(me) && hasRow(me);
		printf("process %d: leaves: %d (1 applied, 0 NOT_FOUND)\n", me, ok);
		if :: ok -> over(me) :: else fi;
#ifndef MUTANT_LEAVE_BEFORE_RETURN
		endTerm(me);
#endif
		end()
	}
	:: d_step { faulty && in[me] == IN && mayLeave(me) ->
		printf("process %d: leaves: no reply\n", me);
		lateRel[me] = late && cur[me];
#ifndef MUTANT_LEAVE_BEFORE_RETURN
		endTerm(me);
#endif
		end()
	}
	:: d_step { faulty && in[me] != DEAD ->
		printf("process %d: crashes\n", me);
		endTerm(me);
		amnesia(me);
		end()
	}
	:: d_step { faulty && in[me] != DEAD ->
		printf("process %d: crashes, for good\n", me);
		endTerm(me);
		amnesia(me);
		in[me] = DEAD;
		end()
	}
	BURIES(0) BURIES(1)
	PARTITION(0)
#if N == 3
	BURIES(2)
#endif
#if P == 2
	PARTITION(1)
#endif
#ifdef MUTANT_TWO_READS
	:: d_step { in[me] == IN && !reading[me] -> printf("process %d: reads the members' rows\n", me); reading[me] = true }
#endif
	od
}

/* ---- the rest of the world ---- */

inline tick() {
	for (s : 0 .. N - 1) {
		if :: cur[s] && hasRow(s) && age[s] < LMAX -> age[s]++ :: else fi;
		if
		:: left[s] == 1 -> endTerm(s) /* the deadline */
		:: left[s] > 1 -> left[s]--
		:: else
		fi;
#ifdef MUTANT_BURY_TWO_INSTANTS
		if :: read[s] > 0 && read[s] <= LMAX -> read[s]++ :: else fi;
#endif
#ifdef LIVENESS
		beaten[s] = false;
		if :: rest[s] > 0 -> rest[s]-- :: else fi;
#endif
#ifdef OPERATOR
		for (k : 0 .. N - 1) {
			if :: missing[k * N + s] > 0 && missing[k * N + s] <= LMAX -> missing[k * N + s]++ :: else fi
		}
#endif
		for (k : 0 .. P - 1) {
#ifdef LIVENESS
			looked[X(s, k)] = false;
#endif
#ifdef OPERATOR
			if :: look[X(s, k)] > 0 -> look[X(s, k)]-- :: else fi;
			if :: gone[X(s, k)] > 0 && gone[X(s, k)] <= LMAX -> gone[X(s, k)]++ :: else fi;
#endif
			skip
		}
	}
	for (k : 0 .. P - 1) {
		if :: state[k] == BARE && with[k] != 0 && bareAge[k] < LMAX -> bareAge[k]++ :: else fi
	}
	end()
}

#ifdef LIVENESS
#define restsOn(i, p) (looked[X(i, p)] && (own[X(i, p)] == NO || own[X(i, p)] == UNSURE || own[X(i, p)] == HELD))
#if P == 2
#define waits(i) (in[i] == DEAD || rest[i] > 0 || (in[i] == IN && beaten[i] && restsOn(i, 0) && restsOn(i, 1)))
#else
#define waits(i) (in[i] == DEAD || rest[i] > 0 || (in[i] == IN && beaten[i] && restsOn(i, 0)))
#endif
#ifdef MUTANT_NEVER_BURIED
#define toBury(i, j) false
#else
#define toBury(i, j) (expired(i, j) || bury[j])
#endif
#ifdef OPERATOR
#define toMiss(i, j) (cur[j] && norow[j] && missing[(i) * N + (j)] == 0)
#else
#define toMiss(i, j) false
#endif
#define sees(i, j) (in[i] == IN && (toBury(i, j) || toMiss(i, j)))
#if N == 3
#define allWait (waits(0) && waits(1) && waits(2) && !sees(0, 1) && !sees(0, 2) && !sees(1, 0) && !sees(1, 2) && !sees(2, 0) && !sees(2, 1))
#define someAlive (in[0] != DEAD || in[1] != DEAD || in[2] != DEAD)
#else
#define allWait (waits(0) && waits(1) && !sees(0, 1) && !sees(1, 0))
#if defined(SICK)
#define someAlive (in[1] != DEAD)
#else
#define someAlive (in[0] != DEAD || in[1] != DEAD)
#endif
#endif
#define mayTick (!calm || allWait)
#else
#define mayTick true
#endif

#define LATE(p) \
	:: d_step { late && lateConf[p] -> doConfirm(p); printf("a late confirmation of partition %d lands: %d (1 applied, 0 refused)\n", p, ok); lateConf[p] = false; end() } \
	:: d_step { late && lateGive[p] -> doGive(p); printf("a late give of partition %d lands: %d (1 applied, 0 NOT_FOUND)\n", p, ok); end() } \
	BYHAND(p)

#define LATEOF(i, p) \
	:: d_step { late && lateClaim[X(i, p)] != 0 -> doClaim(i, p, lateClaim[X(i, p)], lateOver[X(i, p)]); printf("a late claim of partition %d by process %d lands\n", p, i); end() } \
	:: d_step { late && lateSettle[X(i, p)] -> doSettle(i, p, SAME); printf("a late settlement of partition %d by process %d lands: %d (1 applied, 0 changed)\n", p, i, ok); lateSettle[X(i, p)] = false; end() }

#define LATEMEMBER(i) \
	:: d_step { late && cur[i] && (age[i] > 0 || bury[i]) -> doBeat(i); printf("a late heartbeat of member %d lands: %d (1 applied, 0 NOT_FOUND)\n", i, ok); end() } \
	:: d_step { late && lateRel[i] -> ok = hasM(i) && hasRow(i); printf("a late release of member %d lands: %d (1 applied, 0 NOT_FOUND)\n", i, ok); if :: ok -> over(i) :: else fi; lateRel[i] = false; end() } \
	:: d_step { bury[i] -> ok = cur[i] && hasRow(i); printf("the burial of member %d lands: %d (1 applied, 0 changed)\n", i, ok); if :: ok -> over(i) :: else fi; bury[i] = false; end() } \
	:: d_step { late && lateJoin[i] -> doJoin(i); printf("a late confirmation of member %d lands: %d (1 applied, 0 refused)\n", i, ok); end() } \
	MEMBERBYHAND(i)

/* Somebody deletes rows. */
#ifdef OPERATOR
#ifdef LIMIT_MEMBER_LEASE_ROW
#define noLongerLease(i) true
#elif N == 3
#define noLongerLease(i) (lease(i) <= L0 && lease(i) <= L1 && lease(i) <= L2)
#else
#define noLongerLease(i) (lease(i) <= L0 && lease(i) <= L1)
#endif
#define BYHAND(p) \
	:: d_step { faulty && state[p] != ABSENT -> \
		printf("somebody deletes the lock row of partition %d\n", p); \
		state[p] = ABSENT; with[p] = 0; bareAge[p] = 0; lateConf[p] = false; \
		changed(p); end() } \
	:: d_step { faulty && promise[p] != NONE -> \
		printf("somebody deletes the lease row of partition %d\n", p); \
		promise[p] = NONE; lateGive[p] = false }
#define MEMBERBYHAND(i) \
	:: d_step { faulty && cur[i] && hasRow(i) -> \
		printf("somebody deletes the lock row of member %d\n", i); \
		norow[i] = true; age[i] = 0; lateJoin[i] = false; bury[i] = false; lateRel[i] = false } \
	:: d_step { faulty && hasM(i) && noLongerLease(i) -> \
		printf("somebody deletes the lease row of member %d\n", i); \
		nolease[i] = true; lateRel[i] = false }
#else
#define BYHAND(p)
#define MEMBERBYHAND(i)
#endif

proctype world() {
	do
	:: d_step { mayTick -> printf("-- a tick\n"); tick() }
#ifdef LIVENESS
	:: d_step { !calm ->
		printf("from here on nothing fails\n");
		calm = true;
		for (k : 0 .. P - 1) { lateConf[k] = false; lateGive[k] = false }
		for (k : 0 .. N * P - 1) { lateClaim[k] = 0; lateOver[k] = false; lateSettle[k] = false }
		for (k : 0 .. N - 1) { lateRel[k] = false; lateJoin[k] = false }
		end()
	}
#endif
	LATE(0)
	LATEOF(0, 0) LATEOF(1, 0)
	LATEMEMBER(0) LATEMEMBER(1)
#if P == 2
	LATE(1)
	LATEOF(0, 1) LATEOF(1, 1)
#endif
#if N == 3
	LATEOF(2, 0)
	LATEMEMBER(2)
#if P == 2
	LATEOF(2, 1)
#endif
#endif
	od
}

init {
	atomic {
		run process(0);
		run process(1);
#if N == 3
		run process(2);
#endif
		run world()
	}
}

#ifdef LIVENESS
#if N == 3
#define acted(p) (acts(0, p) || acts(1, p) || acts(2, p))
#else
#define acted(p) (acts(0, p) || acts(1, p))
#endif
#if P == 2
#define allActed (acted(0) && acted(1))
#else
#define allActed acted(0)
#endif
#if defined(SICK) || defined(STIFF)
/* Once faults stop, somebody acts on the partition again and again. */
never {
waiting:
	do
	:: true
	:: calm && someAlive && !allActed -> goto accept_nobody
	od;
accept_nobody:
	do
	:: !allActed
	od
}
#else
/* Once faults stop, each partition is acted on in the end, without end. The contrary: when calm, one is not, again
 * and again. */
never {
waiting:
	do
	:: true
	:: calm && someAlive && !allActed -> goto accept_nobody
	od;
accept_nobody:
	if
	:: true -> goto waiting
	fi
}
#endif
#endif
