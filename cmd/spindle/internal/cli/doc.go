// Package cli is the spindle command. Each subcommand has a file of its name; the other files have one thing each, which
// their name says.
package cli
