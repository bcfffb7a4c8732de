// Package group distributes partitions, such as tenants, shards or queues, among the processes of a service. A group
// can have up to 20,000 partitions. Each partition has at most one owner at a time, and its own fencing token. Each
// process gets a share in proportion to its weight, give or take one partition. When a process joins, leaves or dies,
// no more partitions move than necessary.
//
// For each group, a process sends a single stream of heartbeats, however many partitions it owns.
//
//	g := group.New(db, "locktable", "orders", group.Numbered(64),
//		group.WithWork(func(ctx context.Context, p group.Partition) error { ... }))
//	err := g.Run(ctx, done)
//
// A [Group] is one member of the group whose name is passed to [New]. It owns partitions only while it holds a lock of
// its own, such as "orders/member/0007". There is no coordinator: each member computes the same plan, which assigns
// each partition to a member.
//
// A group guarantees that two processes never own the same partition at the same time, as long as no machine's clock
// runs more than 1% slow. Fenced writes, such as [Partition.Apply], do not depend on clocks at all. While a member
// keeps its term, a partition moves to another member only after the work on it has returned, or after [Group.LetGo]. A
// member that cannot claim or release partitions gives up its share to the other members.
//
// A group does not guarantee that every partition has an owner at all times. After a member has lost its term, or after
// [Group.LetGo], work on a partition may begin in another process before the old work has returned. The load may be
// uneven, because a group balances the number of partitions and does not measure their load.
//
// docs/groups.md explains why groups are safe.
package group
