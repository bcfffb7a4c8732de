//go:build !linux

package child

// adopt does nothing, because a process can adopt orphans only on Linux.
func adopt() (callOff func()) { return func() {} }

// ReapAsInit does nothing.
func ReapAsInit() {}

func endOrphans(int) (killed, left int) { return 0, 0 }

// KillMarked returns false, because it can read the environment of processes only on Linux.
func KillMarked(...string) bool { return false }

func rename(string) {}
