//go:build !notifications

package main

import (
	"github.com/spindle-lock/spindle"
	"github.com/spindle-lock/spindle/lock"
)

// The constructors, without notifications. Their types differ between versions.
var (
	newMutex = lock.New
	newLock  = spindle.New
)
