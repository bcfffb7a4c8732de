// Package cli is the spindle command as a whole: which subcommands there are, and how one is run.
//
//   - root.go: the command line
//   - version.go, man.go: the subcommands of these names
//   - schema.go: the JSON Schema of what all commands print
//
// The subcommands are in packages: compete has exec and guard; inspect has ls, status and members; operate has init, doctor,
// handover, release and prune; watchcmd, servecmd and demo have one each. They build on describe, states, complete, connect,
// terminal, flags and exit. The parts without a command line are in execcmd, guard, serve and watch, which use child, hooks,
// probe and systemd.
package cli
