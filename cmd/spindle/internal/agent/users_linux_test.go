package agent

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/peer"
)

// Root may ask the programs of all users to stop, and so may the user of an agent that does not run as root. The ids of holds, which are
// secrets, are listed only to their own user and to root.
func TestTheAgentsUserIsNotRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and the thread ends with the goroutine
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 4242, 0, 0)
		if !assert.Zero(t, errno) {
			return
		}
		a := newBed(t).agent
		for uid, c := range map[int]struct{ all, lists bool }{0: {true, true}, 4242: {true, false}, 100001: {false, true}, 100002: {false, false}} {
			a.holds = map[string]*hold{"id": {owner: owner{asked: &request{names: []string{"a"}}, who: peer.Identity{UID: 100001}}}}
			who := of{uid: uid}
			assert.Equal(t, c.all, seesAll(who), "user %d", uid)
			assert.Len(t, api{a}.list(nil, who).(result).body.(map[string]any)["holds"], map[bool]int{true: 1}[c.lists], "user %d", uid)
		}
	}()
	<-ended
}

// of is a process of a user.
type of struct {
	process
	uid int
}

func (o of) Who() peer.Identity { return peer.Identity{UID: o.uid} }
