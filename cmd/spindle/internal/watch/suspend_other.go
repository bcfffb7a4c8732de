//go:build !unix

package watch

func canSuspend() bool { return false }
