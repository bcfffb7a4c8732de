// Package week runs an elector, a mutex and a group for two hours of virtual time, or for a week with -for=168h, under
// the faults that Spanner has in production. It logs for what share of this time their locks are held.
package week
