// Package cli is the spindle command: one file for each of its commands, and
//
//   - root.go: the command line, its errors and exit codes
//   - flags.go: flags that can be environment variables
//   - connect.go: the database
//   - paper.go: what a table looks like on a terminal, and elsewhere
package cli
