/*
 * Partitions that last as long as their member, as a Promela model. README.md describes its scope; `./check` runs it. A
 * member is a lock. The steps of a lock are in spindle.pml; here, a member only has a heartbeat, a deadline, and an end.
 *
 * Configuration, by -D:
 *   N=2|3              number of processes; each becomes a member repeatedly, under a new token each time
 *   SLOTS=2|3          number of slots that they share, N by default. A process that finds no slot waits for one
 *   SHARED             a process whose last term has not ended can take any slot. Without SHARED, it takes its last slot
 *   P=1|2              number of partitions
 *   L0, L1, L2         leases in ticks
 *   OPERATOR           an operator deletes rows by hand, at any time and any number of times
 *   MEMBERS_ONLY       (with OPERATOR) only rows of members
 *   PARTITIONS_ONLY    (with OPERATOR) only rows of partitions
 *   LIVENESS           adds `calm`, after which no fault happens any more
 *   SICK               process 0 sends heartbeats and looks, but its claims can be aborted, and its confirmations always are
 *   STIFF              process 1 sends heartbeats and looks, but its releases and reconciliations are always aborted
 *   NOTHING_LATE       fewer faults, for more members and partitions: a request that the caller gives up on is lost, and
 *                      there are no duplicates
 *   MUTANT_...         breaks one thing; see the list below
 *   LIMIT_...          a case that the protocol does not tolerate
 *   TOP                keeps only member_gone and the assertions about observable behavior
 *   ACTS_ONLY          as TOP, but without member_gone
 *
 * Faults. Their number is unlimited. None is scheduled; each can happen at any point.
 *   pause        time can pass between any two steps of any process (tick)
 *   crash        at any point; the process returns with an empty memory, or never
 *   abort        a commit that is aborted every time is modeled as a commit that is not applied
 *   lost request, lost reply, timeout
 *                the caller can give up on any commit. The commit is then applied at any later time, or never
 *   duplicates   heartbeats, and releases of members and partitions, are applied again at any later time
 *
 * Abstractions, and why they lose no behavior:
 *   terms        a row names a member by slot and token. All terms that have ended are interchangeable, so a name is
 *                either OVER or a slot, which refers to the slot's current term that has not ended. When that term ends,
 *                all names that refer to it become OVER. The number of terms is therefore not bounded
 *   slots        free slots are interchangeable, and the model stores nothing about them. It therefore does not matter
 *                which of them a process takes. A slot has no fixed position: the slot that process i takes is called i
 *                from then on, and the slot that was called i gets the other name. A slot whose lock row has expired is
 *                freed in one step and taken in the next, because a claim compares the heartbeat like an eviction
 *   top slot     above these slots, there is one more, whose lock row is never deleted. All the modeled slots are thus
 *                below the highest slot that is seen, and a process knows that a slot without rows exists
 *   tokens       the tokens of a partition are interchangeable as well: a token is either the newest or an old one
 *   observations a process does not store the rows that it saw, but whether it would still find them: obs. Any commit
 *                that writes the row resets obs. An eviction depends on a row that is the same for all processes
 *   memory       every running process has seen each member's lease, in a look just before that lease is deleted. A
 *                process loses this memory in a crash, so a process with a shorter lease does not crash while a
 *                member without a lease row acts; see LIMIT_MEMBER_LEASE_ROW
 *   heartbeat    a member's heartbeat is one step, which also sets its deadline; no deadline is later than that. An
 *                earlier deadline, because time passes before the commit, is equivalent to a lost reply and a late
 *                duplicate
 *   join         is a claim that always succeeds, followed by a confirmation. spindle.pml models the steps in between
 *   time         as in spindle.pml: ages and remaining times, up to the longest lease
 *   looks        one step for each partition, which sees the members' rows at the same instant. Different partitions do
 *                not have to be seen at the same instant
 *   deleted rows every process has seen a deleted row at the instant before its deletion, and none sees it at the instant
 *                after. Any other order of looks only lets a process act for less time and wait for longer
 *   batches      a claim, a confirmation or an eviction of several rows treats each row independently, so one commit is
 *                equivalent to several consecutive ones. A release of several partitions fails for all if it fails for
 *                one. In the model, each part can be answered or not, and applied late, independently, which allows more
 *                behavior than is possible in reality
 *   the plan     is arbitrary while faults happen: a process can want, or not want, a partition at any time. When calm,
 *                the first slot with a live member in the look has partition 0, and the last one has partition 1
 */

#ifndef N
#define N 2
#endif
#ifndef SLOTS
#define SLOTS N
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
#define longer(a, b) ((a) > (b) -> (a) : (b))

#if N == 3 && L2 > L0 && L2 > L1
#define LMAX L2
#elif L0 > L1
#define LMAX L0
#else
#define LMAX L1
#endif

/* The mutants, and what each breaks:
 *   MUTANT_EVICT_IGNORES_HEARTBEAT evict compares only the token
 *   MUTANT_EVICT_TWO_INSTANTS      evict uses the age from one read, and compares the heartbeat from the next
 *   MUTANT_LATE_DEADLINE           a member acts for one tick too long
 *   MUTANT_CONFIRM_UNCHECKED       confirm without the Update of M
 *   MUTANT_CLAIM_KEEPS_LEASE_ROW   claim does not delete the lease row
 *   MUTANT_CLAIM_UNCOMPARED        claim does not compare the row
 *   MUTANT_RELEASE_BEFORE_RETURN   a partition is released when its work is revoked
 *   MUTANT_RELEASE_TAKEN_BACK      after a release without a reply, the partition is acted on again
 *   MUTANT_LEAVE_BEFORE_RETURN     a member leaves while work is running
 *   MUTANT_ADOPT                   a member acts on partitions whose rows name it in a look
 *   MUTANT_EARLIER_TERM            the reply to a confirmation is believed in the next term
 *   MUTANT_TWO_READS               members and partitions are read at two instants
 *   MUTANT_RECONCILE_UNCOMPARED    reconcile frees any row that names the member, without comparing it with the look
 *   MUTANT_MISSING_IS_OVER         a member without a row counts as over (this and the following need OPERATOR)
 *   MUTANT_TIMER_BY_SLOT           the time for which a member is missing is counted per slot, whatever its token
 *   MUTANT_SLOT_AT_ONCE            for a process that joins, a slot without rows is free immediately
 *   MUTANT_LEASE_FORGOTTEN         a member's lease is forgotten when its row is deleted
 *   MUTANT_LOOKS_IGNORED           a member acts no matter how long ago it last saw the partition's lease row
 *   MUTANT_ABSENT_IS_FREE          a partition without rows is free immediately
 *   MUTANT_GONE_OWN_LEASE          a partition without rows is free after the looking process's lease, whatever the member's lease
 *   MUTANT_NO_RECONCILE            nothing is reconciled (this and the following need LIVENESS)
 *   MUTANT_CONFIRM_FORGOTTEN       a confirmation without a reply is forgotten
 *   MUTANT_LEFT_OUT_RESOLVES       an unresolved partition becomes free when a claim leaves it out
 *   MUTANT_RELEASE_FORGOTTEN       a release without a reply is forgotten
 *   MUTANT_BARE_FOR_EVER           a bare claim belongs to its member, however old it is
 *   MUTANT_NEVER_EVICTED           no process evicts
 *   MUTANT_MISSING_FOR_EVER        processes wait forever for a member without a row (needs OPERATOR)
 *   MUTANT_ORPHANS_FOR_EVER        processes wait forever for an orphan lease, whatever its member's state (needs OPERATOR)
 *   MUTANT_STAYS_SICK              a member whose claims or releases always fail stays (needs SICK or STIFF)
 * Not caught, and harmless; see README.md:
 *   MUTANT_EVICT_IGNORES_BEATS     evict compares the token and whether the member has confirmed, but not the heartbeat
 *   MUTANT_CONFIRM_UNCHECKED       with ACTS_ONLY
 * Cases that the protocol does not tolerate (they need OPERATOR):
 *   LIMIT_MEMBER_LEASE_ROW         a member's lease row is deleted, and a process with a shorter lease has not seen it
 *   LIMIT_SLOT_TWICE               both rows of a slot are deleted twice, and a process that joins has not looked in between
 */

#ifdef LIVENESS
bool calm;        /* no further fault happens */
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

byte by[SLOTS];       /* 1 + the process whose term has the slot and has not ended. 0: the lock row is released. The following
                         variables describe that term */
byte age[SLOTS];      /* now - heartbeat, at most LMAX */
bool evicting[SLOTS]; /* an eviction is in transit, and its observation still holds */
bool lateLeave[SLOTS]; /* a release is in transit */
bool bare[SLOTS];     /* it is claimed but not confirmed, so there is no M yet */
bool lateJoin[SLOTS]; /* a confirmation is in transit */
#define there(s) (by[s] != 0)
#define termLease(s) lease(by[s] - 1)
#ifdef OPERATOR
bool norow[SLOTS];    /* its lock row was deleted */
bool nolease[SLOTS];  /* its lease row, M, was deleted */
#define hasRow(s) (!norow[s])
#define hasM(s) (there(s) && !bare[s] && !nolease[s])
#else
#define hasRow(s) true
#define hasM(s) (there(s) && !bare[s])
#endif
#ifdef MUTANT_EVICT_TWO_INSTANTS
byte read[SLOTS];     /* 1 + the time since a heartbeat was read. 0: none was read */
#endif

/* ---- Spanner: partitions ---- */

#define X(i, p) ((i) * P + (p))
#define Y(i, s) ((i) * SLOTS + (s))

byte row[P];      /* the lock row: */
#define RELEASED 0
#define BARE 1    /*   claimed, not confirmed */
#define LIVE 2    /*   confirmed */
#define ABSENT 3  /*   there is none */
byte with[P];     /* its writer: 0 = OVER (or none), 1 + s = the current term of slot s */
byte bareAge[P];  /* of a bare claim: now - token, at most LMAX */
byte record[P];  /* the lease row of the newest token, and the member in its lease record: */
#define NONE 0    /*   there is none */
#define OVER 1    /*   a term that has ended */
#define M(s) ((s) + 2) /* the current term of slot s */
bool oldRecord[P]; /* there is a lease row of an older token */

/* In transit: sent, and neither known to be applied nor known to be lost. */
bool lateConfirm[P];       /* a confirmation of the row's bare claim */
bool lateRelease[P];       /* a release under the newest token */
byte lateClaim[N * P];     /* a claim that process i gave up on: its obs */
byte lateWith[N * P];      /* and the claimant, as in with */
byte lateReconcile[N * P]; /* a reconciliation whose observation still holds */

/* ---- the processes ---- */

byte in[N];
#define OUT 0
#define IN 1      /* a member */
#define DEAD 2    /* the process never returns */
#define JOIN 3    /* it has claimed a slot, and is about to confirm */
byte at[N];       /* 1 + the slot that it has, if its term there has not ended. 0: it has no slot, or its term has ended without its knowledge */
byte left[N];     /* time until the local deadline of the member */
byte state[N * P]; /* of each partition: */
#define FREE 0
#define CLAIMED 1    /* about to claim or confirm */
#define HELD 2       /* acted on */
#define REVOKING 3   /* the work's context is canceled, and the work is still running */
#define RELEASING 4  /* the work has returned; about to release */
#define UNRESOLVED 5 /* a claim or release with an unknown outcome */
byte sub[N * P];  /* the step in progress for it: */
#define CLAIM 1      /* CLAIMED: the claim of a free partition */
#define AGAIN 2      /* CLAIMED: the claim of an unresolved partition */
#define CONFIRM 3    /* CLAIMED: the confirmation */
#define REPLY 4      /* CLAIMED: it is confirmed, and the reply is in transit */
#define LOST 5       /* REVOKING: its lease row is missing */
#define RECONCILE 6  /* UNRESOLVED: the reconciliation */
byte obs[N * P];  /* the observation, when about to claim or reconcile: */
#define SAME 1    /*   (0: none) the row is unchanged */
#define OTHER 2   /*   the row has changed */
#define NOROW 3   /*   there was no row, and there still is none */
bool newest[N * P]; /* the token that it claimed under is still the newest */
#ifdef OPERATOR
byte look[N * P]; /* the time left until the partition must be seen again: lease - since(last look that showed its lease row) */
byte missing[N * SLOTS]; /* 1 + the time for which process i has known that the term of slot s has no row. 0: it does not know */
byte gone[N * P]; /* 1 + the time for which process i has known that partition p has no rows */
#endif
#ifdef LIVENESS
bool beaten[N];   /* when calm: steps that are taken once per tick */
bool looked[N * P];
byte rest[N];     /* when calm: time until it joins again after its claims or releases failed */
#endif

/* Temporary variables of one step. */
byte k, s, t;
bool ok;
bool two_act, stale_fenced_write, member_gone, rows_wrong, forgotten; /* the names that assertions report */

inline end() {
	k = 0;
	s = 0;
	t = 0;
	ok = false;
	two_act = false;
	stale_fenced_write = false;
	member_gone = false;
	rows_wrong = false;
	forgotten = false
}

#if defined(OPERATOR) && !defined(MUTANT_LOOKS_IGNORED)
#define mayAct(i, p) (left[i] > 0 && look[X(i, p)] > 0)
#else
#define mayAct(i, p) (left[i] > 0)
#endif
#define acts(i, p) ((state[X(i, p)] == HELD || state[X(i, p)] == REVOKING) && mayAct(i, p))

/* No two members act on a partition. Checked whenever a member begins to act, or moves its deadline. */
inline assertAlone(i, p) {
	for (k : 0 .. N - 1) {
		if
		:: k != i && acts(k, p) && acts(i, p) -> two_act = true
		:: else
		fi
	}
	assert(!two_act)
}

/* Checked after each commit to a partition's rows. A write fenced with an old token would commit if that token had a
 * lease row. A lease row exists exactly if the lock row is confirmed, unless rows are deleted by hand. If a row names
 * a member's term that has not ended, that member does not regard the partition as free. */
inline assertRows(p) {
	stale_fenced_write = oldRecord[p];
	assert(!stale_fenced_write);
#ifndef TOP
#ifndef OPERATOR
	rows_wrong = (row[p] == LIVE) != (record[p] != NONE) || (row[p] == LIVE && record[p] != with[p] + 1);
	assert(!rows_wrong);
#endif
	for (k : 0 .. N - 1) {
		if
		:: in[k] == IN && at[k] != 0 && state[X(k, p)] == FREE && ((row[p] == LIVE && with[p] == at[k]) || record[p] == at[k] + 1) -> forgotten = true
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
		lateWith[X(k, p)] = 0;
#ifndef MUTANT_RECONCILE_UNCOMPARED
		lateReconcile[X(k, p)] = 0
#endif
	}
}

/* A new claim: there is a newer token than any token in use. */
inline superseded(p) {
	for (k : 0 .. N - 1) {
		newest[X(k, p)] = false
#ifdef OPERATOR
		;
		gone[X(k, p)] = 0
#endif
	}
	lateConfirm[p] = false;
	lateRelease[p] = false
}

/* The term of slot i has ended: it was released, or a different term has begun. */
inline over(i) {
	by[i] = 0;
	age[i] = 0;
	evicting[i] = false;
	lateLeave[i] = false;
	bare[i] = false;
	lateJoin[i] = false;
#ifdef MUTANT_EVICT_TWO_INSTANTS
	read[i] = 0;
#endif
#ifdef OPERATOR
	norow[i] = false;
	nolease[i] = false;
#endif
	for (k : 0 .. N - 1) {
#if defined(LIMIT_SLOT_TWICE)
		if :: in[k] == IN -> missing[Y(k, i)] = 0 :: else fi;
#elif defined(OPERATOR) && !defined(MUTANT_TIMER_BY_SLOT)
		missing[Y(k, i)] = 0;
#endif
		if :: at[k] == i + 1 -> at[k] = 0 :: else fi
	}
	for (k : 0 .. P - 1) {
		if
		:: with[k] == i + 1 ->
			with[k] = 0;
			bareAge[k] = 0;
#ifndef MUTANT_CONFIRM_UNCHECKED
			lateConfirm[k] = false /* M was deleted */
#endif
		:: else
		fi;
		if :: record[k] == M(i) -> record[k] = OVER :: else fi
	}
	for (k : 0 .. N * P - 1) {
		if :: lateWith[k] == i + 1 -> lateWith[k] = 0 :: else fi;
#ifdef MUTANT_RECONCILE_UNCOMPARED
		if :: lateReconcile[k] == i + 1 -> lateReconcile[k] = 0 :: else fi
#endif
	}
}

/* The slots a and b exchange names. No process is in a, and b is free. */
#define swap(x, y) t = x; x = y; y = t
inline rename(a, b) {
	if
	:: a != b ->
		swap(by[a], by[b]);
		swap(age[a], age[b]);
		swap(evicting[a], evicting[b]);
		swap(lateLeave[a], lateLeave[b]);
		swap(bare[a], bare[b]);
		swap(lateJoin[a], lateJoin[b]);
#ifdef MUTANT_EVICT_TWO_INSTANTS
		swap(read[a], read[b]);
#endif
#ifdef OPERATOR
		swap(norow[a], norow[b]);
		swap(nolease[a], nolease[b]);
		for (k : 0 .. N - 1) { swap(missing[Y(k, a)], missing[Y(k, b)]) }
#endif
		for (k : 0 .. P - 1) {
			if :: with[k] == a + 1 -> with[k] = b + 1 :: else fi;
			if :: record[k] == M(a) -> record[k] = M(b) :: else fi
		}
		for (k : 0 .. N * P - 1) {
			if :: lateWith[k] == a + 1 -> lateWith[k] = b + 1 :: else fi;
#ifdef MUTANT_RECONCILE_UNCOMPARED
			if :: lateReconcile[k] == a + 1 -> lateReconcile[k] = b + 1 :: else fi
#endif
		}
	:: else
	fi
}

/* claim of p, observed as o, by the term w (as in with): ok = applied */
#ifdef MUTANT_CLAIM_UNCOMPARED
#define stillAs(o, p) ((o) != 0)
#else
#define stillAs(o, p) ((o) == SAME || (o) == NOROW)
#endif
inline doClaim(p, o, w) {
	ok = stillAs(o, p);
	if
	:: ok ->
#ifdef MUTANT_CLAIM_KEEPS_LEASE_ROW
		oldRecord[p] = oldRecord[p] || record[p] != NONE;
#else
		oldRecord[p] = false; /* the claimant has seen the old lease row, and deletes it */
#endif
		row[p] = BARE;
		with[p] = w;
		bareAge[p] = 0;
		record[p] = NONE;
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
	ok = row[p] == BARE && confirmable(p);
	if
	:: ok ->
#ifndef ACTS_ONLY
		member_gone = with[p] == 0 || !hasM(with[p] - 1);
		assert(!member_gone);
#endif
		row[p] = LIVE;
		bareAge[p] = 0;
		record[p] = with[p] + 1;
		lateConfirm[p] = false;
		changed(p);
		assertRows(p)
	:: else
	fi
}

/* release of p under the newest token: ok = applied, otherwise NOT_FOUND. */
#define releasable(p) (record[p] != NONE && row[p] != ABSENT)
inline doRelease(p) {
	ok = releasable(p);
	if
	:: ok ->
		row[p] = RELEASED;
		with[p] = 0;
		bareAge[p] = 0;
		record[p] = NONE;
		lateConfirm[p] = false;
		lateRelease[p] = false;
		changed(p);
		assertRows(p)
	:: else
	fi
}

/* The members see that partition p has no rows. */
#ifdef OPERATOR
#define seeGone(i, p) if :: row[p] == ABSENT && record[p] == NONE && gone[X(i, p)] == 0 -> gone[X(i, p)] = 1 :: else fi
inline allSeeGone(p) {
	for (k : 0 .. N - 1) {
		if :: in[k] == IN -> seeGone(k, p) :: else fi
	}
}
#else
#define seeGone(i, p) skip
#define allSeeGone(p) skip
#endif

/* reconcile of p, observed as o, by the term w: ok = applied. */
inline doReconcile(p, o, w) {
#ifdef MUTANT_RECONCILE_UNCOMPARED
	ok = row[p] != ABSENT && with[p] != 0 && with[p] == w;
#else
	ok = o == SAME || o == NOROW;
#endif
	if
	:: ok ->
		if :: row[p] != ABSENT -> row[p] = RELEASED :: else fi;
		with[p] = 0;
		bareAge[p] = 0;
		record[p] = NONE;
		lateConfirm[p] = false;
		lateRelease[p] = false;
		changed(p);
		allSeeGone(p);
		assertRows(p)
	:: else
	fi
}

/* heartbeat of the term of slot i: ok = applied, otherwise NOT_FOUND. An eviction based on an older observation will
 * find it changed. */
inline doBeat(i) {
	ok = hasM(i) && hasRow(i);
	if
	:: ok ->
		age[i] = 0;
#if !defined(MUTANT_EVICT_IGNORES_HEARTBEAT) && !defined(MUTANT_EVICT_IGNORES_BEATS)
		evicting[i] = false
#endif
	:: else
	fi
}

/* confirm of the claim of slot i: ok = applied. */
inline doJoin(i) {
	ok = there(i) && bare[i] && hasRow(i);
	lateJoin[i] = false;
	if
	:: ok ->
		bare[i] = false;
		age[i] = 0;
#ifndef MUTANT_EVICT_IGNORES_HEARTBEAT
		evicting[i] = false
#endif
	:: else
	fi
}

/* release of the member of slot i: ok = applied, otherwise NOT_FOUND. */
inline doLeave(i) {
	ok = hasM(i) && hasRow(i);
	lateLeave[i] = false;
	if :: ok -> over(i) :: else fi
}

/* ---- observations ---- */

/* Process i remembers the lease of the term of slot s, or sees it. */
#if defined(LIMIT_MEMBER_LEASE_ROW)
#define knows(i, s) hasM(s)
#elif defined(MUTANT_LEASE_FORGOTTEN)
#define knows(i, s) hasRow(s)
#else
#define knows(i, s) true
#endif
#define known(i, s) (!bare[s] && knows(i, s) -> termLease(s) : 0)

/* The member of slot s can be evicted, because its heartbeat is older than its lease. */
#define expired(i, s) (there(s) && hasRow(s) && age[s] >= (known(i, s) > 0 -> known(i, s) : lease(i)))

/* The term of slot s has no row, and process i has known this for the longest of the leases that it knows: its own
 * lease, the member's lease, and the lease in the partition's lease row. */
#ifdef OPERATOR
#define missingFor(i, s, wait) (there(s) && norow[s] && missing[Y(i, s)] > (wait))
#define byMember(i, s) longer(lease(i), known(i, s))
#define byPartition(i, s, p) (record[p] == M(s) -> longer(byMember(i, s), termLease(s)) : byMember(i, s))
#ifdef MUTANT_MISSING_IS_OVER
#define waitedFor(i, s, p) (there(s) && norow[s])
#elif defined(MUTANT_MISSING_FOR_EVER)
#define waitedFor(i, s, p) false
#else
#define waitedFor(i, s, p) missingFor(i, s, byPartition(i, s, p))
#endif
#ifdef MUTANT_SLOT_AT_ONCE
#define slotMissing(i, s) (there(s) && norow[s] && !hasM(s))
#else
#define slotMissing(i, s) missingFor(i, s, byMember(i, s))
#endif
#else
#define waitedFor(i, s, p) false
#define slotMissing(i, s) false
#endif

/* A process takes any free slot, the slot of its own last term, or one that has been missing for long enough. Of the
 * free slots, which are interchangeable, it takes the highest one. */
#if SLOTS == 3
#define chosen(s) (((s) == 2 || there(2)) && ((s) != 0 || there(1)))
#else
#define chosen(s) ((s) == 1 || there(1))
#endif
#if SLOTS == 3
#define remains(i) (by[0] == (i) + 1 || by[1] == (i) + 1 || by[2] == (i) + 1)
#else
#define remains(i) (by[0] == (i) + 1 || by[1] == (i) + 1)
#endif
#ifdef SHARED
#define mayChoose(i) true
#else
#define mayChoose(i) (!remains(i))
#endif
#define mayJoin(i, s) ((!there(s) && chosen(s) && mayChoose(i)) || by[s] == (i) + 1 || slotMissing(i, s))

#ifdef MUTANT_TWO_READS
bool reading[N];  /* process i has read the members' rows, and is about to read the partition's */
byte stale[N];    /* 1 + the slot that a different process has claimed since then */
#define otherToken(i, s) (stale[i] == (s) + 1)
#else
#define otherToken(i, s) false
#endif

/* For process i, partition p is free if its rows name the term w (0: over, 1 + slot). Rows that name its own term
 * make it free for itself. */
#define isOver(i, w, p) ((w) == 0 || (w) == at[i] || waitedFor(i, (w) - 1, p) || otherToken(i, (w) - 1))

#ifdef MUTANT_BARE_FOR_EVER
#define bareTooLong(i, p) false
#else
#define bareTooLong(i, p) (bareAge[p] >= lease(i))
#endif
#ifdef MUTANT_ORPHANS_FOR_EVER
#define orphanOver(i, p) false
#else
#define orphanOver(i, p) isOver(i, record[p] - 1, p)
#endif
#ifdef OPERATOR
#ifdef MUTANT_ABSENT_IS_FREE
#define goneLong(i, p) true
#else
#ifdef MUTANT_GONE_OWN_LEASE
#define goneFor(i) lease(i)
#else
#define goneFor(i) LMAX /* its member's lease, assumed to be the longest */
#endif
#define goneLong(i, p) (gone[X(i, p)] > goneFor(i))
#endif
#else
#define goneLong(i, p) true
#endif

#define claimable(i, p) ( \
	(row[p] == RELEASED) || \
	(row[p] == BARE && (isOver(i, with[p], p) || bareTooLong(i, p))) || \
	(row[p] == LIVE && isOver(i, with[p], p)) || \
	(row[p] == ABSENT && record[p] != NONE && orphanOver(i, p)) || \
	(row[p] == ABSENT && record[p] == NONE && goneLong(i, p)))

#define namesMe(i, p) (at[i] != 0 && (((row[p] == BARE || row[p] == LIVE) && with[p] == at[i]) || record[p] == at[i] + 1))
#define showsMine(i, p) (at[i] != 0 && record[p] == at[i] + 1 && newest[X(i, p)])

/* The plan, when calm. */
#define alive(s) (there(s) && !bare[s] && hasRow(s) && age[s] < termLease(s))
#if SLOTS == 3
#define first (alive(0) -> 0 : (alive(1) -> 1 : 2))
#define last (alive(2) -> 2 : (alive(1) -> 1 : 0))
#else
#define first (alive(0) -> 0 : 1)
#define last (alive(1) -> 1 : 0)
#endif
#define wanted(i, p) (at[i] == 1 + ((p) == 0 -> first : last))
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

inline become(i, p, what, under) {
	state[X(i, p)] = what;
	sub[X(i, p)] = under;
	obs[X(i, p)] = 0;
	if :: what == FREE || what == UNRESOLVED -> newest[X(i, p)] = false :: else fi;
#ifdef OPERATOR
	if :: under != REPLY && what != HELD && what != REVOKING -> look[X(i, p)] = 0 :: else fi
#endif
}

/* The member's term has ended: the member has learned this, its deadline has passed, or it has left. */
inline endTerm(i) {
	left[i] = 0;
	in[i] = OUT;
	at[i] = 0;
	for (k : 0 .. P - 1) {
#ifdef MUTANT_EARLIER_TERM
		if :: sub[X(i, k)] != REPLY -> become(i, k, FREE, 0) :: else fi
#else
		become(i, k, FREE, 0)
#endif
	}
}

#ifdef MUTANT_LATE_DEADLINE
#define allowed(i) (lease(i) + 1)
#else
#define allowed(i) lease(i)
#endif

#define works(i, p) (state[X(i, p)] == HELD || state[X(i, p)] == REVOKING)
#ifdef MUTANT_LEAVE_BEFORE_RETURN
#define mayLeave(i) true
#elif P == 1
#define mayLeave(i) (!works(i, 0))
#else
#define mayLeave(i) (!works(i, 0) && !works(i, 1))
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

/* A claim or a release keeps failing, and nothing else is in progress: the member ends its term and cools down. */
inline giveUp(i, p) {
#if (defined(SICK) || defined(STIFF)) && !defined(MUTANT_STAYS_SICK)
	if
	:: calm ->
		if :: at[i] != 0 -> t = at[i] - 1; over(t) :: else fi;
		endTerm(i);
		rest[i] = lease(i)
	:: else -> become(i, p, UNRESOLVED, 0)
	fi
#else
	become(i, p, UNRESOLVED, 0)
#endif
}

#define is(i, p, what, under) (in[i] == IN && state[X(i, p)] == what && sub[X(i, p)] == under)
#define toClaim(i, p) (in[i] == IN && state[X(i, p)] == CLAIMED && (sub[X(i, p)] == CLAIM || sub[X(i, p)] == AGAIN))
#define seenAs(p) (row[p] == ABSENT -> NOROW : SAME)

#if defined(MUTANT_CONFIRM_FORGOTTEN)
#define confirmUnknown FREE
#else
#define confirmUnknown UNRESOLVED
#endif

#ifdef MUTANT_LEFT_OUT_RESOLVES
#define leftOut FREE
#else
#define leftOut UNRESOLVED
#endif

/* A confirmation of a term that has ended is refused. */
#ifdef MUTANT_CONFIRM_UNCHECKED
#define confirmOld(i, p) if :: newest[X(i, p)] -> doConfirm(p); ok = false :: else -> ok = false fi
#define sentInTerm(p) true
#else
#define confirmOld(i, p) ok = false
#define sentInTerm(p) (with[p] != 0)
#endif

#ifdef OPERATOR
#define seeNow(i, p) look[X(i, p)] = lease(i)
#else
#define seeNow(i, p) skip
#endif

inline claims(i, p) {
	doClaim(p, obs[X(i, p)], at[i]);
	printf("process %d: claims partition %d: %d (1 applied, 0 changed)\n", i, p, ok);
	if
	:: ok -> become(i, p, CLAIMED, CONFIRM)
	:: !ok && sub[X(i, p)] == AGAIN -> become(i, p, leftOut, 0)
	:: else -> become(i, p, FREE, 0)
	fi;
	newest[X(i, p)] = ok
}

inline confirms(i, p) {
	if
	:: newest[X(i, p)] && at[i] != 0 -> doConfirm(p)
	:: else -> confirmOld(i, p)
	fi;
	printf("process %d: confirms partition %d: %d (1 applied, 0 refused)\n", i, p, ok);
	if :: ok -> seeNow(i, p); become(i, p, CLAIMED, REPLY) :: else -> become(i, p, UNRESOLVED, 0) fi
}

inline releases(i, p) {
	ok = false;
	if :: newest[X(i, p)] -> doRelease(p) :: else fi;
	printf("process %d: releases partition %d: %d (1 applied, 0 NOT_FOUND)\n", i, p, ok);
	if
	:: state[X(i, p)] == RELEASING && ok -> become(i, p, FREE, 0)
	:: state[X(i, p)] == RELEASING && !ok -> become(i, p, UNRESOLVED, 0)
	:: else
	fi
}

/* The steps of process me for partition p. */
#define PARTITION(p) \
	/* free */ \
	:: d_step { is(me, p, FREE, 0) && mayWant(me, p) && claimable(me, p) && !namesMe(me, p) -> \
		printf("process %d: sees that it can claim partition %d\n", me, p); \
		hasLooked(me, p); \
		become(me, p, CLAIMED, CLAIM); \
		obs[X(me, p)] = seenAs(p); \
		seen(); end() } \
	:: d_step { is(me, p, FREE, 0) && mayWant(me, p) && namesMe(me, p) -> \
		printf("process %d: sees that partition %d names its own member, unexpectedly\n", me, p); \
		become(me, p, UNRESOLVED, 0); \
		seen(); end() } \
	/* claimed */ \
	:: d_step { toClaim(me, p) -> claims(me, p); end() } \
	:: d_step { faulty && toClaim(me, p) -> \
		printf("process %d: claims partition %d: no reply\n", me, p); \
		ok = late && (obs[X(me, p)] == SAME || obs[X(me, p)] == NOROW); \
		lateClaim[X(me, p)] = (ok -> obs[X(me, p)] : 0); \
		lateWith[X(me, p)] = (ok -> at[me] : 0); \
		become(me, p, UNRESOLVED, 0); \
		end() } \
	:: d_step { toClaim(me, p) && unable(me) -> \
		printf("process %d: claims partition %d: aborted\n", me, p); \
		giveUp(me, p); \
		end() } \
	:: d_step { is(me, p, CLAIMED, CONFIRM) && !unable(me) -> confirms(me, p); end() } \
	:: d_step { is(me, p, CLAIMED, CONFIRM) && unable(me) -> \
		printf("process %d: confirms partition %d: aborted\n", me, p); \
		giveUp(me, p); \
		end() } \
	:: d_step { faulty && is(me, p, CLAIMED, CONFIRM) -> \
		printf("process %d: confirms partition %d: no reply\n", me, p); \
		lateConfirm[p] = lateConfirm[p] || (late && !unable(me) && newest[X(me, p)] && row[p] == BARE && sentInTerm(p)); \
		become(me, p, confirmUnknown, 0); \
		end() } \
	:: d_step { is(me, p, CLAIMED, REPLY) -> \
		printf("process %d: confirmation of partition %d is acknowledged, it acts\n", me, p); \
		become(me, p, HELD, 0); \
		assertAlone(me, p); \
		end() } \
	:: d_step { is(me, p, CLAIMED, REPLY) && mayNotWant(me, p) -> \
		printf("process %d: confirmation of partition %d is acknowledged, but is no longer wanted\n", me, p); \
		become(me, p, REVOKING, 0); \
		assertAlone(me, p); \
		end() } \
	:: d_step { faulty && is(me, p, CLAIMED, REPLY) -> \
		printf("process %d: the reply to the confirmation of partition %d is lost\n", me, p); \
		become(me, p, confirmUnknown, 0); \
		end() } \
	/* held: no longer wanted, or about to leave */ \
	:: d_step { is(me, p, HELD, 0) && mayNotWant(me, p) -> \
		printf("process %d: revokes partition %d\n", me, p); \
		hasLooked(me, p); \
		become(me, p, REVOKING, 0) } \
	/* revoking */ \
	:: d_step { is(me, p, REVOKING, 0) -> \
		printf("process %d: the work on partition %d has returned\n", me, p); \
		become(me, p, RELEASING, 0) } \
	/* releasing */ \
	:: d_step { in[me] == IN && mayRelease(me, p) && !stiff(me) -> releases(me, p); end() } \
	:: d_step { in[me] == IN && mayRelease(me, p) && stiff(me) -> \
		printf("process %d: releases partition %d: aborted\n", me, p); \
		giveUp(me, p); \
		end() } \
	:: d_step { faulty && is(me, p, RELEASING, 0) -> \
		printf("process %d: releases partition %d: no reply\n", me, p); \
		lateRelease[p] = lateRelease[p] || (late && !stiff(me) && newest[X(me, p)] && record[p] != NONE); \
		releaseUnknown(me, p); \
		end() } \
	/* unresolved */ \
	:: d_step { is(me, p, UNRESOLVED, 0) && mayWant(me, p) && namesMe(me, p) && claimable(me, p) -> \
		printf("process %d: sees that partition %d names its own member, and claims it under a new token\n", me, p); \
		hasLooked(me, p); \
		become(me, p, CLAIMED, AGAIN); \
		obs[X(me, p)] = seenAs(p); \
		seen(); end() } \
	:: d_step { is(me, p, UNRESOLVED, 0) && mayNotWant(me, p) && namesMe(me, p) && RECONCILES -> \
		printf("process %d: sees that partition %d names its own member\n", me, p); \
		hasLooked(me, p); \
		become(me, p, UNRESOLVED, RECONCILE); \
		obs[X(me, p)] = seenAs(p); \
		seen(); end() } \
	:: d_step { is(me, p, UNRESOLVED, 0) && !namesMe(me, p) -> \
		printf("process %d: sees that partition %d does not name its own member\n", me, p); \
		become(me, p, FREE, 0); \
		seen(); end() } \
	:: d_step { is(me, p, UNRESOLVED, RECONCILE) && !stiff(me) -> \
		doReconcile(p, obs[X(me, p)], at[me]); \
		printf("process %d: reconciles partition %d: %d (1 applied, 0 changed)\n", me, p, ok); \
		become(me, p, (ok -> FREE : UNRESOLVED), 0); \
		end() } \
	:: d_step { is(me, p, UNRESOLVED, RECONCILE) && stiff(me) -> \
		printf("process %d: reconciles partition %d: aborted\n", me, p); \
		giveUp(me, p); \
		end() } \
	:: d_step { faulty && is(me, p, UNRESOLVED, RECONCILE) -> \
		printf("process %d: reconciles partition %d: no reply\n", me, p); \
		lateReconcile[X(me, p)] = (late && !stiff(me) && (obs[X(me, p)] == SAME || obs[X(me, p)] == NOROW) -> reconciler(me) : 0); \
		become(me, p, UNRESOLVED, 0); \
		end() } \
	ADOPTS(p) \
	SEES(p) \
	LOOKS(p)

/* The steps of process me for two partitions in one commit. */
#define BOTH \
	:: d_step { toClaim(me, 0) && toClaim(me, 1) -> claims(me, 0); claims(me, 1); end() } \
	:: d_step { is(me, 0, CLAIMED, CONFIRM) && is(me, 1, CLAIMED, CONFIRM) && !unable(me) -> confirms(me, 0); confirms(me, 1); end() } \
	:: d_step { is(me, 0, RELEASING, 0) && is(me, 1, RELEASING, 0) && !stiff(me) -> \
		if \
		:: newest[X(me, 0)] && newest[X(me, 1)] && releasable(0) && releasable(1) -> releases(me, 0); releases(me, 1) \
		:: else -> \
			printf("process %d: releases both partitions: NOT_FOUND\n", me); \
			become(me, 0, UNRESOLVED, 0); \
			become(me, 1, UNRESOLVED, 0) \
		fi; \
		end() }

#ifdef MUTANT_RELEASE_TAKEN_BACK
#define releaseUnknown(i, p) state[X(i, p)] = HELD; assertAlone(i, p)
#elif defined(MUTANT_RELEASE_FORGOTTEN)
#define releaseUnknown(i, p) become(i, p, FREE, 0)
#else
#define releaseUnknown(i, p) become(i, p, UNRESOLVED, 0)
#endif

#ifdef MUTANT_RELEASE_BEFORE_RETURN
#define mayRelease(i, p) (state[X(i, p)] == REVOKING || state[X(i, p)] == RELEASING)
#else
#define mayRelease(i, p) (state[X(i, p)] == RELEASING)
#endif

#ifdef MUTANT_NO_RECONCILE
#define RECONCILES false
#else
#define RECONCILES true
#endif

#ifdef MUTANT_RECONCILE_UNCOMPARED
#define reconciler(i) at[i]
#else
#define reconciler(i) 1
#endif

#ifdef MUTANT_TWO_READS
#define seen() reading[me] = false; stale[me] = 0
#else
#define seen() skip
#endif

#ifdef MUTANT_ADOPT
#define ADOPTS(p) \
	:: d_step { in[me] == IN && at[me] != 0 && (state[X(me, p)] == FREE || state[X(me, p)] == UNRESOLVED) && sub[X(me, p)] == 0 && record[p] == at[me] + 1 -> \
		printf("process %d: adopts partition %d, because its rows name it\n", me, p); \
		become(me, p, HELD, 0); \
		newest[X(me, p)] = true; \
		seeNow(me, p); \
		assertAlone(me, p); \
		end() }
#else
#define ADOPTS(p)
#endif

/* A look that shows that the lease row of a held partition is missing. Its work returns, and there is nothing to
 * release. */
#ifdef OPERATOR
#define SEES(p) \
	:: d_step { (is(me, p, HELD, 0) || is(me, p, REVOKING, 0)) && mayLook(me, p) && !showsMine(me, p) -> \
		printf("process %d: sees that its lease row of partition %d is missing\n", me, p); \
		hasLooked(me, p); \
		become(me, p, REVOKING, LOST) } \
	:: d_step { is(me, p, REVOKING, LOST) -> \
		printf("process %d: the work on partition %d has returned\n", me, p); \
		become(me, p, UNRESOLVED, 0) }
#else
#define SEES(p)
#endif

/* When calm: nothing to do for it before the next tick. */
#ifdef LIVENESS
#ifdef OPERATOR
#define isValid(i, p) showsMine(i, p)
#else
#define isValid(i, p) true
#endif
#define nothingToDo(i, p) ( \
	(is(i, p, FREE, 0) && !(wanted(i, p) && (claimable(i, p) || namesMe(i, p)))) || \
	(is(i, p, UNRESOLVED, 0) && !RECONCILES && !wanted(i, p) && namesMe(i, p)) || \
	(is(i, p, HELD, 0) && wanted(i, p) && isValid(i, p)))
#define LOOKS(p) \
	:: d_step { calm && in[me] == IN && !looked[X(me, p)] && nothingToDo(me, p) -> looked[X(me, p)] = true }
#else
#define LOOKS(p)
#endif

inline amnesia(i) {
#ifdef OPERATOR
	for (k : 0 .. SLOTS - 1) { missing[Y(i, k)] = (norow[k] -> 1 : 0) }
	for (k : 0 .. P - 1) { gone[X(i, k)] = 0 }
#endif
#ifdef MUTANT_EARLIER_TERM
	for (k : 0 .. P - 1) { become(i, k, FREE, 0) }
#endif
	skip
}

/* A fact that only process i remembers, because no row shows it any more: the longer lease of a member that acts. */
#if defined(OPERATOR) && !defined(LIMIT_MEMBER_LEASE_ROW)
#define alone(i, s) (there(s) && nolease[s] && termLease(s) > lease(i) && at[by[s] - 1] == (s) + 1)
#if SLOTS == 3
#define mayForget(i) (!alone(i, 0) && !alone(i, 1) && !alone(i, 2))
#else
#define mayForget(i) (!alone(i, 0) && !alone(i, 1))
#endif
#else
#define mayForget(i) true
#endif

#ifdef LIVENESS
#define rested(i) (rest[i] == 0)
#define mayBeat(i) (!calm || !beaten[i])
inline hasBeaten(i) { beaten[i] = calm }
#else
#define rested(i) true
#define mayBeat(i) true
inline hasBeaten(i) { skip }
#endif

/* The steps of process me for slot s: it joins there, or observes that the member there sends no heartbeats. A
 * process that is about to join observes that as well. */
#define looks(i, s) ((in[i] == IN || (in[i] == OUT && rested(i))) && at[i] != (s) + 1)
#ifdef MUTANT_NEVER_EVICTED
#define EVICTS(s)
#elif defined(MUTANT_EVICT_TWO_INSTANTS)
#define EVICTS(s) \
	:: d_step { looks(me, s) && there(s) && read[s] == 0 -> printf("process %d: reads the heartbeat of member %d\n", me, s); read[s] = 1 } \
	:: d_step { looks(me, s) && there(s) && read[s] > termLease(s) && !evicting[s] -> printf("process %d: reads the row of member %d again, a lease after the heartbeat that it knows, and evicts it\n", me, s); evicting[s] = true }
#else
#define EVICTS(s) \
	:: d_step { looks(me, s) && expired(me, s) && !evicting[s] -> printf("process %d: sees that member %d has sent no heartbeat for its lease, and evicts it\n", me, s); evicting[s] = true }
#endif
#ifdef MUTANT_TWO_READS
#define othersRead(s) for (k : 0 .. N - 1) { if :: reading[k] && k != me -> stale[k] = s + 1 :: else fi }
#else
#define othersRead(s) skip
#endif
#define SLOT(s) \
	:: d_step { in[me] == OUT && rested(me) && mayJoin(me, s) -> \
		printf("process %d: claims slot %d\n", me, s); \
		over(s); \
		rename(me, s); \
		by[me] = me + 1; \
		at[me] = me + 1; \
		bare[me] = true; \
		in[me] = JOIN; \
		joins(me); \
		othersRead(me); \
		end() } \
	EVICTS(s)

/* From here on, it no longer counts only slots. */
inline joins(i) {
#ifdef LIMIT_SLOT_TWICE
	for (k : 0 .. SLOTS - 1) { missing[Y(i, k)] = 0 }
#else
	skip
#endif
}

proctype process(byte me) {
	do
	SLOT(0) SLOT(1)
#if SLOTS == 3
	SLOT(2)
#endif
	:: d_step { in[me] == JOIN ->
		if :: at[me] != 0 -> t = at[me] - 1; doJoin(t) :: else -> ok = false fi;
		printf("process %d: confirms its slot: %d (1 applied, 0 refused)\n", me, ok);
		if
		:: ok ->
			in[me] = IN;
			left[me] = allowed(me);
			for (k : 0 .. P - 1) { seeGone(me, k) }
#ifdef MUTANT_EARLIER_TERM
			for (s : 0 .. P - 1) { assertAlone(me, s) }
#endif
		:: else -> in[me] = OUT; at[me] = 0
		fi;
		end()
	}
	:: d_step { faulty && in[me] == JOIN ->
		printf("process %d: confirms its slot: no reply\n", me);
		if :: at[me] != 0 -> t = at[me] - 1; lateJoin[t] = late && bare[t] && hasRow(t) :: else fi;
		in[me] = OUT;
		at[me] = 0;
		end()
	}
	/* The member's heartbeat. */
	:: d_step { in[me] == IN && left[me] > 0 && mayBeat(me) ->
		if :: at[me] != 0 -> t = at[me] - 1; doBeat(t) :: else -> ok = false fi;
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
		if :: at[me] != 0 -> t = at[me] - 1; doLeave(t) :: else -> ok = false fi;
		printf("process %d: leaves: %d (1 applied, 0 NOT_FOUND)\n", me, ok);
#ifndef MUTANT_LEAVE_BEFORE_RETURN
		endTerm(me);
#endif
		end()
	}
	:: d_step { faulty && in[me] == IN && mayLeave(me) ->
		printf("process %d: leaves: no reply\n", me);
		if :: at[me] != 0 -> t = at[me] - 1; lateLeave[t] = late :: else fi;
#ifndef MUTANT_LEAVE_BEFORE_RETURN
		endTerm(me);
#endif
		end()
	}
	:: d_step { faulty && in[me] != DEAD && mayForget(me) ->
		printf("process %d: crashes\n", me);
		endTerm(me);
		amnesia(me);
		end()
	}
	:: d_step { faulty && in[me] != DEAD ->
		printf("process %d: crashes permanently\n", me);
		endTerm(me);
		amnesia(me);
		in[me] = DEAD;
#ifdef OPERATOR
		for (k : 0 .. SLOTS - 1) { missing[Y(me, k)] = 0 }
#endif
		end()
	}
	PARTITION(0)
#if P == 2
	PARTITION(1)
	BOTH
#endif
#ifdef MUTANT_TWO_READS
	:: d_step { in[me] == IN && !reading[me] -> printf("process %d: reads the members' rows\n", me); reading[me] = true }
#endif
	od
}

/* ---- the environment ---- */

inline tick() {
	for (s : 0 .. SLOTS - 1) {
		if :: there(s) && hasRow(s) && age[s] < LMAX -> age[s]++ :: else fi;
#ifdef MUTANT_EVICT_TWO_INSTANTS
		if :: read[s] > 0 && read[s] <= LMAX -> read[s]++ :: else fi;
#endif
#ifdef OPERATOR
		for (k : 0 .. N - 1) {
			if :: missing[Y(k, s)] > 0 && missing[Y(k, s)] <= LMAX -> missing[Y(k, s)]++ :: else fi
		}
#endif
	}
	for (s : 0 .. N - 1) {
		if
		:: left[s] == 1 -> endTerm(s) /* the deadline */
		:: left[s] > 1 -> left[s]--
		:: else
		fi;
#ifdef LIVENESS
		beaten[s] = false;
		if :: rest[s] > 0 -> rest[s]-- :: else fi;
#endif
		for (k : 0 .. P - 1) {
#ifdef LIVENESS
			looked[X(s, k)] = false;
#endif
#ifdef OPERATOR
			if :: look[X(s, k)] > 0 && !showsMine(s, k) -> look[X(s, k)]-- :: else fi;
			if :: gone[X(s, k)] > 0 && gone[X(s, k)] <= LMAX -> gone[X(s, k)]++ :: else fi;
#endif
			skip
		}
	}
	for (k : 0 .. P - 1) {
		if :: row[k] == BARE && with[k] != 0 && bareAge[k] < LMAX -> bareAge[k]++ :: else fi
	}
	end()
}

#ifdef LIVENESS
#define restsOn(i, p) (looked[X(i, p)] && (is(i, p, FREE, 0) || is(i, p, UNRESOLVED, 0) || is(i, p, HELD, 0)))
#if P == 2
#define restsOnAll(i) (restsOn(i, 0) && restsOn(i, 1))
#else
#define restsOnAll(i) restsOn(i, 0)
#endif
#ifdef MUTANT_NEVER_EVICTED
#define toEvict(i, s) false
#else
#define toEvict(i, s) (expired(i, s) || evicting[s])
#endif
#define toDo(i, s) ((looks(i, s) && toEvict(i, s)) || (in[i] == OUT && rested(i) && mayJoin(i, s)))
#if SLOTS == 3
#define toDoAny(i) (toDo(i, 0) || toDo(i, 1) || toDo(i, 2))
#else
#define toDoAny(i) (toDo(i, 0) || toDo(i, 1))
#endif
#define waits(i) (!toDoAny(i) && in[i] != JOIN && (in[i] != IN || (beaten[i] && restsOnAll(i))))
#if N == 3
#define allWait (waits(0) && waits(1) && waits(2))
#define someAlive (in[0] != DEAD || in[1] != DEAD || in[2] != DEAD)
#else
#define allWait (waits(0) && waits(1))
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
	:: d_step { late && lateConfirm[p] -> doConfirm(p); printf("a late confirmation of partition %d arrives: %d (1 applied, 0 refused)\n", p, ok); lateConfirm[p] = false; end() } \
	:: d_step { late && lateRelease[p] -> doRelease(p); printf("a late release of partition %d arrives: %d (1 applied, 0 NOT_FOUND)\n", p, ok); end() } \
	PARTITIONBYHAND(p)

#define LATEOF(i, p) \
	:: d_step { late && lateClaim[X(i, p)] != 0 -> doClaim(p, lateClaim[X(i, p)], lateWith[X(i, p)]); printf("a late claim of partition %d by process %d arrives\n", p, i); end() } \
	:: d_step { late && lateReconcile[X(i, p)] != 0 -> doReconcile(p, SAME, lateReconcile[X(i, p)]); printf("a late reconciliation of partition %d by process %d arrives: %d (1 applied, 0 changed)\n", p, i, ok); lateReconcile[X(i, p)] = 0; end() }

#define LATEMEMBER(i) \
	:: d_step { late && there(i) && (age[i] > 0 || evicting[i]) -> doBeat(i); printf("a late heartbeat of member %d arrives: %d (1 applied, 0 NOT_FOUND)\n", i, ok); end() } \
	:: d_step { late && lateLeave[i] -> doLeave(i); printf("a late release of member %d arrives: %d (1 applied, 0 NOT_FOUND)\n", i, ok); end() } \
	:: d_step { evicting[i] -> ok = there(i) && hasRow(i); printf("the eviction of member %d arrives: %d (1 applied, 0 changed)\n", i, ok); if :: ok -> over(i) :: else fi; evicting[i] = false; end() } \
	:: d_step { late && lateJoin[i] -> doJoin(i); printf("a late confirmation of member %d arrives: %d (1 applied, 0 refused)\n", i, ok); end() } \
	MEMBERBYHAND(i)

/* Rows are deleted by hand. */
#ifdef OPERATOR
#ifdef LIMIT_SLOT_TWICE
#define newOrphan(i) hasM(i) /* shows the new term while it exists */
#else
#define newOrphan(i) false
#endif
inline allMiss(i) {
	for (k : 0 .. N - 1) {
		if :: in[k] != DEAD && (missing[Y(k, i)] == 0 || newOrphan(i)) -> missing[Y(k, i)] = 1 :: else fi
	}
}
#ifdef MEMBERS_ONLY
#define PARTITIONBYHAND(p)
#else
#define PARTITIONBYHAND(p) \
	:: d_step { faulty && row[p] != ABSENT -> \
		printf("an operator deletes the lock row of partition %d\n", p); \
		row[p] = ABSENT; with[p] = 0; bareAge[p] = 0; lateConfirm[p] = false; \
		changed(p); allSeeGone(p); end() } \
	:: d_step { faulty && record[p] != NONE -> \
		printf("an operator deletes the lease row of partition %d\n", p); \
		record[p] = NONE; lateRelease[p] = false; \
		allSeeGone(p); end() }
#endif
#ifdef PARTITIONS_ONLY
#define MEMBERBYHAND(i)
#else
#define MEMBERBYHAND(i) \
	:: d_step { faulty && there(i) && hasRow(i) -> \
		printf("an operator deletes the lock row of member %d\n", i); \
		norow[i] = true; age[i] = 0; lateJoin[i] = false; evicting[i] = false; lateLeave[i] = false; \
		allMiss(i); end() } \
	:: d_step { faulty && hasM(i) -> \
		printf("an operator deletes the lease row of member %d\n", i); \
		nolease[i] = true; lateLeave[i] = false }
#endif
#else
#define PARTITIONBYHAND(p)
#define MEMBERBYHAND(i)
#endif

proctype world() {
	do
	:: d_step { mayTick -> printf("-- a tick\n"); tick() }
#ifdef LIVENESS
	:: d_step { !calm ->
		printf("no faults from here on\n");
		calm = true;
		for (k : 0 .. P - 1) { lateConfirm[k] = false; lateRelease[k] = false }
		for (k : 0 .. N * P - 1) { lateClaim[k] = 0; lateWith[k] = 0; lateReconcile[k] = 0 }
		for (k : 0 .. SLOTS - 1) { lateLeave[k] = false; lateJoin[k] = false }
		end()
	}
#endif
	LATE(0)
	LATEOF(0, 0) LATEOF(1, 0)
	LATEMEMBER(0) LATEMEMBER(1)
#if SLOTS == 3
	LATEMEMBER(2)
#endif
#if P == 2
	LATE(1)
	LATEOF(0, 1) LATEOF(1, 1)
#endif
#if N == 3
	LATEOF(2, 0)
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
/* Once faults stop, a process acts on the partition again and again. */
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
/* Once faults stop, each partition is eventually acted on permanently. The negation: when calm, one partition is
 * again and again not acted on. */
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
