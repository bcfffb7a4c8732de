package emulator

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

// childVariable makes this test binary a child process of its own tests.
const childVariable = "SPINDLE_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childVariable); role != "" {
		child(role)
	}
	testcheck.Main(m)
}

// child starts an emulator and prints its address. When its input ends, it ends in the way that role names.
func child(role string) {
	open := Start
	if role == "shared" {
		open = func(ctx context.Context, _ ...string) (*Emulator, error) { return Shared(ctx) }
	}
	e, err := open(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(e.Addr())
	fmt.Scanln()
	if role == "panic" {
		panic("as the test wants")
	}
	os.Exit(0)
}
