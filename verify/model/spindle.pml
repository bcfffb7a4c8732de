/*
 * The protocol of spindle as a Promela model. README.md describes its scope; `./check` runs it.
 *
 * Configuration, by -D:
 *   N=2|3              number of candidates
 *   L0, L1, L2         their leases in ticks
 *   OPERATOR           an operator deletes the lock row by hand, at any time and any number of times
 *   RECLAIM            all candidates use WithReclaim, and keep their ids over a restart
 *   LIVENESS           adds `calm`, after which no fault happens any more
 *   STABLE             (with LIVENESS) when calm, no holder stops by itself
 *   SICK               candidate 0 can claim, but none of its confirmations is ever applied
 *   HANDOVER           holders announce that they are leaving, and step down; followers become successors
 *   REQUESTS           (with HANDOVER) other processes ask holders for a handover
 *   NOTHING_LATE       fewer faults, for three candidates: a request that the caller gives up on is lost, and there are
 *                      no duplicates
 *   MUTANT_...         breaks one thing; see the list below
 *   LIMIT_...          a case that the protocol does not tolerate
 *   TOP                keeps only the assertions about observable behavior: holders and fenced writes
 *
 * Faults. Their number is unlimited. None is scheduled; each can happen at any point.
 *   pause        time can pass between any two steps of any process (tick), so a process can be paused for longer
 *                than every lease, before, during and after each RPC
 *   crash        at any point; the process returns as a fresh candidate, or never
 *   lost request, lost reply, timeout
 *                the caller can give up on any RPC. Its request is then applied at any later time, which models a lost
 *                reply or a late request, or never, which models a lost request
 *   duplicates   every heartbeat, confirmation, withdrawal and release that was sent can be applied again at any later
 *                time, any number of times. (Spanner promises exactly once for the transactions among them, but the
 *                model does not rely on it.) A claim is applied only once: the second time, it finds a different row
 *
 * Abstractions, and why they lose no behavior:
 *   tokens       are names. The protocol compares tokens only for equality, and the commit timestamps of a row never
 *                repeat. A name is used again once nothing refers to it, which is equivalent to a new name. The number
 *                of terms is therefore not bounded. `newest` is the token of the last claim. Because commit timestamps
 *                grow, "T is the largest token so far" is the same as "T == newest"
 *   time         is stored as ages and remaining times, not as instants: the age of the heartbeat, and the time left
 *                until a deadline. Ages stop growing at the longest lease, because they have no further effect there.
 *                The length of a run is therefore not bounded. Leases are given in ticks. Events between two ticks are
 *                ordered, but all happen within the same tick. The protocol only checks whether a whole number of ticks
 *                has passed: "lease <= R - heartbeat" and "since(sent) < lease"
 *   heartbeat    a candidate does not store the pair (token, heartbeat) that it saw, but whether it would still find
 *                that pair: obs[i]. Any commit that writes the row resets obs[i]. This is equivalent because no two
 *                commits to a row have the same timestamp, and (token, NULL) is written once per token
 *   old messages of a token that was superseded or released are forgotten. The steps below show that these messages
 *                find no lease row (heartbeat, release) or no bare claim (confirm, withdraw), and never will. In the
 *                mutants, this is not always true, so mutants keep them
 *   commits      are one step, whatever happens inside Spanner: they are serializable, and their commit timestamps are
 *                in the same order, and between request and reply in true time (external consistency)
 *   looks        are one step. If a look consists of several reads, the last one decides. The results of an earlier
 *                read matter only if the last one fails; where this can make a difference, it is a separate step. A
 *                late reply is modeled as a candidate that continues late
 */

#ifndef N
#define N 2
#endif
#ifndef L0
#define L0 3
#endif
#ifndef L1
#define L1 2
#endif
#ifndef L2
#define L2 2
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
 *   MUTANT_HEARTBEAT_UNCHECKED        table.Heartbeat without requireLease(): updates the lock row of any holder
 *   MUTANT_DEADLINE_FROM_REPLY        Term.extend counts from the reply to the heartbeat
 *   MUTANT_CLAIM_IGNORES_HEARTBEAT    table.Claim compares only the token
 *   MUTANT_CONFIRM_IGNORES_TOKEN      table.Confirm without token == T
 *   MUTANT_CONFIRM_IGNORES_HEARTBEAT  table.Confirm without heartbeat == T
 *   MUTANT_OWN_LEASE                  lockHistory.learn: the candidate waits for its own lease
 *   MUTANT_RELEASE_UNCHECKED          table.Release without requireLease()
 *   MUTANT_WITHDRAW_UNCHECKED         table.Withdraw does not compare the token
 *   MUTANT_CLAIM_KEEPS_LEASE_ROW      table.claim does not delete the superseded lease row
 *   MUTANT_FENCE_READS                Lock.Fence reads the lease row and then writes, in two steps
 *   MUTANT_NEVER_EXPIRES              lockHistory.freeIn: a term ends only with a release (for liveness)
 *   MUTANT_NEVER_GIVEN_UP             Candidate.Claim remembers a failed claim as its own, and does not withdraw or cool
 *                                     down (needs SICK)
 *   MUTANT_NO_COOL_DOWN               Candidate.withdraw does not cool down (needs SICK)
 *   MUTANT_ABSENT_IS_FREE             lockHistory.freeIn returns 0 if there is no row (needs OPERATOR)
 *   MUTANT_CLAIM_TAKES_ORPHANS        table.claim does not check that the orphan leases are known (needs OPERATOR)
 *   MUTANT_CLAIM_KEEPS_ORPHANS        table.claim does not delete o.OrphanLeases (needs OPERATOR)
 *   MUTANT_ORPHANS_READ_LATER         Candidate.observe combines the absence from one read with the orphan leases from
 *                                     the next (needs OPERATOR)
 *   MUTANT_ANNOUNCE_UNCHECKED         table.Announce without requireLease() (this and the following need HANDOVER)
 *   MUTANT_HEARTBEAT_UNMARKS          table.Heartbeat writes the writer
 *   MUTANT_REQUEST_TO_LOCK            table.Ask addresses any holder of the lock (needs REQUESTS)
 *   MUTANT_RELEASE_BEFORE_RETURN      elector.lead releases the lock as soon as it has canceled the work's context
 *   MUTANT_OWN_AT_ONCE                lockHistory.freeIn applies "its own last term" before Candidate.Yield
 *   MUTANT_SUCCEED_UNCHECKED          table.Succeed without requireLease() (needs RECLAIM)
 *   MUTANT_RECLAIM_FROM_SUCCESSOR     Observation.Holder mistakes the successor for the holder (needs RECLAIM)
 *   MUTANT_RECLAIM_BY_WRITER          Observation.Holder does not check the lease record (needs RECLAIM)
 * Not caught, and harmless; see README.md:
 *   MUTANT_EXTEND_REVIVES             Term.extend does not check whether the deadline has passed
 *   MUTANT_REFUSAL_BELIEVED           Candidate.confirm sends no heartbeat after a refusal
 *   MUTANT_OWN_UNCONFIRMED            Candidate.Claim remembers a failed claim as its own
 */

/* Which of the simplifications below that are sound for the protocol a mutant has to do without. */
#if defined(MUTANT_HEARTBEAT_UNCHECKED) || defined(MUTANT_RELEASE_UNCHECKED) \
 || defined(MUTANT_CONFIRM_IGNORES_TOKEN) || defined(MUTANT_CONFIRM_IGNORES_HEARTBEAT) \
 || defined(MUTANT_CLAIM_KEEPS_LEASE_ROW) || defined(MUTANT_CLAIM_KEEPS_ORPHANS) \
 || defined(MUTANT_WITHDRAW_UNCHECKED) || defined(LIMIT_CLAIM_HOURS_LATE) \
 || defined(MUTANT_ANNOUNCE_UNCHECKED) || defined(MUTANT_REQUEST_TO_LOCK)
#define REMEMBER
#endif

/* Tokens: K names for each candidate, so that a name identifies the candidate of its claim and lease record. */
#define K 3

#ifdef NOTHING_LATE
#define late false
#else
#define late !calm
#endif
#define NT (N * K)
#define owner(t) (((t) - 1) / K)
#define bit(t) (1 << (t))

/* ---- Spanner ---- */

/* The lock row. */
bool row;          /* whether it exists */
byte rtok;         /* its token */
byte hb;           /* its heartbeat: */
#define RELEASED 0 /*   NULL */
#define BARE 1     /*   equal to the token: claimed, not confirmed */
#define LIVE 2     /*   later than the token */
byte age;          /* now - heartbeat, at most LMAX */

#ifdef HANDOVER
byte writer;       /* its writer, if it is confirmed: */
#define HOLDER 0   /*   the holder */
#define NOBODY 1   /*   NULL: the holder is leaving */
#define SUCCESSOR 2 /*  + i: the holder is leaving, and candidate i is its successor */
#ifdef REQUESTS
byte asked;        /* the holder's lease row has a request, which was addressed to this token */
short lateAsk;     /* bit t: a request to token t is in transit */
#endif
short lateAnn;     /* bit t: an announcement under token t is in transit */
#endif

short leases;      /* the lease rows: bit t for mylock_t. Its lease record is lease(owner(t)) */

/* In transit: sent, and neither known to be applied nor known to be lost. */
short lateHb, lateRel, lateConf, lateWith; /* bit t: a heartbeat, release, confirmation, withdrawal under token t */
byte lateClaim[N];               /* a claim that candidate i gave up on: its obs */

/* ---- the candidates ---- */

byte pc[N];       /* the position in elector.run */
#define DEAD 0    /* the process has crashed */
#define LOOK 1    /* Candidate.Look: about to observe */
#define CLAIM 3   /* Candidate.Claim: about to claim, or the claim is in transit */
#define CONF 4    /* Candidate.confirm: claimed, about to read the clock and send the confirmation */
#define CONFX 5   /*   sent */
#define CONFR 6   /*   applied; the reply is in transit */
#define PROBE 7   /* Candidate.confirm: not acknowledged, about to read the clock and send a heartbeat */
#define PROBEX 8
#define PROBER 9
#define HOLD 10   /* Term.Renew: between two heartbeats */
#define BEATX 11  /* Term.Beat: sent */
#define BEATR 12  /*   applied; the reply is in transit */
#define STOP 13   /* Term.Release: stepped down, about to release, or the release is in transit */
#define SLEEP 14  /* only when calm: elect.Sleep until the next tick */
#define IDLE 15   /* only when calm: as HOLD, until the next tick */
#define WITH 16   /* Candidate.withdraw: about to withdraw, or the withdrawal is in transit */
#define FREE 17   /*   refused: about to release, or the release is in transit */
#define REST 18   /* only when calm: Candidate.coolDownLeft. While faults can happen, the candidate can look at any time */
#define RETRY 19  /* only with SICK: Candidate.confirm, between two attempts, until the next tick */
#define ORPHANS 2  /* only MUTANT_ORPHANS_READ_LATER */

byte tok[N];      /* of the claim or the term, and afterwards Candidate.own, which is set only if the term began. (A failed claim
                     keeps the own token of the previous term. This makes no difference, because the lock row and lease row
                     of that token have been deleted permanently) */
bool refused[N];  /* the confirmation was refused, and a heartbeat decides */
byte left[N];     /* Term.Left: time until the local deadline. Not 0: HasLock is true */
byte sent[N];     /* the new value of left if the request in transit is acknowledged: lease - since(sent) */
byte obs[N];      /* the observed row, when about to claim: */
#define NONE 0    /*   (nothing) */
#define SAME 1    /*   the row is unchanged */
#define BEATEN 2  /*   the token is unchanged, the heartbeat is not (only mutants distinguish this from OTHER) */
#define OTHER 3   /*   the row has changed */
#define ABSENT 4  /*   there was no row */
#ifdef MUTANT_ORPHANS_READ_LATER
byte oage[N];     /* now - o.At, while the orphan leases are read */
#endif

#ifdef OPERATOR
/* Memory for the case that the row vanishes. */
bool gone[N];     /* lockHistory.absent is not zero */
byte goneAge[N];  /* now - lockHistory.absent, at most LMAX */
byte guard[N];    /* lockHistory.assumedLease */
short known[N];   /* lockHistory.orphanLeases. Also used as o.OrphanLeases in the claim: it contains all of those, and any
                     additional ones have been deleted permanently */
short lateKnown[N];
#endif

#ifdef HANDOVER
byte exit[N];     /* elector.leave, while the candidate holds the lock: */
#define STAYS 0
#define LEAVES 1  /*   the term is being given up, but the work is still running: its context was not canceled yet, or it has not returned */
#define DONE 2    /*   the work has returned */
byte away[N];     /* Candidate.coolDownLeft after Yield: time until the candidate is allowed to claim again */
#endif

bool calm;        /* no further fault happens */

/* ---- ghosts: used only by assertions ---- */

byte newest;      /* the token of the last claim, which is the largest one */
bool over;        /* its term was released */
#ifdef HANDOVER
bool announced;    /* its holder has sent an announcement */
bool marked;       /* the announcement was applied */
#endif
#ifdef MUTANT_SUCCEED_UNCHECKED
bool sawLeaving;   /* a follower has sent table.Succeed */
#endif
#ifdef MUTANT_FENCE_READS
byte checked[N];  /* a fenced write of candidate i has read this lease row but not written yet */
#endif

/* Temporary variables of one step. end() clears them, so they are not part of the state. */
byte k, t, u;
bool ok;
bool two_holders, stale_fenced_write, token_not_newest, rows_wrong, names_used_up; /* the names that assertions report */
bool work_overlaps, wrongly_leaving, mark_lost, stale_request, claimed_back, not_reclaimed;

inline end() {
	k = 0;
	t = 0;
	u = 0;
	ok = false;
	two_holders = false;
	stale_fenced_write = false;
	token_not_newest = false;
	rows_wrong = false;
	names_used_up = false;
	work_overlaps = false;
	wrongly_leaving = false;
	mark_lost = false;
	stale_request = false;
	claimed_back = false;
	not_reclaimed = false
}


/* There are never two holders. Checked whenever a candidate becomes the holder or moves its deadline. */
inline assertAlone(i) {
	two_holders = false;
	for (k : 0 .. N - 1) {
		if
		:: k != i && left[k] > 0 && left[i] > 0 -> two_holders = true
		:: else
		fi
	}
	assert(!two_holders);
#ifdef HANDOVER
	/* Nor does guarded work of a different candidate run. The model assumes that work ends at its term's deadline;
	 * fences cover late work. */
	work_overlaps = false;
	for (k : 0 .. N - 1) {
		if
		:: k != i && exit[k] == LEAVES && left[i] > 0 -> work_overlaps = true
		:: else
		fi
	}
	assert(!work_overlaps)
#endif
}

/* Tokens grow from term to term. Checked whenever a candidate becomes the holder. */
inline assertNewest(i) {
#ifndef TOP
	token_not_newest = tok[i] != newest;
	assert(!token_not_newest)
#else
	skip
#endif
}

/* The state of the rows after each commit. A lease row exists only for the newest token, and only if the lock row (if
 * there is one) has that token and is confirmed. A confirmed lock row has its lease row. It follows that there is at
 * most one lease row. Because the fence is checked inside the commit, a fenced write of an old token can't commit.
 * TOP omits this assertion, to check whether a mutant also breaks observable behavior. One such property is that only
 * a holder that has announced it is marked as leaving, from the announcement on. */
inline assertRows() {
#ifdef HANDOVER
	wrongly_leaving = row && hb == LIVE && writer != HOLDER && !announced;
	assert(!wrongly_leaving);
	mark_lost = row && hb == LIVE && writer == HOLDER && marked;
	assert(!mark_lost);
#endif
#ifndef TOP
	rows_wrong = (leases & ~bit(newest)) != 0 ||
		(row && rtok != newest) ||
		(row && ((leases != 0) != (hb == LIVE)));
	assert(!rows_wrong)
#else
	skip
#endif
}

/* ---- commits ---- */

/* The row's heartbeat was written. A claim based on an older observation will find it changed. */
inline beaten() {
	for (k : 0 .. N - 1) {
#ifdef MUTANT_CLAIM_IGNORES_HEARTBEAT
		if :: obs[k] == SAME -> obs[k] = BEATEN :: else fi;
		if :: lateClaim[k] == SAME -> lateClaim[k] = BEATEN :: else fi
#else
		if :: obs[k] == SAME -> obs[k] = OTHER :: else fi;
		if :: lateClaim[k] == SAME -> lateClaim[k] = NONE :: else fi
#endif
	}
}

/* The row has a different token, or was deleted. */
inline replaced() {
	for (k : 0 .. N - 1) {
		if :: obs[k] == SAME || obs[k] == BEATEN -> obs[k] = OTHER :: else fi;
		if :: lateClaim[k] == SAME || lateClaim[k] == BEATEN -> lateClaim[k] = NONE :: else fi
	}
}

/* No message of any earlier token can still have an effect. */
inline forget() {
#ifndef REMEMBER
	lateHb = 0;
	lateRel = 0;
	lateConf = 0;
	lateWith = 0;
#ifdef HANDOVER
	lateAnn = 0;
#ifdef REQUESTS
	lateAsk = 0;
#endif
#endif
#else
	skip
#endif
}

/* The lock has no holder, so the announcement and request of the last one are cleared. */
inline unmark() {
#ifdef HANDOVER
	writer = HOLDER;
	announced = false;
	marked = false;
#ifdef REQUESTS
	asked = 0
#endif
#else
	skip
#endif
}

/* A message of token x is sent, and stays in transit. Messages that can no longer have an effect are forgotten. */
#ifdef REMEMBER
#define canLand(x) late
#else
#define canLand(x) (late && row && rtok == (x) && hb != RELEASED)
#endif
inline underWay(messages, x) {
	if :: canLand(x) -> messages = messages | bit(x) :: else fi
}

/* Candidate i needs its last token only to recognize it in the lock row or as an orphan lease. */
inline disown(i) {
	if
	:: tok[i] != rtok && (leases & bit(tok[i])) == 0 -> tok[i] = 0
	:: else
	fi
}

/* u = a token name of candidate i that nothing refers to, or 0 if there is none. */
inline fresh(i) {
	u = 0;
	for (t : i * K + 1 .. i * K + K) {
		ok = t != rtok && t != newest && ((leases | lateHb | lateRel | lateConf | lateWith) & bit(t)) == 0;
#ifdef HANDOVER
		ok = ok && (lateAnn & bit(t)) == 0;
#ifdef REQUESTS
		ok = ok && (lateAsk & bit(t)) == 0 && asked != t;
#endif
#endif
		for (k : 0 .. N - 1) {
			ok = ok && tok[k] != t;
#ifdef MUTANT_FENCE_READS
			ok = ok && checked[k] != t;
#endif
		}
		if
		:: ok && u == 0 -> u = t
		:: else
		fi
	}
}

#ifdef OPERATOR
/* Lease rows were deleted permanently. */
inline unknow() {
	for (k : 0 .. N - 1) {
		known[k] = known[k] & leases;
		lateKnown[k] = lateKnown[k] & leases
	}
}
#endif

/* The condition that table.Claim checks on the row: it is still as observed in o. */
#ifdef MUTANT_CLAIM_IGNORES_HEARTBEAT
#define unchanged(o) ((o) == SAME || (o) == BEATEN)
#else
#define unchanged(o) ((o) == SAME)
#endif

/* The condition that table.claim checks on the lease rows if there is no lock row: there are none besides the orphan
 * leases s. It reads only the lease rows of terms that began since the observation, which is equivalent because no
 * other lease rows can have been inserted since. */
#ifdef MUTANT_CLAIM_TAKES_ORPHANS
#define nobodyElse(s) true
#else
#define nobodyElse(s) ((leases & ~(s)) == 0)
#endif

/* table.Claim by candidate i, based on observation o and orphan leases s: u = the token, 0 = ErrChanged. */
#define doClaim(i, o, s) doClaimIf(i, o, s, nobodyElse(s))
inline doClaimIf(i, o, s, may) {
	u = 0;
	if
	:: (row && unchanged(o)) || (!row && o == ABSENT && (may)) ->
		fresh(i);
		names_used_up = u == 0;
#if !defined(REMEMBER) && !defined(MUTANT_FENCE_READS)
		assert(!names_used_up);
#endif
		if
		:: names_used_up /* in a mutant: stop the search here */
		:: else ->
#ifndef MUTANT_CLAIM_KEEPS_LEASE_ROW
			if :: row -> leases = leases & ~bit(rtok) :: else fi;
#endif
#ifndef MUTANT_CLAIM_KEEPS_ORPHANS
			leases = leases & ~(s);
#endif
			row = true;
			rtok = u;
			newest = u;
			over = false;
			hb = BARE;
			age = 0;
			unmark();
			replaced();
			forget();
#ifndef REMEMBER
			for (k : 0 .. N - 1) {
				if
				:: pc[k] == LOOK || pc[k] == CLAIM || pc[k] == SLEEP || pc[k] == REST -> disown(k)
				:: else
				fi
			}
#endif
#ifdef OPERATOR
			unknow();
#endif
			assertRows()
		fi
	:: else
	fi
}

/* table.bare: the condition that table.Confirm checks on the row. */
#ifdef MUTANT_CONFIRM_IGNORES_TOKEN
#define bareClaim(x) (row && hb == BARE)
#else
#ifdef MUTANT_CONFIRM_IGNORES_HEARTBEAT
#define bareClaim(x) (row && rtok == (x))
#else
#define bareClaim(x) (row && rtok == (x) && hb == BARE)
#endif
#endif

/* table.requireLease under token x: an Update of the lease row, which fails the commit if the row does not exist. */
#define valid(x) ((leases & bit(x)) != 0)

#ifdef MUTANT_HEARTBEAT_UNCHECKED
#define beatable(x) row
#else
#define beatable(x) (row && valid(x))
#endif

#ifdef MUTANT_WITHDRAW_UNCHECKED
#define withdrawable(x) row
#else
#define withdrawable(x) (row && rtok == (x) && hb == BARE)
#endif

#ifdef MUTANT_RELEASE_UNCHECKED
#define releasable(x) row
#else
#define releasable(x) (row && valid(x))
#endif

#ifdef MUTANT_ANNOUNCE_UNCHECKED
#define markable(x) row
#else
#define markable(x) (row && valid(x))
#endif

#ifdef MUTANT_REQUEST_TO_LOCK
#define askable(x) (leases != 0)
#else
#define askable(x) valid(x)
#endif

#ifdef HANDOVER
/* table.Announce under token x: ok = applied, otherwise NOT_FOUND. */
inline doAnnounce(x) {
	ok = markable(x);
	if
	:: ok ->
		if
		:: hb == LIVE ->
			writer = NOBODY;
#ifdef MUTANT_SUCCEED_UNCHECKED
			sawLeaving = true;
#endif
			marked = true
		:: else
		fi;
		assertRows()
	:: else
	fi
}
#endif

/* table.Confirm under token x: ok = applied. */
inline doConfirm(x) {
	ok = bareClaim(x) && !valid(x); /* the lease row is an Insert */
	if
	:: ok ->
		leases = leases | bit(x);
		hb = LIVE;
		age = 0;
		beaten();
#ifndef REMEMBER
		lateConf = 0; /* the claim is no longer bare */
		lateWith = 0;
#endif
		assertRows()
	:: else
	fi
}

/* table.Heartbeat under token x: ok = applied, otherwise NOT_FOUND. */
inline doHeartbeat(x) {
	ok = beatable(x);
	if
	:: ok ->
		hb = LIVE;
#ifdef MUTANT_HEARTBEAT_UNMARKS
		writer = HOLDER;
#endif
		age = 0;
		beaten();
		assertRows()
	:: else
	fi
}

/* table.Release under token x: ok = applied, otherwise NOT_FOUND. */
inline doRelease(x) {
	ok = releasable(x);
	if
	:: ok ->
		leases = leases & ~bit(x);
#ifdef LIMIT_CLAIM_HOURS_LATE
		unknow();
#endif
		hb = RELEASED;
		age = 0;
		if :: x == newest -> over = true :: else fi;
		unmark();
		beaten();
		forget();
		assertRows()
	:: else
	fi
}

/* table.Withdraw under token x, of a bare claim: ok = applied. The same transaction also frees a term. Here, that is
 * a second step, which allows more behavior than is possible in reality. */
inline doWithdraw(x) {
	ok = withdrawable(x);
	if
	:: ok ->
		hb = RELEASED;
		age = 0;
		if :: x == newest -> over = true :: else fi;
		unmark();
		beaten();
		forget();
		assertRows()
	:: else
	fi
}

/* ---- moves of a candidate ---- */

/* The state of a candidate that waits for time to pass. While faults can happen, it can look again at any time, even
 * sooner than a real candidate. SLEEP is used only for liveness. */
inline wait(i) {
	pc[i] = (calm -> SLEEP : LOOK);
	obs[i] = NONE
}

/* A new elect.Candidate, which remembers nothing. */
inline forgetAll(i) {
	tok[i] = 0;
	left[i] = 0;
	sent[i] = 0;
	obs[i] = NONE;
	refused[i] = false;
#ifdef HANDOVER
	exit[i] = STAYS;
	away[i] = 0;
#endif
#ifdef OPERATOR
	gone[i] = false;
	goneAge[i] = 0;
	guard[i] = 0;
	known[i] = 0;
#endif
}

/* Term.End, and elector.stand again: the term has ended, and the candidacy continues. */
inline stepDown(i) {
	left[i] = 0;
	sent[i] = 0;
	refused[i] = false;
	pc[i] = LOOK;
#ifdef HANDOVER
	exit[i] = STAYS;
#endif
#ifndef REMEMBER
	disown(i);
#endif
}

#ifdef HANDOVER
/* Candidate.Yield: for a third of the lease after a release that is known to be applied, otherwise for the lease. */
inline yield(i, released) {
#ifndef MUTANT_RELEASE_BEFORE_RETURN
	exit[i] = STAYS;
#endif
	away[i] = (released -> 1 : lease(i));
	wait(i);
#ifndef REMEMBER
	disown(i);
#endif
}
#endif

/* Candidate.Claim: the claim was not confirmed, and is not remembered. */
inline failed(i) {
	sent[i] = 0;
	refused[i] = false;
#if defined(MUTANT_OWN_UNCONFIRMED) || defined(MUTANT_NEVER_GIVEN_UP)
	disown(i)
#else
	tok[i] = 0
#endif
}

/* Candidate.withdraw has ended. */
inline coolDown(i) {
	failed(i);
#ifdef MUTANT_NO_COOL_DOWN
	wait(i)
#else
	if
	:: calm ->
		sent[i] = lease(i);
		pc[i] = REST
	:: else -> pc[i] = LOOK
	fi
#endif
}

/* Candidate.confirm fails, but not because a different candidate was first. */
#ifdef MUTANT_NEVER_GIVEN_UP
#define giveUp(i) failed(i); pc[i] = LOOK
#else
#define giveUp(i) sent[i] = 0; refused[i] = false; pc[i] = WITH
#endif

/* elect.newTerm: the confirmation, or a heartbeat in its place, was acknowledged. */
inline elected(i) {
#ifdef MUTANT_DEADLINE_FROM_REPLY
	sent[i] = lease(i);
#endif
	if
	:: sent[i] == 0 -> stepDown(i) /* too late: Term.Beat returns ErrExpired, and HasLock was never true */
	:: else ->
		left[i] = sent[i];
		sent[i] = 0;
		refused[i] = false;
		pc[i] = HOLD;
		assertAlone(i);
		assertNewest(i)
	fi
}

#ifdef MUTANT_EXTEND_REVIVES
#define REVIVES true
#else
#define REVIVES false
#endif

/* Term.extend: a heartbeat was acknowledged. */
inline extend(i) {
#ifdef MUTANT_DEADLINE_FROM_REPLY
	sent[i] = lease(i);
#endif
	if
	:: left[i] == 0 && !REVIVES -> stepDown(i) /* ErrExpired */
	:: else ->
		left[i] = sent[i];
		sent[i] = 0;
		pc[i] = (calm -> IDLE : HOLD);
		assertAlone(i)
	fi
}

/* The clock is read just before the request is sent. */
inline send(i, next) {
	sent[i] = lease(i);
	pc[i] = next
}

#ifdef MUTANT_NEVER_EXPIRES
#define EXPIRES false
#else
#define EXPIRES true
#endif

/* lockHistory.freeIn, where l is the lease to wait for. */
inline standOn(i, l) {
#if defined(HANDOVER) && defined(RECLAIM) && !defined(MUTANT_RECLAIM_FROM_SUCCESSOR)
	not_reclaimed = hb == LIVE && owner(rtok) == i;
	assert(!not_reclaimed);
#endif
	if
	:: age >= (l) && EXPIRES -> pc[i] = CLAIM
	:: else -> wait(i)
	fi
}

#ifdef OPERATOR
/* lockHistory.assumeOrphans: u = the maximum of u and the leases of all orphan leases except its own. */
inline assumeOrphans(i) {
	for (t : 1 .. NT) {
		if
		:: (leases & bit(t)) != 0 && t != tok[i] && lease(owner(t)) > u -> u = lease(owner(t))
		:: else
		fi
	}
}

/* lockHistory.learn of an existing row begins by forgetting the absence and the orphan leases. */
inline present(i) {
	gone[i] = false;
	goneAge[i] = 0;
	known[i] = 0
}

/* lockHistory.miss and lockHistory.freeIn: sa is now - o.At, ga is o.At - lockHistory.absent. */
inline absent(i, sa, ga) {
	if
	:: !gone[i] || (leases & ~known[i]) != 0 ->
		ok = false; /* the absence counts from this look */
		gone[i] = true;
		goneAge[i] = sa;
		known[i] = leases
	:: else ->
		ok = true
	fi;
	u = guard[i];
	assumeOrphans(i);
	guard[i] = u;
	if
#ifdef MUTANT_ABSENT_IS_FREE
	:: true ->
#else
	:: guard[i] == 0 || (ok && ga >= guard[i]) ->
#endif
		obs[i] = ABSENT;
		pc[i] = CLAIM
	:: else -> wait(i)
	fi
}
#endif

/* lockHistory.freeIn: its own last term, which has ended, or, with WithReclaim, any term under its own id. */
#if defined(RECLAIM) && defined(MUTANT_RECLAIM_FROM_SUCCESSOR)
#define mine(i) (rtok == tok[i] || (writer < SUCCESSOR -> owner(rtok) : writer - SUCCESSOR) == i)
#elif defined(RECLAIM) && defined(MUTANT_RECLAIM_BY_WRITER)
#define mine(i) (rtok == tok[i] || (writer == HOLDER && owner(rtok) == i))
#elif defined(RECLAIM)
#define mine(i) (rtok == tok[i] || owner(rtok) == i) /* the id is in the lease record */
#else
#define mine(i) (rtok == tok[i])
#endif

/* Candidate.coolDownLeft, after a term that was given up. It takes precedence over every shortcut. */
#ifndef HANDOVER
#define gives(i) false
#elif defined(MUTANT_OWN_AT_ONCE)
#define gives(i) (away[i] > 0 && !(hb != RELEASED && mine(i)))
#else
#define gives(i) (away[i] > 0)
#endif

#ifdef SICK
#define sick(i) ((i) == 0)
#else
#define sick(i) false
#endif

proctype candidate(byte me) {
	do
	/* A new process, or a new call of Run: a fresh candidate. */
	:: d_step { pc[me] == DEAD -> printf("candidate %d: starts\n", me); pc[me] = LOOK }

	/* The process crashes. Its requests stay in transit; see the steps that give up. */
	:: d_step { !calm && pc[me] != DEAD ->
		printf("candidate %d: crashes\n", me);
		forgetAll(me);
		pc[me] = DEAD
	}

	/* Candidate.Look: there is a row. The cached lease record is not modeled, because its lease row exists as long as
	 * the row has that token and is not released. */
	:: d_step { pc[me] == LOOK && row ->
		printf("candidate %d: Candidate.Look: token %d, heartbeat %d (0 released, 1 bare claim, 2 live), %d ticks ago, lease rows %x (bit = token)\n", me, rtok, hb, age, leases);
#ifndef MUTANT_OWN_LEASE
		u = (hb == LIVE && valid(rtok) -> lease(owner(rtok)) : lease(me));
#else
		u = lease(me);
#endif
#ifdef OPERATOR
		present(me);
		if
		:: hb == RELEASED -> guard[me] = 0
		:: hb == BARE && guard[me] < u -> guard[me] = u
		:: hb == LIVE ->
			if
			:: !valid(rtok) -> /* Candidate.incomplete: orphan leases are read, and can reveal a holder */
				known[me] = leases;
				assumeOrphans(me)
			:: else
			fi;
			guard[me] = u
		:: else
		fi;
#endif
		obs[me] = SAME;
#ifdef HANDOVER
		/* Candidate.recognise: a different candidate holds the lock */
		if :: hb == LIVE && rtok != tok[me] -> away[me] = 0 :: else fi;
#endif
		if
		:: gives(me) -> wait(me)
		:: (hb == RELEASED || mine(me)) && !gives(me) -> pc[me] = CLAIM
		:: else -> standOn(me, u) /* a bare claim has no lease record, so the candidate uses its own lease */
		fi;
		end()
	}
#ifdef OPERATOR
	/* Candidate.observe: there is a new holder, and the second read fails. */
	:: d_step { !calm && pc[me] == LOOK && row && hb == LIVE && (gone[me] || guard[me] != lease(me)) ->
		printf("candidate %d: Candidate.Look: a holder, whose lease record can't be read\n", me);
		present(me);
		guard[me] = lease(me)
	}
#endif

#ifndef OPERATOR
	/* Candidate.Look: there is no row. No rows are deleted here, so there never was one. */
	:: d_step { pc[me] == LOOK && !row ->
		printf("candidate %d: Candidate.Look: no row, lease rows %x (bit = token)\n", me, leases);
		obs[me] = ABSENT;
		pc[me] = CLAIM
	}
#else
#ifndef MUTANT_ORPHANS_READ_LATER
	/* Candidate.Look: there is no row, and these are the orphan leases at the same timestamp. */
	:: d_step { pc[me] == LOOK && !row && !gives(me) -> printf("candidate %d: Candidate.Look: no row, lease rows %x (bit = token)\n", me, leases); absent(me, 0, goneAge[me]); end() }
#else
	/* The same with two reads. */
	:: d_step { pc[me] == LOOK && !row ->
		printf("candidate %d: Candidate.Look: no row, lease rows %x (bit = token)\n", me, leases);
		oage[me] = 0;
		sent[me] = goneAge[me]; /* o.At - lockHistory.absent; sent is not otherwise used here */
		pc[me] = ORPHANS;
		end()
	}
	:: d_step { pc[me] == ORPHANS ->
		printf("candidate %d: Candidate.Look: second read: lease rows %x (bit = token)\n", me, leases);
		k = sent[me];
		absent(me, oage[me], k);
		oage[me] = 0;
		sent[me] = 0;
		end()
	}
#endif
#endif

	/* table.Claim: applied and acknowledged, or refused. A delay of the reply is modeled as a delay of the next step. */
	:: d_step { pc[me] == CLAIM ->
#ifdef HANDOVER
		claimed_back = away[me] > 0 && tok[me] == newest;
		assert(!claimed_back);
#endif
#ifdef OPERATOR
		doClaim(me, obs[me], known[me]);
#else
		doClaim(me, obs[me], 0);
#endif
		obs[me] = NONE;
		if
		:: u != 0 ->
			printf("candidate %d: table.Claim: applied, token %d\n", me, u);
			tok[me] = u;
#ifdef OPERATOR
			/* Candidate.Claim: any holder that was seen before is superseded */
			gone[me] = false;
			goneAge[me] = 0;
			guard[me] = 0;
			known[me] = 0;
#endif
			sent[me] = (sick(me) -> lease(me) : 0); /* the time for which it tries to confirm */
			pc[me] = CONF
		:: else ->
			printf("candidate %d: table.Claim: ErrChanged\n", me);
			pc[me] = LOOK
		fi;
		end()
	}
	/* table.Claim: no reply. The claim is still in transit. (If an earlier one is in transit as well, that one is
	 * assumed to be lost.) */
	:: d_step { !calm && pc[me] == CLAIM ->
		printf("candidate %d: table.Claim: no reply, the claim is in transit\n", me);
#ifdef MUTANT_CLAIM_IGNORES_HEARTBEAT
		lateClaim[me] = obs[me];
#else
		lateClaim[me] = (obs[me] == OTHER || !(late) -> NONE : obs[me]);
#endif
#ifdef OPERATOR
		lateKnown[me] = (lateClaim[me] == ABSENT -> known[me] : 0);
#endif
		obs[me] = NONE;
		pc[me] = LOOK
	}

	/* Candidate.confirm: the clock is read, and the confirmation is sent. */
	:: d_step { pc[me] == CONF && !sick(me) ->
		printf("candidate %d: Candidate.confirm: reads the clock, sends\n", me);
		underWay(lateConf, tok[me]);
		send(me, CONFX)
	}
#ifdef SICK
	/* Candidate.confirm: it can't confirm, and retries for up to a lease. */
	:: d_step { pc[me] == CONF && sick(me) && sent[me] > 0 -> printf("candidate %d: Candidate.confirm: fails\n", me); pc[me] = RETRY }
	:: d_step { pc[me] == CONF && sick(me) -> printf("candidate %d: Candidate.confirm: gives up\n", me); giveUp(me); end() }
#endif
	/* table.Confirm. It is also refused if a copy of it was applied first. */
	:: d_step { pc[me] == CONFX ->
		doConfirm(tok[me]);
		printf("candidate %d: table.Confirm under token %d: %d (1 applied, 0 refused)\n", me, tok[me], ok);
		sent[me] = (ok -> sent[me] : 0);
		if
		:: ok -> pc[me] = CONFR
		:: else ->
#ifdef MUTANT_REFUSAL_BELIEVED
			failed(me);
			pc[me] = LOOK
#else
			refused[me] = true;
			pc[me] = PROBE
#endif
		fi;
		end()
	}
	/* Candidate.confirm: no reply, or another error. */
	:: d_step { !calm && pc[me] == CONFX ->
		printf("candidate %d: table.Confirm: no reply\n", me);
		sent[me] = 0;
		pc[me] = PROBE
	}
	:: d_step { pc[me] == CONFR -> printf("candidate %d: table.Confirm: acknowledged, token %d\n", me, tok[me]); elected(me); end() }

	/* Candidate.confirm: a heartbeat decides. */
	:: d_step { pc[me] == PROBE ->
		printf("candidate %d: Candidate.confirm: reads the clock, sends a heartbeat to learn the outcome\n", me);
		underWay(lateHb, tok[me]);
		send(me, PROBEX);
		end()
	}
	/* table.Heartbeat. After a refused confirmation, NOT_FOUND means that a different candidate was first. Otherwise,
	 * it only means that the claim is not confirmed yet, so the candidate tries again, or gives up after a lease. */
	:: d_step { pc[me] == PROBEX ->
		doHeartbeat(tok[me]);
		printf("candidate %d: table.Heartbeat under token %d: %d (1 applied, 0 NOT_FOUND)\n", me, tok[me], ok);
		sent[me] = (ok -> sent[me] : 0);
		if
		:: ok -> pc[me] = PROBER
		:: !ok && refused[me] ->
			failed(me);
			pc[me] = LOOK
		:: !ok && !refused[me] -> pc[me] = CONF
		fi;
		end()
	}
	/* No reply: try again. */
	:: d_step { !calm && pc[me] == PROBEX ->
		printf("candidate %d: table.Heartbeat: no reply\n", me);
		sent[me] = 0;
		refused[me] = false;
		pc[me] = CONF
	}
	/* It gives up after a lease, or immediately after an error that waiting can't fix. */
	:: d_step { !calm && (pc[me] == PROBE || pc[me] == CONF) && !refused[me] -> printf("candidate %d: Candidate.confirm: gives up\n", me); giveUp(me); end() }
	:: d_step { pc[me] == PROBER -> printf("candidate %d: table.Heartbeat: acknowledged, so confirmed, token %d\n", me, tok[me]); elected(me); end() }

	/* table.Withdraw. If it is refused, the claim might have been confirmed after all. */
	:: d_step { pc[me] == WITH ->
		doWithdraw(tok[me]);
		printf("candidate %d: table.Withdraw under token %d: %d (1 applied, 0 refused)\n", me, tok[me], ok);
		if
		:: ok -> coolDown(me)
		:: else -> pc[me] = FREE
		fi;
		end()
	}
	:: d_step { !calm && pc[me] == WITH ->
		printf("candidate %d: table.Withdraw: no reply, the withdrawal is in transit\n", me);
		underWay(lateWith, tok[me]);
		coolDown(me);
		end()
	}
	/* The same transaction frees a confirmed term. */
	:: d_step { pc[me] == FREE ->
		doRelease(tok[me]);
		printf("candidate %d: table.Release under token %d: %d (1 applied, 0 refused)\n", me, tok[me], ok);
		coolDown(me);
		end()
	}
	:: d_step { !calm && pc[me] == FREE ->
		printf("candidate %d: table.Release: no reply, the release is in transit\n", me);
		underWay(lateRel, tok[me]);
		coolDown(me);
		end()
	}

	/* Term.Beat: the clock is read, and the heartbeat is sent. */
	:: d_step { pc[me] == HOLD ->
		printf("candidate %d: Term.Beat: %d left, reads the clock, sends\n", me, left[me]);
		if
		:: left[me] == 0 -> stepDown(me) /* ErrExpired */
		:: else ->
			underWay(lateHb, tok[me]);
			send(me, BEATX)
		fi;
		end()
	}
	/* table.Heartbeat. NOT_FOUND: superseded. A delay of this reply is equivalent to a request that arrives later,
	 * because the result would be NOT_FOUND as well. */
	:: d_step { pc[me] == BEATX ->
		doHeartbeat(tok[me]);
		printf("candidate %d: table.Heartbeat under token %d: %d (1 applied, 0 NOT_FOUND)\n", me, tok[me], ok);
		if
		:: ok -> pc[me] = BEATR
		:: else -> stepDown(me)
		fi;
		end()
	}
	/* Term.endanger: no reply. */
	:: d_step { !calm && pc[me] == BEATX ->
		printf("candidate %d: table.Heartbeat: no reply\n", me);
		sent[me] = 0;
		pc[me] = HOLD
	}
	:: d_step { pc[me] == BEATR -> printf("candidate %d: Term.extend: heartbeat acknowledged\n", me); extend(me); end() }

	/* Run's ctx ends, and the guarded work has returned: Term.End. */
#ifdef STABLE
#define mayStop !calm
#else
#define mayStop true
#endif
#ifdef HANDOVER
	/* elector.leave: StepDown, a request, or the end of Run's ctx, with or without an announcement. Here, the
	 * announcement is sent once, and is applied at any later time, any number of times, or never. */
	:: d_step { (pc[me] == HOLD || pc[me] == IDLE) && left[me] > 0 && exit[me] == STAYS && mayStop ->
		printf("candidate %d: Term.Announce under token %d\n", me, tok[me]);
		underWay(lateAnn, tok[me]);
		announced = announced || tok[me] == newest;
		exit[me] = LEAVES
	}
	:: d_step { (pc[me] == HOLD || pc[me] == IDLE) && left[me] > 0 && exit[me] == STAYS && mayStop ->
		printf("candidate %d: has to stop\n", me);
		exit[me] = LEAVES
	}
#ifdef REQUESTS
	/* elector.watchRequests */
	:: d_step { (pc[me] == HOLD || pc[me] == IDLE) && left[me] > 0 && exit[me] == STAYS && asked != 0 && valid(tok[me]) ->
		printf("candidate %d: Term.Asked under token %d: asked to hand over\n", me, tok[me]);
		stale_request = asked != tok[me];
		assert(!stale_request);
		underWay(lateAnn, tok[me]);
		announced = announced || tok[me] == newest;
		exit[me] = LEAVES;
		end()
	}
#endif
	:: d_step { exit[me] == LEAVES && (pc[me] == HOLD || pc[me] == IDLE || left[me] == 0) ->
		printf("candidate %d: the work was canceled, and has returned\n", me);
		exit[me] = (left[me] > 0 -> DONE : STAYS)
	}
#ifdef MUTANT_RELEASE_BEFORE_RETURN
#define mayRelease(i) (exit[i] != STAYS)
#else
#define mayRelease(i) (exit[i] == DONE)
#endif
#else
#define mayRelease(i) mayStop
#endif
	:: d_step { (pc[me] == HOLD || pc[me] == IDLE) && left[me] > 0 && mayRelease(me) ->
		printf("candidate %d: stops: Term.End\n", me);
		left[me] = 0;
		pc[me] = STOP;
		end()
	}
	/* table.Release. Afterwards, Run can be called again. */
	:: d_step { pc[me] == STOP ->
		doRelease(tok[me]);
		printf("candidate %d: table.Release under token %d: %d (1 applied, 0 refused)\n", me, tok[me], ok);
		forgetAll(me);
		pc[me] = LOOK;
		end()
	}
	/* Term.Release: no reply, and the time has passed. (Retries are not modeled, because a later attempt that is
	 * applied is equivalent to a first attempt that stays in transit for longer.) */
	:: d_step { !calm && pc[me] == STOP ->
		printf("candidate %d: table.Release: no reply, the release is in transit\n", me);
		underWay(lateRel, tok[me]);
		forgetAll(me);
		pc[me] = LOOK
	}

#ifdef HANDOVER
	/* The same, and Run continues. */
	:: d_step { pc[me] == STOP ->
		doRelease(tok[me]);
		printf("candidate %d: table.Release under token %d: %d (1 applied, 0 refused), and the candidacy continues\n", me, tok[me], ok);
		yield(me, ok);
		end()
	}
	:: d_step { !calm && pc[me] == STOP ->
		printf("candidate %d: table.Release: no reply, the release is in transit, and the candidacy continues\n", me);
		underWay(lateRel, tok[me]);
		yield(me, false);
		end()
	}
#endif

#ifdef MUTANT_FENCE_READS
	/* A fenced write of the holder, as a read followed by a write. */
	:: d_step { left[me] > 0 && checked[me] == 0 && (leases & bit(tok[me])) != 0 ->
		printf("candidate %d: reads lease row %d for a fenced write\n", me, tok[me]);
		checked[me] = tok[me]
	}
	:: d_step { checked[me] != 0 ->
		printf("candidate %d: the write that was checked under token %d is committed; newest is %d\n", me, checked[me], newest);
		stale_fenced_write = checked[me] != newest || over;
		assert(!stale_fenced_write);
		checked[me] = 0;
		end()
	}
#endif
	od
}

/* ---- the environment ---- */

inline tick() {
	if :: age < LMAX && row && hb != RELEASED -> age++ :: else fi;
	for (k : 0 .. N - 1) {
#ifdef HANDOVER
		if :: left[k] == 1 -> exit[k] = STAYS :: else fi; /* the contexts of the term and its work end */
		if :: away[k] > 0 -> away[k]-- :: else fi;
#endif
		if :: left[k] > 0 -> left[k]-- :: else fi;
#ifdef MUTANT_ORPHANS_READ_LATER
		if
		:: pc[k] == ORPHANS -> if :: oage[k] < LMAX -> oage[k]++ :: else fi
		:: else -> if :: sent[k] > 0 -> sent[k]-- :: else fi
		fi;
#else
		if :: sent[k] > 0 -> sent[k]-- :: else fi;
#endif
#ifdef OPERATOR
		if :: guard[k] > 0 && gone[k] && goneAge[k] < LMAX -> goneAge[k]++ :: else fi;
#endif
		if
		:: pc[k] == SLEEP || (pc[k] == REST && sent[k] == 0) -> pc[k] = LOOK
		:: pc[k] == IDLE -> pc[k] = HOLD
		:: pc[k] == RETRY -> pc[k] = CONF
		:: else
		fi
	}
	end()
}

#define waits(i) (pc[i] == SLEEP || pc[i] == REST || pc[i] == RETRY || pc[i] == IDLE || pc[i] == DEAD)
#if N == 3
#define allWait (waits(0) && waits(1) && waits(2))
#define someAlive (pc[0] != DEAD || pc[1] != DEAD || pc[2] != DEAD)
#define someHolder (left[0] > 0 || left[1] > 0 || left[2] > 0)
#else
#define allWait (waits(0) && waits(1))
#ifdef SICK
#define someAlive (pc[1] != DEAD)
#else
#define someAlive (pc[0] != DEAD || pc[1] != DEAD)
#endif
#define someHolder (left[0] > 0 || left[1] > 0)
#endif

/* A message of token x is applied, late or again. When calm, each message in transit is applied at most once more. */
#define LATE(x) \
	:: d_step { (lateHb & bit(x)) != 0 -> doHeartbeat(x); printf("a late heartbeat under token %d arrives: %d (1 applied, 0 NOT_FOUND)\n", x, ok); if :: calm -> lateHb = lateHb & ~bit(x) :: else fi; end() } \
	:: d_step { (lateConf & bit(x)) != 0 -> doConfirm(x); printf("a late confirmation of token %d arrives: %d (1 applied, 0 refused)\n", x, ok); if :: calm -> lateConf = lateConf & ~bit(x) :: else fi; end() } \
	:: d_step { (lateWith & bit(x)) != 0 -> doWithdraw(x); printf("a late withdrawal of token %d arrives: %d (1 applied, 0 refused)\n", x, ok); if :: calm -> lateWith = lateWith & ~bit(x) :: else fi; end() } \
	:: d_step { (lateRel & bit(x)) != 0 -> doRelease(x); printf("a late release of token %d arrives: %d (1 applied, 0 NOT_FOUND)\n", x, ok); lateRel = lateRel & ~bit(x); end() }

#ifdef HANDOVER
#define LATEANN(x) \
	:: d_step { (lateAnn & bit(x)) != 0 -> doAnnounce(x); printf("an announcement under token %d arrives: %d (1 applied, 0 NOT_FOUND)\n", x, ok); if :: calm -> lateAnn = lateAnn & ~bit(x) :: else fi; end() }
#else
#define LATEANN(x)
#endif

/* A request addressed to token x is sent and applied. */
#ifdef REQUESTS
#define ASK(x) \
	:: d_step { !calm && rtok == x && (lateAsk & bit(x)) == 0 && canLand(x) -> printf("another process sends a request to token %d\n", x); lateAsk = lateAsk | bit(x) } \
	:: d_step { (lateAsk & bit(x)) != 0 -> ok = askable(x); printf("a request to token %d arrives: %d (1 applied, 0 NOT_FOUND)\n", x, ok); if :: ok -> asked = x :: else fi; if :: calm -> lateAsk = lateAsk & ~bit(x) :: else fi; end() }
#else
#define ASK(x)
#endif

/* table.Succeed of candidate i: the row was marked as leaving at some earlier look, so it still is now if the lease
 * row exists. */
#ifdef MUTANT_SUCCEED_UNCHECKED
#define mayFollow (hb == LIVE && sawLeaving)
#else
#define mayFollow (row && valid(rtok) && writer != HOLDER)
#endif
#if defined(HANDOVER) && defined(RECLAIM)
#define SUCCEED(i) \
	:: d_step { !calm && mayFollow -> printf("table.Succeed of candidate %d arrives\n", i); writer = SUCCESSOR + i; assertRows(); end() }
#else
#define SUCCEED(i)
#endif

/* The claim that candidate i gave up on is applied. No candidate knows its token. */
#ifdef OPERATOR
#define LATECLAIM(i) \
	:: d_step { lateClaim[i] != NONE -> doClaim(i, lateClaim[i], lateKnown[i]); printf("a late claim of candidate %d arrives: token %d (0 refused)\n", i, u); lateClaim[i] = NONE; lateKnown[i] = 0; end() }
#else
#define LATECLAIM(i) \
	:: d_step { lateClaim[i] != NONE -> doClaim(i, lateClaim[i], 0); printf("a late claim of candidate %d arrives: token %d (0 refused)\n", i, u); lateClaim[i] = NONE; end() }
#endif

/* ... more than an hour after it was observed: table.claim did not read the lease rows of later terms. */
#ifdef LIMIT_CLAIM_HOURS_LATE
#define VERYLATECLAIM(i) \
	:: d_step { lateClaim[i] == ABSENT && !row -> doClaimIf(i, ABSENT, lateKnown[i], true); printf("a claim of candidate %d arrives, more than an hour late: token %d\n", i, u); lateClaim[i] = NONE; lateKnown[i] = 0; end() }
#else
#define VERYLATECLAIM(i)
#endif

/* Lock.Fence: a write fenced with token x is committed, regardless of its sender and its age. It commits only if the
 * lease row exists. In that case, no newer token must exist, and the term of x must not have been released. The write
 * changes nothing in the table, so it has no effect here. */
#define FENCED(x) \
	:: d_step { !calm && (leases & bit(x)) != 0 -> printf("a write fenced with token %d is committed; newest is %d\n", x, newest); stale_fenced_write = x != newest || over; assert(!stale_fenced_write); end() }

proctype world() {
	do
	/* True time advances. While faults can happen, it can advance at any moment, so that every process can be paused
	 * for any time. When calm, it advances only once every process has completed its pending steps, so steps take
	 * less than a tick. */
	:: d_step { !calm || (allWait && someAlive) -> printf("-- a tick\n"); tick() }
#ifdef LIVENESS
	:: d_step { !calm -> printf("no faults from here on\n"); calm = true }
#endif
	LATECLAIM(0)
	LATECLAIM(1)
	VERYLATECLAIM(0)
	VERYLATECLAIM(1)
	LATE(1) LATE(2) LATE(3) LATE(4) LATE(5) LATE(6)
	LATEANN(1) LATEANN(2) LATEANN(3) LATEANN(4) LATEANN(5) LATEANN(6)
	ASK(1) ASK(2) ASK(3) ASK(4) ASK(5) ASK(6)
	SUCCEED(0) SUCCEED(1)
	FENCED(1) FENCED(2) FENCED(3) FENCED(4) FENCED(5) FENCED(6)
#if N == 3
	LATECLAIM(2)
	LATE(7) LATE(8) LATE(9)
	LATEANN(7) LATEANN(8) LATEANN(9)
	ASK(7) ASK(8) ASK(9)
	SUCCEED(2)
	FENCED(7) FENCED(8) FENCED(9)
#endif
#ifdef OPERATOR
	/* The lock row is deleted by hand. The lease row stays. */
	:: d_step { !calm && row ->
		printf("an operator deletes the lock row\n");
		row = false;
		rtok = 0;
		hb = RELEASED;
		age = 0;
		unmark();
		replaced();
		forget();
		end()
	}
#endif
#ifdef LIMIT_BOTH_ROWS
	/* ... together with the lease row, or with the table: nothing remains that shows the holder. */
	:: d_step { !calm && row && hb == LIVE ->
		printf("an operator deletes the lock row and the lease row\n");
		row = false;
		leases = 0;
		rtok = 0;
		hb = RELEASED;
		age = 0;
		unmark();
		replaced();
		forget();
		end()
	}
#endif
#ifdef LIMIT_LEASE_ROW
	/* Only the lease row is deleted by hand: nothing remains that shows how long the lease is. */
	:: d_step { !calm && row && hb == LIVE ->
		printf("an operator deletes the lease row\n");
		leases = 0
	}
#endif
	od
}

init {
	d_step {
		for (k : 0 .. N - 1) { pc[k] = LOOK }
		end()
	}
	atomic {
		run candidate(0);
		run candidate(1);
#if N == 3
		run candidate(2);
#endif
		run world()
	}
}

#ifdef LIVENESS
#ifndef STABLE
/* Once faults stop, there is a holder again and again: (<> calm) -> ([] <> someHolder). The automaton below is for
 * the negation: from some moment on, it is calm and there is never a holder. No fairness is needed, because, when
 * calm, time waits for every candidate. */
never {
waiting:
	do
	:: true
	:: calm && !someHolder -> goto accept_nobody
	od;
accept_nobody:
	do
	:: !someHolder
	od
}
#else
/* Once faults stop, and if no holder stops by itself, there is one term without end: (<> calm) -> (<> [] someHolder).
 * The negation: when calm, there is again and again no holder. */
never {
waiting:
	do
	:: true
	:: calm && !someHolder -> goto accept_nobody
	od;
accept_nobody:
	if
	:: true -> goto waiting
	fi
}
#endif
#endif
