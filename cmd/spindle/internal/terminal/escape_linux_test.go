package terminal

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A name can be copied from a listing into a shell.
func TestBashReadsBackWhatIsShown(t *testing.T) {
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	for _, s := range hostile {
		if strings.ContainsRune(s, 0) {
			continue // no argument of a program can have it
		}
		c := exec.Command(bash, "-c", "printf %s "+Show(s))
		c.Env = []string{"LC_ALL=C.UTF-8"}
		out, err := c.Output()
		require.NoError(t, err)
		assert.Equal(t, s, string(out), Show(s))
	}
}
