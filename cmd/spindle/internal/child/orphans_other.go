//go:build !linux

package child

// adopt does nothing: this process can adopt orphans only on Linux.
func adopt() (callOff func()) { return func() {} }

// ReapAsInit does nothing.
func ReapAsInit() {}

func endOrphans(int) (killed, left int) { return 0, 0 }

// KillMarked finds nothing: only Linux shows the environment of a process.
func KillMarked(...string) bool { return false }

func rename(string) {}
