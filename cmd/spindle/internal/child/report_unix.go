//go:build unix && !linux

package child

// awaitReport waits until the kernel has a report about a process, and takes it.
func awaitReport(process int) report { return wait(process, 0) }
