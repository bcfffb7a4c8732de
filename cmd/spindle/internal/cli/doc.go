// Package cli assembles the spindle command from its subcommands.
//
//   - root.go: the root command; help.go: the order of each help
//   - version.go, install.go, man.go, schema.go: the subcommands of these names
//
// The other subcommands are in packages of their own. Package run has exec and guard. Package view has ls, status,
// members and watch. Package operate has init, doctor, handover, release and prune. Packages serve and demo have one
// subcommand each. All of them use the packages model, complete, connect, terminal, flags and exit.
//
// Package run uses child to run programs, and probe and systemd to report about them.
package cli
