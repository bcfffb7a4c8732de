// Package group distributes partitions, such as tenants, shards or queues, among the processes of a service. A group
// can have up to 20,000 partitions. Only one process at a time works on a partition, under that partition's own fencing
// token. Each process gets a share in proportion to its weight, to within one partition. When a process joins, leaves
// or dies, no more partitions move than necessary.
//
// A process sends a single stream of heartbeats, however many partitions it owns.
//
//	g := group.New(db, "locktable", "orders", group.Numbered(64),
//		group.WithWork(func(ctx context.Context, p group.Partition) error { ... }))
//	err := g.Run(ctx, done)
//
// A [Group] is one member of the group with the given name. A member holds a lock of its own, such as
// "orders/member/0007", and extends it with heartbeats like any other lock. It also claims its share of the partitions,
// each of which is a lock such as "orders/partition/17". A member keeps its partitions for as long as it holds its own
// lock.
//
// There is no coordinator. The lock table contains a plan, which assigns each partition to a member. When members join
// or leave, each member computes the next plan from the current one, and all of them get the same result.
//
// A group guarantees that two processes never act on the same partition at the same time, as long as no machine's clock
// runs more than 1 % slow. Fenced writes, such as [Partition.Apply], do not depend on clocks at all. While a member
// keeps its term, none of its partitions moves to another member until the work on that partition has returned. A
// member that cannot claim or release partitions gives up its share to the other members.
//
// A group does not guarantee that every partition has an owner at all times. After a member has lost its term, or after
// [Group.LetGo], work on a partition may begin in another process before the old work has returned. The load may be
// uneven, because a group balances the number of partitions and does not measure their load.
//
// The files, by topic:
//
//	group.go, options.go, requests.go  the API: New and Run, the options, and Pause, Resume and LetGo
//	partition.go, view.go, health.go   the partition passed to the work, the members of a group, and this member's health
//	run.go, join.go, leave.go          the loop of a member, how it joins the group, and how it gives up a term
//	term.go                            the loop of one term
//	inventory.go                       the state of each partition for this member; no other file changes it
//	looks.go, seen.go                  when to poll the group, and what to do after a poll
//	claimable.go                       when a partition can be claimed (a pure function)
//	decide.go                          what to do about a partition (the decision table, a pure function)
//	publish.go                         how plans are published; internal/plan knows the members and computes the plan
//	moves.go, executor.go, pace.go     how partitions are claimed, revoked and released, and in which commits
//	evict.go                           how the terms of dead members are ended
//	work.go                            how work begins, and what happens when it returns
//	fitness.go                         when a member is useless, and how long it cools down
//	metrics.go, alarm.go               metrics, and a timer for the loop
//
// docs/groups.md explains why groups are safe.
package group
