// Spindle runs a program on one machine at a time, and shows who holds which lock in a Cloud Spanner table. Run it
// without arguments for a summary, or run spindle demo for a demonstration.
package main

import (
	"os"
	_ "time/tzdata" // for --tz on machines without a time zone database

	"github.com/spindle-lock/spindle/cmd/spindle/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
