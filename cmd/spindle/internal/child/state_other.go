//go:build !unix

package child

// await waits until the program ends.
func (c *Child) await() {
	_ = c.cmd.Wait() // the state says it
	c.code = c.cmd.ProcessState.ExitCode()
}

// Continue does nothing: no group is stopped here.
func (c *Child) Continue() {}
