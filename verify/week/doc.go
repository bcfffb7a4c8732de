// Package week runs an elector, a mutex and a group for a week of virtual time, under the faults that Spanner has in
// production, and prints the share of time for which each has a holder.
package week
