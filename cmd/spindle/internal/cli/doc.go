// Package cli assembles the spindle command from its subcommands.
//
//   - root.go: the root command
//   - version.go, install.go, man.go, schema.go: the subcommands of these names
//
// The other subcommands are in packages of their own. Package run has exec and guard. Package inspect has ls, status and
// members. Package operate has init, doctor, handover, release and prune. Packages watchcmd, servecmd and demo have one
// subcommand each. All of them use the packages describe, states, complete, connect, terminal, flags and exit.
//
// Package run uses child to run programs, and probe and systemd to report about them. Code that does not depend on the
// command line is also in packages agent and serve.
package cli
