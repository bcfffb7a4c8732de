//go:build !linux

package child

// adopt does nothing, because a process can adopt orphans only on Linux.
func adopt() (callOff func()) { return func() {} }

// ReapAsInit does nothing.
func ReapAsInit() {}

func endOrphans(int) (killed, left int) { return 0, 0 }

// KillMarked returns false, because it can read the environment of processes only on Linux.
func KillMarked(string, ...string) bool { return false }

func rename(string) {}

// born returns "", because start times can be read only on Linux.
func born(int) string { return "" }

// onlyZombies returns false, because the state of processes can be read only on Linux.
func onlyZombies(int) bool { return false }
