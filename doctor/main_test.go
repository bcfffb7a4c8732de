package doctor_test

import (
	"context"
	"flag"
	"log"
	"os"
	"testing"

	"github.com/spindle-lock/spindle/internal/emulator"
)

// The examinations of this package commit ten thousand times, which would make the emulator slow that all packages share.
func TestMain(m *testing.M) {
	flag.Parse()
	if _, given := os.LookupEnv("SPANNER_EMULATOR_HOST"); testing.Short() || given {
		os.Exit(m.Run())
	}
	own, err := emulator.Start(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	os.Setenv("SPANNER_EMULATOR_HOST", own.Addr())
	code := m.Run()
	if err := own.Close(); err != nil {
		log.Print(err)
	}
	os.Exit(code)
}
