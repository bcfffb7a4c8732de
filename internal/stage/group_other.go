//go:build !unix

package stage

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }
