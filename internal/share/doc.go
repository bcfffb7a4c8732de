// Package share holds what one member of a group has of the group's partitions, and decides what to do about them.
// Nothing here waits or sends a request, and times come as values: the loop of package group asks, and acts.
package share
