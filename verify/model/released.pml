/*
 * A released lock that is claimed with one blind commit, as a Promela model. README.md describes its scope; `./check` runs
 * it. In addition to the steps of package lock, the model has the ordinary steps of spindle.pml. Processes of package lock
 * (lockers) take the ordinary steps if there is no free row, and electors always take them. They are abbreviated here,
 * because spindle.pml models them in detail.
 *
 * Configuration, by -D:
 *   N=2|3              number of processes
 *   LOCKERS            how many of them use package lock; the others are electors. Default: all
 *   L0, L1, L2         leases in ticks
 *   AHEAD              how far the token of a claim can be ahead of the lock's token; see below
 *   OPERATOR           an operator deletes the lock row or the free row by hand, at any time and any number of times
 *   BREAK              an operator releases the lock under its holder
 *   PRUNE              a released lock is pruned, at any time
 *   RECLAIM            electors use WithReclaim
 *   LIVENESS           adds `calm`, after which no fault happens any more
 *   NO_BACKGROUND      a claim is given up only by a crash
 *   NOTHING_LOST       fewer faults: all requests of a crashed process are lost
 *   MUTANT_...         breaks one thing; see the list below
 *   LIMIT_...          a case that the protocol does not tolerate
 *   BEGUN              the lock has been used and released before, so that mutants are caught sooner
 *   SET                the lock is one of a set; see the abstractions
 *   ORPHAN             an operator inserts a row with the number next to the token (needs LIVENESS)
 *   TOP                keeps only the assertions about observable behavior
 *   HOLDERS            omits falsely_given_back, to check whether a mutant also leads to two holders
 *
 * Faults are as in spindle.pml. Their number is unlimited, and each can happen at any point. Claims, releases and heartbeats
 * are blind, so each can be applied late, and more than once.
 *
 * Abstractions, and why they lose no behavior:
 *   tokens       have an order here: X is larger than F, and X + 1 is next to X. They are stored as their distance from
 *                `top`, the largest token that the lock row has ever had, which always has the number TOPS. A commit that
 *                creates a larger token moves all others down. A token that falls below 1 becomes 0, "of the past": no row
 *                has it, or ever will. The number of claims is therefore not bounded. Mutants keep some tokens of the past,
 *                because rows with them might remain
 *   X            is any number from F + 1 to F + AHEAD. The model leaves open how far behind R the claimant chooses X, and
 *                how long ago the lock was released. Two claimants that see the same lock can choose the same X or
 *                different ones, in any order. More than AHEAD different values for the same F are not distinguished
 *   microseconds `gap` is a lower bound of the present minus top; it stops at AHEAD. Each commit is at least one later than
 *                the previous one, and a claimant that chooses X has seen that the present has reached X. So each
 *                commit knows whether it is later than the token that it writes
 *   nonces       a row has the nonce of its claim: the claim that a process waits for (FG), the one that it gives up in
 *                the background (BG), or one that no process remembers (LOST). Of a process's lost claims, only the last
 *                one is kept
 *   time         leases are in ticks, as in spindle.pml
 *   sets         a set is modeled from the viewpoint of one of its names; the state of the other names is arbitrary. At any
 *                time, a claim in transit can become void because a different name of the set is taken, and a heartbeat or
 *                release can be refused because a different lease row is missing. The holder then frees each name separately
 *   messages     for a token below top can't be applied, because no row has it, and are forgotten. Mutants keep them
 *   refree       F -> F+1 and release X -> X+1 are the same commit, except for the time at which the lock became free,
 *                which is not modeled
 *   looks        are one step, as in spindle.pml
 */

#ifndef N
#define N 2
#endif
#ifndef LOCKERS
#define LOCKERS N
#endif
#ifndef L0
#define L0 2
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
#define locker(i) ((i) < LOCKERS)

/* The mutants, and what each breaks:
 *   MUTANT_NO_NONCE            a claim with an unknown outcome mistakes any lease row of X for its own
 *   MUTANT_DEADLINE_FROM_REPLY the deadline counts from the acknowledgement of the claim
 *   MUTANT_NONCE_IS_HEARTBEAT  the deadline counts from the read of the nonce, without a heartbeat
 *   MUTANT_LATE_REPLY_HOLDS    an acknowledgement after the deadline starts a term at that time
 *   MUTANT_CLAIM_KEEPS_FREE    a blind claim leaves name_F
 *   MUTANT_TODAY_KEEPS_FREE    the ordinary claim of a released lock leaves name_F
 *   MUTANT_OWN_UNKNOWN         the X of a lost claim counts as the process's own last token
 *   MUTANT_ORPHAN_FREE_KEPT    the ordinary claim leaves free rows if there is no lock row (needs OPERATOR)
 *   MUTANT_FREE_IS_FEARED      processes wait for a free row without a lock row, as for a holder's lease (needs OPERATOR)
 *   MUTANT_GUARD_UNREAD        a look mistakes name_token for a free row, whatever its content
 *   MUTANT_FREE_AS_NEW         F' is the time of its own release (last acknowledged + 1), and R > F is not checked
 *   MUTANT_X_AS_NEW            X is the time of its own commit
 *   MUTANT_HEARTBEAT_UNREAD    a claim with an unknown outcome sends a heartbeat before its nonce has been read
 *   MUTANT_RELEASE_UNREAD      a claim is given up by a release of X before its nonce has been read
 *   MUTANT_FREE_STANDING       name!free instead of name_F
 *   MUTANT_FREE_IS_X           a release keeps X as the token, so its free row is name_X
 *   MUTANT_GIVE_UP_ONLY_WAITS  a claim is given up without consuming name_F
 *   MUTANT_NONCE_OF_PROCESS    a process uses one nonce for all its claims
 *   MUTANT_PRUNE_KEEPS_FREE    with MUTANT_ORPHAN_FREE_KEPT: prune leaves name_F (needs PRUNE)
 *   MUTANT_AGAIN_FOR_EVER      sends the identical claim again whenever name_F exists, even if the lock row does not (needs LIVENESS, OPERATOR)
 *   MUTANT_EXISTS_FOR_EVER     sends the identical claim again even if name_X belongs to a different claim (needs LIVENESS, ORPHAN)
 *   MUTANT_GIVEN_BACK_UNBROKEN GivenBack does not check !broken (needs BREAK)
 *   MUTANT_GIVEN_BACK_LATE     GivenBack is called after the deadline
 * Not caught, and harmless; see README.md:
 *   MUTANT_PRUNE_KEEPS_FREE    alone
 *   MUTANT_R_UNCOMPARED        R > F is not checked, because F' = X+1 is older than its release
 * A case that the protocol does not tolerate:
 *   LIMIT_PRUNE_FORGETS_BREAK  prune deletes !broken within a lease of the operator's release (needs PRUNE, BREAK)
 */
#ifdef LIVENESS
bool calm;        /* no further fault happens */
#else
#define calm false
#endif

#if defined(MUTANT_NO_NONCE) || defined(MUTANT_CLAIM_KEEPS_FREE) || defined(MUTANT_TODAY_KEEPS_FREE) \
 || defined(MUTANT_ORPHAN_FREE_KEPT) || defined(MUTANT_FREE_STANDING) || defined(MUTANT_NONCE_OF_PROCESS) \
 || defined(MUTANT_FREE_IS_X) || defined(MUTANT_HEARTBEAT_UNREAD) \
 || defined(MUTANT_RELEASE_UNREAD) || defined(MUTANT_GUARD_UNREAD) || defined(MUTANT_OWN_UNKNOWN)
#define REMEMBER
#endif

#ifndef AHEAD
#define AHEAD 2
#endif
#ifdef REMEMBER
#define TOPS 4
#else
#define TOPS 1
#endif
#define NT (TOPS + AHEAD + 2) /* numbers 0 .. NT - 1: in a mutant, X can be one larger, and a release needs X + 1 */
#define bit(x) (1 << (x))
#define down(x, d) ((x) > (d) -> (x) - (d) : 0)

/* ---- Spanner ---- */

/* The lock row. */
bool row;          /* whether it exists */
byte rtok;         /* its token: TOPS, except in mutants. 0: there is no row */
byte hb;           /* its heartbeat: */
#define RELEASED 0 /*   NULL */
#define BARE 1     /*   equal to the token */
#define LIVE 2     /*   later than the token */
byte age;          /* now - heartbeat, at most LMAX */
byte writer;       /* 0, or 1 + the claimant */
byte gap = AHEAD;  /* the present - top in microseconds; AHEAD means at least AHEAD */

/* The rows name_x: */
byte rows[NT];
#define NONE 0
#define FREE 1     /*   free */
#define LEASE(i, s) (2 + 3 * (i) + (s)) /* of process i, with the nonce s: */
#define FG 0
#define BG 1
#define LOST 2
#define isLease(x) (rows[x] >= 2)
#define ownerOf(x) ((rows[x] - 2) / 3)
#ifdef MUTANT_FREE_STANDING
bool standing;     /* name!free */
#endif

/* In transit: sent, and neither known to be applied nor known to be lost. Bit x: under token x. A release also serves
 * as a give-up. */
byte lateHb, lateRel, lateOld, lateConf, lateWith;
#ifdef BREAK
byte lateBrk;      /* an operator's release */
#endif
byte lateClaim[N]; /* an ordinary claim that process i gave up on: its obs */
byte cf[3 * N], cx[3 * N]; /* a blind claim of process i with nonce s: its F and X. F = 0: it can't be applied */
#define nonce(i, s) (3 * (i) + (s))

/* ---- the processes ---- */

byte pc[N];
#define DEAD 0    /* the process has crashed */
#define LOOK 1    /* about to look */
#define BLIND 2   /* a blind claim was sent, for the first time or again */
#define BLINDR 3  /*   applied; the reply is in transit */
#define ASK 4     /*   its outcome is unknown, or it was refused: about to read */
#define CLAIM 5   /* the ordinary claim is in transit */
#define CONF 6    /*   claimed, about to read the clock and send the confirmation */
#define CONFX 7   /*   sent */
#define CONFR 8   /*   applied; the reply is in transit */
#define PROBE 9   /* not acknowledged; about to read the clock and send a heartbeat */
#define PROBEX 10
#define PROBER 11
#define HOLD 12   /* between two heartbeats */
#define BEATX 13
#define BEATR 14
#define STOP 15   /* the work has returned, and a release is in transit */
#define GAVE 16   /*   it was refused: Table.GivenBack */
#define WITH 17   /* Candidate.withdraw */
#define SLEEP 18  /* only when calm: until the next tick */
#define IDLE 19   /* only when calm: as HOLD, until the next tick */

byte tok[N];      /* of the claim or the term, and afterwards of its own last term */
bool refused[N];
byte left[N];     /* time until the local deadline. Not 0: held */
byte sent[N];     /* the new value of left if the request in transit is acknowledged. STOP, GAVE: the previous value */
byte obs[N];      /* the observed row, when about to send an ordinary claim: */
#define SAME 1    /*   the row is unchanged */
#define OTHER 2   /*   the row has changed */
#define ABSENT 3  /*   there was no row */
bool bg[N];       /* a claim is given up in the background */
#ifdef MUTANT_GIVE_UP_ONLY_WAITS
bool gaveUp[N];   /* the background task has finished */
#endif

#if defined(OPERATOR) || defined(PRUNE)
#define VANISHES
/* elect.lockHistory, as in spindle.pml */
bool gone[N];
byte goneAge[N];
byte guard[N];
byte known[N];    /* bit x: name_x was seen without a lock row */
byte lateKnown[N];
#endif

/* ---- ghosts: used only by assertions ---- */

byte held;        /* bit x: a process held the lock under x */
bool gaveBack[N]; /* STOP, GAVE: a release of its own was applied */
#ifdef BREAK
bool broke[N];    /* an operator released the lock since the claim: GivenBack finds !broken */
#define broken(i) broke[i]
#else
#define broken(i) false
#endif

/* Temporary variables of one step; end() clears them. */
byte k, d, x, u;
bool ok;
bool two_holders, stale_fenced_write, token_went_back, rows_wrong, token_not_older, falsely_given_back, given_up_claim_lands, idle_waited_for;

inline end() {
	k = 0;
	d = 0;
	x = 0;
	u = 0;
	ok = false;
	two_holders = false;
	stale_fenced_write = false;
	token_went_back = false;
	rows_wrong = false;
	token_not_older = false;
	falsely_given_back = false;
	given_up_claim_lands = false;
	idle_waited_for = false
}

/* There are never two holders. A holder whose lock an operator took away can continue until its next heartbeat, as
 * the documents say. */
inline assertAlone(i) {
	for (k : 0 .. N - 1) {
		if
		:: k != i && left[k] > 0 && left[i] > 0 && !broken(k) && !broken(i) -> two_holders = true
		:: else
		fi
	}
	assert(!two_holders)
}

/* There is at most one row name_x, and x is the token of the lock row, if there is one. It is a free row only if the
 * lock is released, and a lease row exactly if it is held. */
inline assertRows() {
#ifndef TOP
	for (k : 0 .. NT - 1) {
		if :: k != TOPS && rows[k] != NONE -> rows_wrong = true :: else fi
	}
#ifdef ORPHAN
	rows_wrong = false;
#endif
	rows_wrong = rows_wrong || (row && rtok != TOPS) ||
		(row && hb == RELEASED && isLease(TOPS)) || (row && hb == BARE && rows[TOPS] != NONE) || (row && hb == LIVE && !isLease(TOPS));
	assert(!rows_wrong)
#else
	skip
#endif
}

/* ---- commits ---- */

/* The row was written. An ordinary claim based on an older observation will find it changed. */
inline written() {
	for (k : 0 .. N - 1) {
		if :: obs[k] == SAME -> obs[k] = OTHER :: else fi;
		if :: lateClaim[k] == SAME -> lateClaim[k] = 0 :: else fi
	}
}

/* A commit creates a token that is d larger than top, and it becomes number TOPS. */
inline moved() {
#if !defined(REMEMBER) && !defined(ORPHAN)
	for (k : 0 .. d) {
		if :: k < NT && rows[k] != NONE -> rows_wrong = true :: else fi
	}
	assert(!rows_wrong);
#endif
	for (k : 0 .. NT - 1) {
		rows[k] = (k > 0 && k + d < NT -> rows[k + d] : NONE)
	}
	lateHb = (lateHb >> d) & 254;
	lateRel = (lateRel >> d) & 254;
	lateOld = (lateOld >> d) & 254;
	lateConf = (lateConf >> d) & 254;
	lateWith = (lateWith >> d) & 254;
#ifdef BREAK
	lateBrk = (lateBrk >> d) & 254;
#endif
	for (k : 0 .. 3 * N - 1) {
		cf[k] = down(cf[k], d);
		cx[k] = down(cx[k], d);
#ifndef REMEMBER
		if :: cf[k] == 0 && rows[cx[k]] != 2 + k -> cx[k] = 0 :: else fi /* it will no longer be applied */
#endif
	}
	for (k : 0 .. N - 1) {
		tok[k] = down(tok[k], d);
#ifdef VANISHES
		known[k] = (known[k] >> d) & 254;
		lateKnown[k] = (lateKnown[k] >> d) & 254;
#endif
	}
	held = (held >> d) & 254
}

/* A commit whose token is the literal x: rtok = its number. The commit is at least one microsecond later than the
 * previous one. */
inline literal() {
	gap++;
#ifndef TOP
	rows_wrong = x <= TOPS; /* each token is created once */
	assert(!rows_wrong);
#endif
	if
	:: x > TOPS ->
		d = x - TOPS;
		gap = gap - d;
		moved();
		rtok = TOPS;
#if !defined(TOP)
		token_not_older = gap == 0;
		assert(!token_not_older);
#endif
	:: else -> rtok = x
	fi;
	if :: gap > AHEAD -> gap = AHEAD :: else fi;
	written()
}

/* A commit whose token is its own timestamp. */
inline stamped() {
	d = gap + 1;
#ifdef ORPHAN
	rows[TOPS + 1] = NONE; /* the present is not in exactly that microsecond */
#endif
	moved();
	rtok = TOPS;
	gap = 0;
	written()
}

inline later() { /* another commit */
	if :: gap < AHEAD -> gap++ :: else fi
}

#ifdef MUTANT_FREE_STANDING
#define guardOf(f) standing
#else
#define guardOf(f) (rows[f] != NONE)
#endif

/* The condition under which the identical commit, the claim with nonce n, would succeed. Spanner refuses a token in
 * the future. */
#define blindly(n) (row && cf[n] != 0 && guardOf(cf[n]) && rows[cx[n]] == NONE && cx[n] <= TOPS + gap + 1)

/* The blind claim with nonce n arrives: ok = applied. */
inline doBlind(n) {
	ok = blindly(n);
	if
	:: ok ->
		x = cx[n];
#ifndef MUTANT_CLAIM_KEEPS_FREE
		rows[cf[n]] = NONE;
		cf[n] = 0;
#endif
#ifdef MUTANT_FREE_STANDING
		standing = false;
		cf[n] = 0;
#endif
		rows[x] = 2 + (n);
		literal();
		hb = (rtok == TOPS && gap == 0 -> BARE : LIVE);
		age = 0;
		writer = 1 + (n) / 3;
		if
		:: (n) % 3 == LOST -> cx[n] = 0
		:: else
		fi;
#ifdef MUTANT_GIVE_UP_ONLY_WAITS
		given_up_claim_lands = (n) % 3 == BG && gaveUp[(n) / 3];
		assert(!given_up_claim_lands);
#endif
		assertRows()
	:: else
	fi
}

/* A release of z that leaves a free row, or a give-up: ok = applied. */
inline doFree(z) {
	ok = row && rows[z] != NONE;
#ifndef MUTANT_FREE_IS_X
	ok = ok && rows[z + 1] == NONE;
#endif
	if
	:: ok ->
		for (k : 0 .. N - 1) {
			if :: pc[k] == STOP && tok[k] == z && rows[z] == LEASE(k, FG) -> gaveBack[k] = true :: else fi
		}
#ifdef MUTANT_FREE_IS_X
		rows[z] = FREE;
		later();
		written();
#else
		rows[z] = NONE;
#ifdef MUTANT_FREE_AS_NEW
		x = TOPS + gap + 1;
		gap++;
		d = x - TOPS;
		gap = 0;
		moved();
		rtok = TOPS;
		written();
		rows[TOPS] = FREE;
#else
		x = z + 1;
#ifdef MUTANT_FREE_STANDING
		standing = true;
#else
		rows[x] = FREE;
#endif
		literal();
#endif
#endif
		hb = RELEASED;
		age = 0;
		writer = 0;
		assertRows()
	:: else
	fi
}

#ifdef ORPHAN
#define inTheWay(z) (rows[z] != NONE && rows[(z) + 1] != NONE)
#else
#define inTheWay(z) false
#endif
/* The same. If it is refused with ALREADY_EXISTS, the ordinary release follows. */
inline doRelease(z) {
	if
	:: inTheWay(z) -> doOwnOldRelease(z)
	:: else -> doFree(z)
	fi
}

/* The ordinary release of z: ok = applied. */
inline doOldRelease(z) {
	ok = row && rows[z] != NONE;
	if
	:: ok ->
		rows[z] = NONE;
		stamped();
		hb = RELEASED;
		age = 0;
		writer = 0;
		assertRows()
	:: else
	fi
}
inline doOwnOldRelease(z) {
	for (k : 0 .. N - 1) {
		if :: row && pc[k] == STOP && tok[k] == z && rows[z] == LEASE(k, FG) -> gaveBack[k] = true :: else fi
	}
	doOldRelease(z)
}

/* table.Withdraw. The writer is kept. */
inline doWithdraw(z) {
	ok = row && rtok == z && hb != RELEASED;
	if
	:: ok ->
		rows[z] = NONE;
		stamped();
		hb = RELEASED;
		age = 0;
		assertRows()
	:: else
	fi
}

inline doHeartbeat(z) {
	ok = row && rows[z] != NONE;
	if
	:: ok ->
		later();
		written();
		hb = LIVE;
		age = 0;
		assertRows()
	:: else
	fi
}

inline doConfirm(z) {
	ok = row && rtok == z && hb == BARE && rows[z] == NONE;
	if
	:: ok ->
		later();
		written();
		rows[z] = LEASE(writer - 1, FG);
		hb = LIVE;
		age = 0;
		assertRows()
	:: else
	fi
}

#ifdef VANISHES
#define leaseRows(s) allKnown(s)
/* u = the rows name_x, as bits */
inline orphans() {
	u = 0;
	for (k : 1 .. NT - 1) {
		if :: rows[k] != NONE -> u = u | bit(k) :: else fi
	}
}
#endif

/* table.Claim by process i, based on observation o and orphan leases s: ok = applied. */
inline doClaim(i, o, s) {
	ok = row && (o) == SAME;
#ifdef VANISHES
	orphans();
	ok = ok || (!row && (o) == ABSENT && (u & ~(s)) == 0);
#else
	ok = ok || (!row && (o) == ABSENT);
#endif
	if
	:: ok ->
		if
		:: row ->
#ifdef MUTANT_TODAY_KEEPS_FREE
			if :: isLease(rtok) -> rows[rtok] = NONE :: else fi
#else
			rows[rtok] = NONE
#endif
		:: else ->
			for (k : 1 .. NT - 1) {
#ifdef MUTANT_ORPHAN_FREE_KEPT
				if :: isLease(k) -> rows[k] = NONE :: else fi
#else
				rows[k] = NONE
#endif
			}
		fi;
		row = true;
		stamped();
		hb = BARE;
		age = 0;
		writer = 1 + (i);
		assertRows()
	:: else
	fi
}

/* ---- moves of a process ---- */

/* A message under token z is in transit. Messages that can no longer be applied are forgotten. */
#ifdef REMEMBER
#define canLand(z) ((z) != 0 && !calm)
#else
#define canLand(z) (!calm && row && rtok == (z))
#endif
inline underWay(messages, z) {
	if :: canLand(z) -> messages = messages | bit(z) :: else fi
}

inline wait(i) {
	pc[i] = (calm -> SLEEP : LOOK);
	obs[i] = 0
}

/* The claim that process i waited for is forgotten, but can still be applied. */
inline lose(i, s) {
#ifdef NOTHING_LOST
	skip;
#else
	if
	:: cf[nonce(i, s)] != 0 ->
		cf[nonce(i, LOST)] = cf[nonce(i, s)];
		cx[nonce(i, LOST)] = cx[nonce(i, s)]
	:: else
	fi;
#endif
	cf[nonce(i, s)] = 0;
	cx[nonce(i, s)] = 0;
	for (k : 1 .. NT - 1) {
		if :: rows[k] == LEASE(i, s) -> rows[k] = LEASE(i, LOST) :: else fi
	}
}

inline forgetAll(i) {
	lose(i, FG);
	tok[i] = 0;
	left[i] = 0;
	sent[i] = 0;
	obs[i] = 0;
	refused[i] = false;
	gaveBack[i] = false;
#ifdef BREAK
	broke[i] = false;
#endif
#ifdef VANISHES
	gone[i] = false;
	goneAge[i] = 0;
	guard[i] = 0;
	known[i] = 0;
#endif
}

/* The token of its own last term is needed only as long as a row can have it. */
inline disown(i) {
#ifdef REMEMBER
	skip
#else
	if :: tok[i] != 0 && tok[i] != TOPS -> tok[i] = 0 :: else fi
#endif
}

/* The term has ended, and the candidacy continues. */
inline stepDown(i) {
	left[i] = 0;
	sent[i] = 0;
	refused[i] = false;
	gaveBack[i] = false;
#ifdef BREAK
	broke[i] = false;
#endif
	disown(i);
	lose(i, FG);
	pc[i] = LOOK
}

/* A claim begins: all state of the last term is discarded. */
inline begins(i) {
	tok[i] = 0;
#ifdef BREAK
	broke[i] = false
#else
	skip
#endif
}

/* The process no longer waits for the blind claim. */
inline anew(i) {
#ifdef MUTANT_OWN_UNKNOWN
	tok[i] = cx[nonce(i, FG)];
#else
	tok[i] = 0;
#endif
	sent[i] = 0;
	lose(i, FG);
	pc[i] = LOOK
}

inline elected(i) {
#if defined(MUTANT_DEADLINE_FROM_REPLY)
	sent[i] = lease(i);
#endif
	left[i] = sent[i];
	sent[i] = 0;
	refused[i] = false;
	pc[i] = HOLD;
	assertAlone(i);
	token_went_back = tok[i] != 0 && (held >> tok[i]) != 0;
	assert(!token_went_back);
	if :: tok[i] != 0 -> held = held | bit(tok[i]) :: else fi
}

inline send(i, next) {
	sent[i] = lease(i);
	pc[i] = next
}

#ifdef RECLAIM
#define mine(i) (rtok == tok[i] || (!locker(i) && writer == 1 + (i)))
#else
#define mine(i) (rtok == tok[i])
#endif

#ifdef MUTANT_FREE_STANDING
#define freeRow (row && hb == RELEASED && standing)
#elif defined(MUTANT_GUARD_UNREAD)
#define freeRow (row && rows[rtok] != NONE)
#else
#define freeRow (row && hb == RELEASED && rows[rtok] == FREE)
#endif

#if defined(MUTANT_R_UNCOMPARED) || defined(MUTANT_FREE_AS_NEW)
#define farEnough(y) ((y) == 1)
#else
#define farEnough(y) false
#endif

/* A look at a released lock with its free row: X = rtok + y, which is not in the future. */
inline blind(i, y) {
	printf("process %d: looks: released under %d with a free row; sends a claim as %d\n", i, rtok, rtok + (y));
	begins(i);
	cf[nonce(i, FG)] = rtok;
	cx[nonce(i, FG)] = rtok + (y);
#ifndef MUTANT_X_AS_NEW
	if :: rtok + (y) > TOPS + gap && !farEnough(y) -> gap = rtok + (y) - TOPS :: else fi; /* R has been reached by now */
#endif
	send(i, BLIND)
}

#ifdef VANISHES
inline absent(i) {
	orphans();
	if
	:: !gone[i] || (u & ~known[i]) != 0 ->
		ok = false;
		gone[i] = true;
		goneAge[i] = 0;
		known[i] = u
	:: else -> ok = true
	fi;
	idle_waited_for = guard[i] == 0;
	for (k : 1 .. NT - 1) {
		if
		:: isLease(k) && k != tok[i] ->
			idle_waited_for = false;
			if :: lease(ownerOf(k)) > guard[i] -> guard[i] = lease(ownerOf(k)) :: else fi
#ifdef MUTANT_FREE_IS_FEARED
		:: rows[k] == FREE -> if :: guard[i] == 0 -> guard[i] = 1 :: else fi
#endif
		:: else
		fi
	}
	if
	:: guard[i] == 0 || (ok && goneAge[i] >= guard[i]) ->
		obs[i] = ABSENT;
		pc[i] = CLAIM
	:: else ->
		assert(!idle_waited_for);
		wait(i)
	fi
}
#endif

#ifdef MUTANT_EXISTS_FOR_EVER
#define noneAt(z) true
#else
#define noneAt(z) (rows[z] == NONE)
#endif
#ifdef ORPHAN
#define goesOn(z) (rows[(z) + 1] == NONE || !calm) /* R advances, and so does X */
#else
#define goesOn(z) true
#endif

proctype process(byte me) {
	do
	:: d_step { pc[me] == DEAD -> printf("process %d: starts\n", me); pc[me] = LOOK }

	:: d_step { !calm && pc[me] != DEAD ->
		printf("process %d: crashes\n", me);
		forgetAll(me);
		if :: bg[me] -> lose(me, BG); bg[me] = false :: else fi;
		pc[me] = DEAD;
		end()
	}

	/* ---- package lock: a released lock ---- */

	:: d_step { pc[me] == LOOK && locker(me) && freeRow && goesOn(rtok) -> blind(me, 1);
#ifdef VANISHES
		gone[me] = false; goneAge[me] = 0; guard[me] = 0; known[me] = 0;
#endif
		end() }
#if AHEAD > 1
	:: d_step { pc[me] == LOOK && locker(me) && freeRow -> blind(me, 2);
#ifdef VANISHES
		gone[me] = false; goneAge[me] = 0; guard[me] = 0; known[me] = 0;
#endif
		end() }
#endif
#if AHEAD > 2
	:: d_step { pc[me] == LOOK && locker(me) && freeRow -> blind(me, 3);
#ifdef VANISHES
		gone[me] = false; goneAge[me] = 0; guard[me] = 0; known[me] = 0;
#endif
		end() }
#endif

	:: d_step { pc[me] == BLIND ->
		doBlind(nonce(me, FG));
		printf("process %d: its claim: %d (1 applied, 0 refused)\n", me, ok);
		pc[me] = (ok -> BLINDR : ASK);
		end()
	}
	:: d_step { !calm && pc[me] == BLIND -> printf("process %d: its claim: no reply\n", me); pc[me] = ASK }
	:: d_step { pc[me] == BLINDR ->
		tok[me] = cx[nonce(me, FG)];
		cx[nonce(me, FG)] = 0;
		cf[nonce(me, FG)] = 0;
		if
#if defined(MUTANT_LATE_REPLY_HOLDS)
		:: sent[me] == 0 -> sent[me] = lease(me); elected(me)
#elif defined(MUTANT_DEADLINE_FROM_REPLY)
		:: true -> elected(me)
#else
		:: sent[me] == 0 ->
			printf("process %d: its claim is acknowledged too late: it releases %d\n", me, tok[me]);
			underWay(lateRel, tok[me]);
			stepDown(me)
#endif
		:: sent[me] > 0 ->
			printf("process %d: its claim is acknowledged: token %d\n", me, tok[me]);
			elected(me)
		fi;
		end()
	}
	:: d_step { !calm && pc[me] == BLINDR -> printf("process %d: its claim: no reply\n", me); pc[me] = ASK }

#ifdef SET
	/* A different name of the set was claimed, freed or taken away. */
	:: d_step { locker(me) && cf[nonce(me, FG)] != 0 -> printf("process %d: its claim is void\n", me); cf[nonce(me, FG)] = 0 }
	:: d_step { locker(me) && cf[nonce(me, BG)] != 0 -> printf("process %d: the claim that it gives up is void\n", me); cf[nonce(me, BG)] = 0 }
	:: d_step { cf[nonce(me, LOST)] != 0 -> cf[nonce(me, LOST)] = 0; cx[nonce(me, LOST)] = 0 }
	:: d_step { !calm && locker(me) && pc[me] == BEATX ->
		printf("process %d: heartbeat: NOT_FOUND, of a different lease row\n", me);
		underWay(lateRel, tok[me]);
		stepDown(me);
		end()
	}
	:: d_step { !calm && locker(me) && pc[me] == PROBEX && refused[me] ->
		printf("process %d: heartbeat: NOT_FOUND, of a different lease row\n", me);
		underWay(lateRel, tok[me]);
		stepDown(me);
		end()
	}
	:: d_step { !calm && locker(me) && pc[me] == STOP ->
		printf("process %d: release: NOT_FOUND, of a different lease row\n", me);
		stepDown(me);
		end()
	}
#endif

	/* The outcome is unknown: name_X, name_F and the lock row in one snapshot. */
	:: d_step { pc[me] == ASK ->
		if
#ifdef MUTANT_NO_NONCE
		:: isLease(cx[nonce(me, FG)]) ->
#else
		:: rows[cx[nonce(me, FG)]] == LEASE(me, FG) ->
#endif
			printf("process %d: reads name_%d: its own nonce\n", me, cx[nonce(me, FG)]);
			tok[me] = cx[nonce(me, FG)];
			cx[nonce(me, FG)] = 0;
			cf[nonce(me, FG)] = 0;
#ifdef MUTANT_NONCE_IS_HEARTBEAT
			sent[me] = lease(me);
			elected(me)
#else
			sent[me] = 0;
			refused[me] = true;
			pc[me] = PROBE
#endif
#ifdef MUTANT_AGAIN_FOR_EVER
		:: else -> if :: cf[nonce(me, FG)] != 0 && guardOf(cf[nonce(me, FG)]) -> pc[me] = BLIND :: else -> anew(me) fi
#else
		:: else ->
			if
			:: row && cf[nonce(me, FG)] != 0 && rtok == cf[nonce(me, FG)] && guardOf(cf[nonce(me, FG)]) && noneAt(cx[nonce(me, FG)]) ->
				printf("process %d: reads name_%d: none, and the free row exists; sends the claim again\n", me, cx[nonce(me, FG)]);
				pc[me] = BLIND
			:: else ->
				printf("process %d: reads that its claim is lost\n", me);
				anew(me)
			fi
#endif
		fi;
		end()
	}
#ifdef MUTANT_HEARTBEAT_UNREAD
	:: d_step { pc[me] == ASK ->
		tok[me] = cx[nonce(me, FG)];
		lose(me, FG);
		refused[me] = true;
		pc[me] = PROBE;
		end()
	}
#endif

	/* The claim is given up while its outcome is unknown. In the background, F is freed again as F + 1. */
#ifndef NO_BACKGROUND
	:: d_step { !calm && (pc[me] == BLIND || pc[me] == ASK || pc[me] == BLINDR) && !bg[me] ->
		printf("process %d: gives up its claim\n", me);
		for (k : 1 .. NT - 1) {
			if :: rows[k] == LEASE(me, FG) -> rows[k] = LEASE(me, BG) :: else fi
		}
		cf[nonce(me, BG)] = cf[nonce(me, FG)];
		cx[nonce(me, BG)] = cx[nonce(me, FG)];
		cf[nonce(me, FG)] = 0;
		cx[nonce(me, FG)] = 0;
		bg[me] = true;
		sent[me] = 0;
#ifdef MUTANT_GIVE_UP_ONLY_WAITS
		gaveUp[me] = false;
#elif defined(MUTANT_RELEASE_UNREAD)
		underWay(lateRel, cx[nonce(me, BG)]);
#else
		underWay(lateRel, cf[nonce(me, BG)]);
#endif
		pc[me] = LOOK;
		end()
	}
	:: d_step { bg[me] ->
		if
#ifdef MUTANT_NONCE_OF_PROCESS
		:: isLease(cx[nonce(me, BG)]) && ownerOf(cx[nonce(me, BG)]) == me ->
#else
		:: rows[cx[nonce(me, BG)]] == LEASE(me, BG) ->
#endif
			printf("process %d: in the background: reads its own nonce, releases %d\n", me, cx[nonce(me, BG)]);
			underWay(lateRel, cx[nonce(me, BG)]);
			if :: calm -> doRelease(cx[nonce(me, BG)]) :: else fi;
			bg[me] = false;
			lose(me, BG)
#ifdef MUTANT_GIVE_UP_ONLY_WAITS
		:: else -> gaveUp[me] = true
#else
		:: else ->
			if
			:: cf[nonce(me, BG)] == 0 || !guardOf(cf[nonce(me, BG)]) || !row ->
				printf("process %d: in the background: it has given up\n", me);
				bg[me] = false;
				lose(me, BG)
			:: else ->
				printf("process %d: in the background: frees %d again\n", me, cf[nonce(me, BG)]);
				underWay(lateRel, cf[nonce(me, BG)]);
				if :: calm -> doRelease(cf[nonce(me, BG)]) :: else fi
			fi
#endif
		fi;
		end()
	}
#endif

	/* ---- ordinary steps ---- */

	:: d_step { pc[me] == LOOK && row ->
		printf("process %d: looks: token %d, heartbeat %d (0 released, 1 bare claim, 2 live), %d ticks ago\n", me, rtok, hb, age);
		u = (hb == LIVE && isLease(rtok) -> lease(ownerOf(rtok)) : lease(me));
#ifdef VANISHES
		gone[me] = false;
		goneAge[me] = 0;
		known[me] = 0;
		if
		:: hb == RELEASED -> guard[me] = 0
		:: hb == BARE && guard[me] < u -> guard[me] = u
		:: hb == LIVE -> guard[me] = u
		:: else
		fi;
#endif
		obs[me] = SAME;
		if
		:: hb == RELEASED || mine(me) || age >= u -> pc[me] = CLAIM
		:: else -> wait(me)
		fi;
		end()
	}
#ifndef VANISHES
	:: d_step { pc[me] == LOOK && !row -> printf("process %d: looks: no row\n", me); obs[me] = ABSENT; pc[me] = CLAIM }
#else
	:: d_step { pc[me] == LOOK && !row -> printf("process %d: looks: no row\n", me); absent(me); end() }
#endif

	:: d_step { pc[me] == CLAIM ->
#ifdef VANISHES
		doClaim(me, obs[me], known[me]);
#else
		doClaim(me, obs[me], 0);
#endif
		printf("process %d: ordinary claim: %d (1 applied, 0 refused)\n", me, ok);
		obs[me] = 0;
		if
		:: ok ->
			begins(me);
			tok[me] = rtok;
#ifdef VANISHES
			gone[me] = false;
			goneAge[me] = 0;
			guard[me] = 0;
			known[me] = 0;
#endif
			pc[me] = CONF
		:: else -> pc[me] = LOOK
		fi;
		end()
	}
	:: d_step { !calm && pc[me] == CLAIM ->
		printf("process %d: ordinary claim: no reply\n", me);
		lateClaim[me] = (obs[me] == OTHER -> 0 : obs[me]);
#ifdef VANISHES
		lateKnown[me] = (lateClaim[me] == ABSENT -> known[me] : 0);
#endif
		obs[me] = 0;
		pc[me] = LOOK
	}
	:: d_step { pc[me] == CONF ->
		printf("process %d: sends its confirmation of %d\n", me, tok[me]);
		underWay(lateConf, tok[me]);
		send(me, CONFX)
	}
	:: d_step { pc[me] == CONFX ->
		if :: tok[me] != 0 -> doConfirm(tok[me]) :: else fi;
		printf("process %d: confirmation: %d (1 applied, 0 refused)\n", me, ok);
		sent[me] = (ok -> sent[me] : 0);
		refused[me] = !ok;
		pc[me] = (ok -> CONFR : PROBE);
		end()
	}
	:: d_step { !calm && pc[me] == CONFX -> printf("process %d: confirmation: no reply\n", me); sent[me] = 0; pc[me] = PROBE }
	:: d_step { pc[me] == CONFR ->
		printf("process %d: its confirmation is acknowledged: token %d\n", me, tok[me]);
		if :: sent[me] == 0 -> stepDown(me) :: else -> elected(me) fi;
		end()
	}

	/* A heartbeat decides the outcome, or proves a blind claim whose nonce was read. */
	:: d_step { pc[me] == PROBE ->
		printf("process %d: sends a heartbeat under %d, to learn the outcome\n", me, tok[me]);
		underWay(lateHb, tok[me]);
		send(me, PROBEX);
		end()
	}
	:: d_step { pc[me] == PROBEX ->
		if :: tok[me] != 0 -> doHeartbeat(tok[me]) :: else fi;
		printf("process %d: heartbeat: %d (1 applied, 0 NOT_FOUND)\n", me, ok);
		sent[me] = (ok -> sent[me] : 0);
		if
		:: ok -> pc[me] = PROBER
		:: !ok && refused[me] -> tok[me] = 0; stepDown(me)
		:: !ok && !refused[me] -> pc[me] = CONF
		fi;
		end()
	}
	:: d_step { !calm && pc[me] == PROBEX -> printf("process %d: heartbeat: no reply\n", me); sent[me] = 0; pc[me] = PROBE }
	:: d_step { pc[me] == PROBER ->
		printf("process %d: its heartbeat is acknowledged: token %d\n", me, tok[me]);
		if :: sent[me] == 0 -> stepDown(me) :: else -> elected(me) fi;
		end()
	}
	/* The process gives up. A claim that was confirmed only by a heartbeat, or not at all, is withdrawn; a blind
	 * claim is released. */
	:: d_step { !calm && pc[me] == PROBE && locker(me) ->
		printf("process %d: gives up, releases %d in the background\n", me, tok[me]);
		underWay(lateRel, tok[me]);
		stepDown(me);
		end()
	}
	:: d_step { !calm && (pc[me] == PROBE || pc[me] == CONF) ->
		printf("process %d: gives up\n", me);
		refused[me] = false;
		sent[me] = 0;
		pc[me] = WITH;
		end()
	}
	:: d_step { pc[me] == WITH ->
		underWay(lateWith, tok[me]);
		if :: tok[me] != 0 -> doWithdraw(tok[me]) :: else fi;
		printf("process %d: withdrawal: %d (1 applied, 0 refused)\n", me, ok);
		tok[me] = 0;
		stepDown(me);
		end()
	}
	:: d_step { !calm && pc[me] == WITH ->
		printf("process %d: withdrawal: no reply\n", me);
		underWay(lateWith, tok[me]);
		tok[me] = 0;
		stepDown(me);
		end()
	}

	/* ---- terms ---- */

	:: d_step { pc[me] == HOLD ->
		if
		:: left[me] == 0 -> stepDown(me)
		:: else ->
			printf("process %d: sends a heartbeat under %d, %d left\n", me, tok[me], left[me]);
			underWay(lateHb, tok[me]);
			send(me, BEATX)
		fi;
		end()
	}
	:: d_step { pc[me] == BEATX ->
		if :: tok[me] != 0 -> doHeartbeat(tok[me]) :: else fi;
		printf("process %d: heartbeat: %d (1 applied, 0 NOT_FOUND)\n", me, ok);
		if
		:: ok -> pc[me] = BEATR
		:: else -> stepDown(me)
		fi;
		end()
	}
	:: d_step { !calm && pc[me] == BEATX -> printf("process %d: heartbeat: no reply\n", me); sent[me] = 0; pc[me] = HOLD }
	:: d_step { pc[me] == BEATR ->
		if
		:: left[me] == 0 -> stepDown(me)
		:: else ->
			left[me] = sent[me];
			sent[me] = 0;
			pc[me] = (calm -> IDLE : HOLD);
			assertAlone(me)
		fi;
		printf("process %d: its heartbeat is acknowledged, %d left\n", me, left[me]);
		end()
	}
	:: d_step { (pc[me] == HOLD || pc[me] == IDLE) && left[me] > 0 ->
		printf("process %d: its work has returned: it releases %d\n", me, tok[me]);
		sent[me] = left[me];
		left[me] = 0;
		if
		:: locker(me) -> underWay(lateRel, tok[me])
		:: else -> underWay(lateOld, tok[me])
		fi;
		pc[me] = STOP;
		end()
	}
	:: d_step { pc[me] == STOP ->
		if
		:: tok[me] == 0 -> ok = false
		:: tok[me] != 0 && locker(me) -> doRelease(tok[me])
		:: tok[me] != 0 && !locker(me) -> doOwnOldRelease(tok[me])
		fi;
		printf("process %d: release: %d (1 applied, 0 NOT_FOUND)\n", me, ok);
		if
		:: ok ->
			forgetAll(me);
			pc[me] = LOOK
#ifdef MUTANT_GIVEN_BACK_LATE
		:: !ok -> pc[me] = GAVE
#else
		:: !ok && sent[me] > 0 -> pc[me] = GAVE
		:: !ok && sent[me] == 0 -> stepDown(me)
#endif
		fi;
		end()
	}
	:: d_step { !calm && pc[me] == STOP -> printf("process %d: release: left to expire\n", me); stepDown(me); end() }

	/* Table.GivenBack, before the deadline: it returns true only if the holder's own release was applied. */
	:: d_step { pc[me] == GAVE ->
#ifdef MUTANT_GIVEN_BACK_LATE
		ok = row && rtok > tok[me] && !broken(me);
#elif defined(MUTANT_GIVEN_BACK_UNBROKEN)
		ok = sent[me] > 0 && row && rtok > tok[me];
#else
		ok = sent[me] > 0 && row && rtok > tok[me] && !broken(me);
#endif
		printf("process %d: Table.GivenBack: %d\n", me, ok);
		falsely_given_back = ok && !gaveBack[me];
#ifndef HOLDERS
		assert(!falsely_given_back);
#endif
		forgetAll(me);
		pc[me] = LOOK;
		end()
	}
	od
}

/* ---- the environment ---- */

inline tick() {
	if :: age < LMAX && row && hb != RELEASED -> age++ :: else fi;
	for (k : 0 .. N - 1) {
		if :: left[k] > 0 -> left[k]-- :: else fi;
		if :: sent[k] > 0 -> sent[k]-- :: else fi;
#ifdef VANISHES
		if :: guard[k] > 0 && gone[k] && goneAge[k] < LMAX -> goneAge[k]++ :: else fi;
#endif
		if
		:: pc[k] == SLEEP -> pc[k] = LOOK
		:: pc[k] == IDLE -> pc[k] = HOLD
		:: else
		fi
	}
	gap = AHEAD;
	end()
}

#define waits(i) ((pc[i] == SLEEP || pc[i] == IDLE || pc[i] == DEAD) && !bg[i])
#if N == 3
#define allWait (waits(0) && waits(1) && waits(2))
#define someAlive (pc[0] != DEAD || pc[1] != DEAD || pc[2] != DEAD)
#define someHolder (left[0] > 0 || left[1] > 0 || left[2] > 0)
#else
#define allWait (waits(0) && waits(1))
#define someAlive (pc[0] != DEAD || pc[1] != DEAD)
#define someHolder (left[0] > 0 || left[1] > 0)
#endif

#define LATE(z) \
	:: d_step { (lateHb & bit(z)) != 0 -> doHeartbeat(z); printf("a late heartbeat under %d arrives: %d\n", z, ok); if :: calm -> lateHb = 0 :: else fi; end() } \
	:: d_step { (lateConf & bit(z)) != 0 -> doConfirm(z); printf("a late confirmation of %d arrives: %d\n", z, ok); if :: calm -> lateConf = 0 :: else fi; end() } \
	:: d_step { (lateWith & bit(z)) != 0 -> doWithdraw(z); printf("a late withdrawal of %d arrives: %d\n", z, ok); if :: calm -> lateWith = 0 :: else fi; end() } \
	:: d_step { (lateOld & bit(z)) != 0 -> doOwnOldRelease(z); printf("a late release of %d (ordinary) arrives: %d\n", z, ok); if :: calm -> lateOld = 0 :: else fi; end() } \
	:: d_step { (lateRel & bit(z)) != 0 -> doRelease(z); printf("a late release, or give-up, of %d arrives: %d\n", z, ok); if :: calm -> lateRel = 0 :: else fi; end() }

#ifdef BREAK
#define BREAKS(z) \
	:: d_step { !calm && row && rtok == z && rows[z] != NONE && (lateBrk & bit(z)) == 0 -> printf("an operator releases %d\n", z); lateBrk = lateBrk | bit(z) } \
	:: d_step { (lateBrk & bit(z)) != 0 -> \
		doOldRelease(z); \
		printf("an operator's release of %d arrives: %d\n", z, ok); \
		for (k : 0 .. N - 1) { if :: ok && pc[k] != LOOK && pc[k] != DEAD && pc[k] != CLAIM && pc[k] != SLEEP -> broke[k] = true :: else fi } \
		if :: calm -> lateBrk = 0 :: else fi; end() }
#else
#define BREAKS(z)
#endif

/* A blind claim is applied, and its reply does not arrive. */
#define CLAIMS(n) \
	:: d_step { cf[n] != 0 && (!calm || n % 3 == LOST) && blindly(n) -> doBlind(n); printf("a claim of process %d arrives, no reply (nonce %d)\n", n / 3, n % 3); end() }
#define LATECLAIM(i) \
	:: d_step { lateClaim[i] != 0 -> LATEDO(i); printf("a late claim of process %d (ordinary) arrives: %d\n", i, ok); lateClaim[i] = 0; LATEFORGET(i); end() }
#ifdef VANISHES
#define LATEDO(i) doClaim(i, lateClaim[i], lateKnown[i])
#define LATEFORGET(i) lateKnown[i] = 0
#else
#define LATEDO(i) doClaim(i, lateClaim[i], 0)
#define LATEFORGET(i) skip
#endif

/* A write fenced with z is committed, regardless of its age. If a process held the lock under z, no larger token must
 * exist now, and the lock must not be released. */
#define FENCED(z) \
	:: d_step { !calm && rows[z] != NONE && (held & bit(z)) != 0 -> printf("a write fenced with %d is committed\n", z); stale_fenced_write = z != TOPS || (row && hb == RELEASED); assert(!stale_fenced_write); end() }

proctype world() {
	do
	:: d_step { !calm || (allWait && someAlive) -> printf("-- a tick\n"); tick() }
#ifdef LIVENESS
	:: d_step { !calm -> printf("no faults from here on\n"); calm = true }
#endif
	CLAIMS(0) CLAIMS(1) CLAIMS(2)
#if LOCKERS > 1
	CLAIMS(3) CLAIMS(4) CLAIMS(5)
#endif
	LATECLAIM(0)
	LATECLAIM(1)
#if N == 3
	LATECLAIM(2)
#endif
	LATE(1) BREAKS(1) FENCED(1)
#ifdef REMEMBER
	LATE(2) LATE(3) LATE(4) LATE(5) LATE(6)
	FENCED(2) FENCED(3) FENCED(4) FENCED(5) FENCED(6)
	BREAKS(4)
#endif
#ifdef OPERATOR
	:: d_step { !calm && row ->
		printf("an operator deletes the lock row\n");
		row = false;
		rtok = 0;
		hb = RELEASED;
		age = 0;
		writer = 0;
		written();
#ifndef REMEMBER
		lateHb = 0;
		lateRel = 0;
		lateOld = 0;
		lateConf = 0;
		lateWith = 0;
#endif
		end()
	}
	:: d_step { !calm && rows[TOPS] == FREE -> printf("an operator deletes the free row\n"); rows[TOPS] = NONE }
#endif
#ifdef ORPHAN
	:: d_step { !calm && rows[TOPS + 1] == NONE -> printf("an operator inserts the row name_%d\n", TOPS + 1); rows[TOPS + 1] = LEASE(0, LOST) }
#endif
#ifdef PRUNE
	/* Prune is one transaction. The age of the release does not matter here. */
	:: d_step { !calm && row && hb == RELEASED ->
		printf("prune\n");
#ifndef MUTANT_PRUNE_KEEPS_FREE
		rows[rtok] = NONE;
#endif
		row = false;
		rtok = 0;
		age = 0;
		writer = 0;
		written();
#ifdef LIMIT_PRUNE_FORGETS_BREAK
		for (k : 0 .. N - 1) { broke[k] = false }
#endif
		end()
	}
#endif
	od
}

init {
	d_step {
		for (k : 0 .. N - 1) { pc[k] = LOOK }
#ifdef BEGUN
		row = true;
		rtok = TOPS;
#ifdef MUTANT_FREE_STANDING
		standing = true;
#else
		rows[TOPS] = FREE;
#endif
#endif
		end()
	}
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
/* Once faults stop, there is a holder again and again, as in spindle.pml. */
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
#endif
