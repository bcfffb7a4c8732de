// Spindle runs a program on exactly one machine, and shows who holds which lock in a Cloud Spanner table. Run it
// without arguments for a summary, or run spindle demo for a demonstration.
package main

import (
	"os"
	_ "time/tzdata" // for --tz on machines that know no zones

	"github.com/spindle-lock/spindle/cmd/spindle/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
