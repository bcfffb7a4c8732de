//go:build !linux

package child

// adopt does nothing: only Linux gives what a program leaves behind to this process.
func adopt() (callOff func()) { return func() {} }

// ReapAsInit does nothing.
func ReapAsInit() {}

func endOrphans(int) (killed, left int) { return 0, 0 }

// KillMarked finds nothing: only Linux says what a process's environment is.
func KillMarked(...string) bool { return false }

func rename(string) {}
