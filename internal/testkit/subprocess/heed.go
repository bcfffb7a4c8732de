package subprocess

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Heed starts this program again if it ignores signals that its tests send, as a program does under nohup or in the
// background of a script. A TestMain calls it.
func Heed() {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGHUP}
	if !slices.ContainsFunc(signals, signal.Ignored) {
		return
	}
	signal.Notify(make(chan os.Signal, 1), signals...) // what is handled here is not ignored by the program that takes its place
	self, err := os.Executable()
	panic(errors.Join(err, syscall.Exec(self, os.Args, os.Environ())))
}
