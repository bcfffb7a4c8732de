package emulator

// An owner is the process with which an emulator ends.
//
// The zero owner is this process. Any other is identified by its start time as
// well as its pid, as the system gives the pid of an ended process to another.
type owner struct {
	pid   int
	start string

	// state is a file to be removed when the owner ends.
	state string
}

var thisProcess owner
