// Package cli is the spindle command. Each subcommand is a file of that name; each other file is named for the
// one thing that is in it.
package cli
