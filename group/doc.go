// Package group spreads partitions over processes: tenants, shards, queues, from one to 20,000. Each partition is
// worked on by one process at any instant, under a fencing token of its own. Shares differ by at most one. Partitions
// move when a process joins, leaves or dies: as many as have to, and a few more if there are gaps among the members' slots.
//
// It costs one heartbeat for each process, however many partitions there are.
//
//	g := group.New(db, "locktable", "orders", group.Numbered(64),
//		group.WithWork(func(ctx context.Context, p group.Partition) { ... }))
//	err := g.Run(ctx, done)
//
// A [Group] is one member of the group of that name. A member holds a lock, "orders/member/0007", with heartbeats as
// any lock has, and takes its share of the partitions, which are locks too: "orders/partition/17". A partition is held
// as long as its member's lock is. Who has what is a function of the members that are there: there is no coordinator.
//
// What holds for locks holds for each partition: two processes never act on one, as long as no machine's clock
// runs more than 1 % slow, and fenced writes ([Partition.Apply]) don't depend on clocks at all.
//
// Not promised: that a partition always has a process; an even load, as partitions are counted and not weighed.
//
// The files: group.go is the API, partition.go what the work is given, view.go who is there, health.go whether this
// member gets on; member.go is the loop of a member, and join.go how it becomes one; term.go is one term of it, look.go
// what it sees, free.go when a partition can be taken, move.go how it is taken and given, pace.go how many at a time.
// docs/protocol.md says why it is safe.
package group
