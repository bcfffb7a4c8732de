// Package group distributes partitions, such as tenants, shards or queues, over the processes of a service. A group can
// have up to 20,000 partitions. Only one process at a time works on a partition, under that partition's own fencing
// token. Each process gets a share in proportion to its weight, give or take one partition. When a process joins,
// leaves or dies, only the partitions that have to move are moved.
//
// A process sends one stream of heartbeats, no matter how many partitions it has.
//
//	g := group.New(db, "locktable", "orders", group.Numbered(64),
//		group.WithWork(func(ctx context.Context, p group.Partition) error { ... }))
//	err := g.Run(ctx, done)
//
// A [Group] is one member of the group with the given name. A member holds a lock such as "orders/member/0007", which
// it extends with heartbeats like any other lock. It also claims its share of the partitions, each of which is a lock
// such as "orders/partition/17". A member keeps its partitions for as long as it holds its own lock. There is no
// coordinator: the members publish a plan in the lock table, and each member computes the same next plan from it.
//
// A group guarantees that two processes never act on the same partition, as long as no machine's clock runs more than
// 1 % slow. Fenced writes ([Partition.Apply]) do not depend on clocks at all. As long as a member keeps its term, a
// partition moves only after the member's work on it has returned. A member that cannot do its work leaves its share to
// the other members.
//
// A group does not guarantee that every partition has a process at all times. Once a member has lost its term, or after
// [Group.LetGo], work on a partition may begin elsewhere before the old work has returned. The load may be uneven,
// because the group counts partitions and does not measure them.
//
// The files, by topic:
//
//	group.go, options.go, requests.go  the API for programs: New and Run, the options, Pause, Resume and LetGo
//	partition.go, view.go, health.go   the argument of the work, the members of a group, and the health of this member
//	run.go, join.go, leave.go          a member's life: its loop, how it joins, and how it gives up a term
//	term.go                            the loop of one term
//	inventory.go                       the state of each partition for this member; no other file changes it
//	looks.go, seen.go                  when to look at the group, and what to do after a look
//	claimable.go                       when a partition can be claimed: a pure function
//	decide.go                          what to do about a partition: the decision table, a pure function
//	planning.go, publish.go            how partitions are assigned to members; internal/plan computes the assignment
//	moves.go, executor.go, pace.go     how partitions are claimed, revoked and released, and in which commits
//	evict.go                           how the terms of dead members are ended
//	work.go                            how work begins, and what happens when it returns
//	fitness.go                         when a member is useless, and how long it cools down
//	metrics.go, alarm.go               the metrics, and a timer for the loop
//
// docs/groups.md explains why groups are safe.
package group
