//go:build !unix

package child

// await waits until the program exits.
func (c *Child) await() {
	_ = c.cmd.Wait() // ProcessState has the result
	c.code = c.cmd.ProcessState.ExitCode()
}

// Continue does nothing, because groups can't be stopped on this system.
func (c *Child) Continue() {}
