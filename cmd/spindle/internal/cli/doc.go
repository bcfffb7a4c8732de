// Package cli implements the spindle command as a whole: the set of its subcommands, and how a subcommand is run.
//
//   - root.go: the command line
//   - version.go, man.go: the subcommands of these names
//   - schema.go: the JSON Schema for the output of all commands
//
// Most subcommands are in packages of their own: compete has exec and guard; inspect has ls, status and members; operate has
// init, doctor, handover, release and prune; watchcmd, servecmd and demo have one each. These packages build on describe,
// states, complete, connect, terminal, flags and exit. The parts that do not depend on the command line are in execcmd,
// guard, serve and watch, which use child, hooks, probe and systemd.
package cli
