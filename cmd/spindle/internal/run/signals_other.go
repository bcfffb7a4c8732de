//go:build !unix

package run

import (
	"io/fs"
	"os"
	"syscall"
)

var (
	endings  = []os.Signal{os.Interrupt}
	passedOn = endings
)

// terminationSignal is never delivered on these systems.
const terminationSignal = syscall.SIGTERM

func ends(os.Signal) bool { return true }

func signalCode(os.Signal) int { return 130 }

func asksForTerminal(os.Signal) bool { return false }

const keyStop = syscall.SIGTERM // these systems have no Ctrl-Z

func interrupt(int) os.Signal { return nil }

// owner returns -1, because nothing needs the owner on these systems.
func owner(fs.FileInfo) int { return -1 }

func openTerminal() Terminal { return nil }
