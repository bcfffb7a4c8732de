// Package week runs an elector, a mutex and a group for two hours of virtual time, or for a week with -for=168h, under
// the faults that Spanner has in production. It logs the share of time for which each has a holder.
package week
