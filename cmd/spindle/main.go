// Spindle runs a program on exactly one machine, and shows who holds which lock in a table in Cloud
// Spanner. Start it without arguments to see what it can do; spindle demo shows it.
package main

import (
	"os"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
