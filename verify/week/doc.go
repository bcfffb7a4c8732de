// Package week runs an elector, a mutex and a group for a week of virtual time, under the faults that Spanner has in
// production, and prints how much of the time they have a holder.
package week
