// Package cli is the spindle command. Each subcommand is a file of its name. The other files are named for the one
// thing that is in each.
package cli
