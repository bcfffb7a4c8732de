// Package share tracks a group's partitions for one member, and decides what the member does about each of them. It
// never waits, sends a request or reads a clock. The loop of package group acts on the decisions.
package share
