//go:build !unix

package subprocess

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }
