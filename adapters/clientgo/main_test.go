package clientgo

import (
	"flag"
	"io"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

// TestMain fails if anything is left running.
func TestMain(m *testing.M) {
	quiet := flag.NewFlagSet("klog", flag.ExitOnError) // client-go says a line for each that is refused
	klog.InitFlags(quiet)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		_ = quiet.Set(name, value)
	}
	klog.SetOutput(io.Discard)
	testcheck.Main(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}
