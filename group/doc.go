// Package group spreads partitions over processes: tenants, shards, queues, from one to 20,000. One process at a time
// works on each partition, under a fencing token of its own. Each process has a share in proportion to its weight, give
// or take one partition. When a process joins, leaves or dies, only the partitions move that have to.
//
// A process sends one heartbeat, however many partitions it has.
//
//	g := group.New(db, "locktable", "orders", group.Numbered(64),
//		group.WithWork(func(ctx context.Context, p group.Partition) error { ... }))
//	err := g.Run(ctx, done)
//
// A [Group] is one member of the group of that name. A member holds a lock, "orders/member/0007", with heartbeats like
// any lock, and claims its share of the partitions, which are locks too: "orders/partition/17". A partition is held as
// long as its member's lock. There is no coordinator: the members publish a plan in the lock table, and each computes
// the same next plan from it.
//
// Promised: two processes never act on one partition, as long as no machine's clock runs more than 1 % slow. Fenced
// writes ([Partition.Apply]) don't depend on clocks at all. As long as a member keeps its term, a partition moves only
// after its work has returned. A member that can't do its work leaves its share to the others.
//
// Not promised: that a partition always has a process; that work has returned before another begins, once a member has
// lost its term, or after [Group.LetGo]; an even load, because partitions are counted and not measured.
//
// The files, by idea:
//
//	group.go, options.go, requests.go  what a program calls: New and Run, the options, Pause, Resume and LetGo
//	partition.go, view.go, health.go   what work is given, who is in the group, whether this member gets on
//	run.go, join.go, leave.go          the life of a member: its loop, how it joins, how it gives a term up
//	term.go                            the loop of one term
//	inventory.go                       what each partition is to this member: the one place where its state changes
//	looks.go, seen.go                  when to look at the group, and what follows from a look
//	claimable.go                       when a partition can be claimed: a pure function
//	decide.go                          what is done about a partition: the table of the decision, pure
//	planning.go, publish.go            which partitions are assigned to which member; internal/plan computes it
//	moves.go, executor.go, pace.go     how partitions are claimed, revoked and released, in which commits, how many at a time
//	evict.go                           how the terms of dead members end
//	work.go                            how work begins, and what happens when it returns
//	fitness.go                         when a member is useless, and how long it cools down
//	metrics.go, alarm.go               what it reports, and a time at which something is due
//
// docs/groups.md says why it is safe.
package group
