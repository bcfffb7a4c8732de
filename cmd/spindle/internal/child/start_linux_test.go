package child

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

// watching is the first argument of a watchdog of these tests. What follows is a file, in which it writes that it acts.
const watching = "watching"

func watchFor(file string) {
	if role := os.Getenv(role); role == "reports" || role == "spawns" {
		attempts := 0
		Watch(func(a Act) {
			if role == "spawns" { // a service, which outlives the watchdog
				_ = exec.Command("sh", "-c", "ls -l /proc/$$/fd >"+file+".tmp; mv "+file+".tmp "+file).Run()
				return
			}
			for attempts++; attempts <= len(hostileTexts); attempts++ {
				a.Report(errors.New(hostileTexts[attempts-1]))
			}
		})
		return
	}
	Watch(func(a Act) {
		if err := os.WriteFile(file, []byte(strconv.Itoa(int(a.Why))), 0o600); err != nil {
			panic(err)
		}
	})
}

// watchers starts watchdogs, which write to a file that they act.
func watchers(file string) func(time.Time) (*Watchdog, error) {
	return func(until time.Time) (*Watchdog, error) {
		return StartWatchdog(until, os.Environ(), []string{watching, file})
	}
}

// hostileTexts are errors of an action.
var hostileTexts = []string{"plain", "two\nlines", "done", "failed \"quoted\"", "caf\xe9 \u00e9 \t"}

func inAnHour() time.Time { return time.Now().Add(time.Hour) }

// unable are programs that can't be run, with the exit codes that a shell has for them.
func unable(t *testing.T) map[string]int {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	return map[string]int{
		write("notes", "not a program", 0o600):                     CannotRun,
		write("garbage", "\x00\x01\x02", 0o700):                    CannotRun,
		write("no-interpreter", "#!/no/such/interpreter\n", 0o700): NotFound,
		filepath.Join(dir, "missing"):                              NotFound,
		"no-such-program-in-path":                                  NotFound,
		dir:                                                        CannotRun,
	}
}

func TestAProgramThatCanNotBeRunLeavesNoProcess(t *testing.T) {
	for path, code := range unable(t) {
		acted := filepath.Join(t.TempDir(), "acted")
		testcheck.NothingLeft(t, func() {
			_, err := Start(Command{Args: []string{path}, Watch: watchers(acted), Until: inAnHour})
			var unable *terminal.Exit
			require.ErrorAs(t, err, &unable, path)
			assert.Equal(t, code, unable.Code, path)
		})
		assert.NoFileExists(t, acted, "%s: the watchdog has acted as if this process was dead", path)
	}
}

// A guard's watchdog outlives the commands that it watches, even those that can't be started.
func TestAWatchdogOutlivesAProgramThatCanNotBeRun(t *testing.T) {
	for path := range unable(t) {
		acted := filepath.Join(t.TempDir(), "acted")
		testcheck.NothingLeft(t, func() {
			dog, err := watchers(acted)(inAnHour())
			require.NoError(t, err)
			_, err = Start(Command{Args: []string{path}, Dog: dog})
			require.Error(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			assert.NoError(t, dog.Finish(ctx), path)
		})
		text, err := os.ReadFile(acted)
		require.NoError(t, err)
		assert.Equal(t, strconv.Itoa(int(Told)), string(text))
	}
}

// echo starts a process in its own group that prints what it reads.
func echo(t *testing.T) (pid int, lives func() bool) {
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	pid = inGroup(t, c)
	answers := bufio.NewReader(out)
	return pid, func() bool {
		_, _ = in.Write([]byte("hello\n"))
		line, _ := answers.ReadString('\n')
		return strings.TrimSpace(line) == "hello"
	}
}

// In time, the number of a group that has ended is given to another group.
func TestAWatchdogSparesAStrangersGroupWithTheNumberOfItsOwn(t *testing.T) {
	replies, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer replies.Close()
	for _, why := range []Reason{Told, Dead, Late} {
		group, lives := echo(t)
		acted := false
		v := vigil{group: group, leader: "of another process", replies: replies, action: func(Act) { acted = true }}
		v.act(why)
		assert.True(t, acted, "its action is done")
		assert.True(t, lives(), "a stranger was killed")

		assert.False(t, v.gone())

		v.leader = born(group)
		v.act(why)
		assert.False(t, lives(), "its own group is killed")
		require.Eventually(t, v.gone, 10*time.Second, time.Millisecond)
	}
}

// A watchdog reads its orders late if it was stopped. By then, another group may have the number of the one it is to watch.
func TestAWatchdogKnowsItsGroupFromItsParent(t *testing.T) {
	for _, own := range []bool{false, true} {
		group, lives := echo(t)
		leader := "of another process"
		if own {
			leader = born(group)
		}
		dog, err := watchers(filepath.Join(t.TempDir(), "acted"))(inAnHour())
		require.NoError(t, err)
		dog.watch(group, leader)
		require.NoError(t, dog.Finish(t.Context()))
		assert.Equal(t, !own, lives())
	}
}

// A program that has exited is sent no signal: another group may have its number.
func TestAProgramThatHasExitedIsSentNoSignal(t *testing.T) {
	c, err := Start(Command{Args: []string{"true"}, Apart: true})
	require.NoError(t, err)
	<-c.Done()
	stranger, lives := echo(t)
	c.pid = stranger
	c.Signal(syscall.SIGTERM)
	c.Continue()
	c.Kill()
	assert.True(t, lives(), "a stranger was killed")
}

// A watchdog acts once each time its parent is late, however often that is: a parent that was stopped twice has had a program
// of each time. It acts at its deadline, and not up to a second later, when the lock may have another holder.
func TestAWatchdogActsEachTimeItsParentIsLate(t *testing.T) {
	acted := filepath.Join(t.TempDir(), "acted")
	dog, err := watchers(acted)(inAnHour())
	require.NoError(t, err)
	soonest := time.Hour
	for range 3 { // a busy machine may be late, but not each time
		until := time.Now().Add(20 * time.Millisecond)
		dog.Allow(until)
		require.Eventually(t, func() bool {
			text, _ := os.ReadFile(acted)
			return string(text) == strconv.Itoa(int(Late))
		}, 10*time.Second, time.Millisecond)
		late := time.Since(until)
		assert.GreaterOrEqual(t, late, time.Duration(0))
		soonest = min(soonest, late)
		require.NoError(t, os.Remove(acted))
	}
	assert.Less(t, soonest, 500*time.Millisecond)
	dog.Allow(inAnHour())
	assert.NoError(t, dog.Finish(t.Context()))
	text, err := os.ReadFile(acted)
	require.NoError(t, err)
	assert.Equal(t, strconv.Itoa(int(Told)), string(text))
}

// A dismissed watchdog never acts. It would take the end of its pipe for the death of its parent, so it is killed first. Here,
// the pipe can't be closed until the watchdog is gone.
func TestADismissedWatchdogNeverActs(t *testing.T) {
	acted := filepath.Join(t.TempDir(), "acted")
	dog, err := watchers(acted)(inAnHour())
	require.NoError(t, err)
	pipe, err := dog.pipe.SyscallConn()
	require.NoError(t, err)
	dismissed := make(chan struct{})
	require.NoError(t, pipe.Control(func(uintptr) {
		go func() { dog.dismiss(); close(dismissed) }()
		select {
		case <-dog.Gone():
		case <-time.After(10 * time.Second):
			assert.Fail(t, "the pipe is closed before the watchdog is killed")
		}
	}))
	<-dismissed
	assert.NoFileExists(t, acted)
}

// What went wrong in a watchdog reaches the operator as it is, whatever the text, and is never taken for the end.
func TestTheErrorsOfAWatchdogArriveAsTheyAre(t *testing.T) {
	t.Setenv(role, "reports")
	dog, err := watchers(filepath.Join(t.TempDir(), "acted"))(inAnHour())
	require.NoError(t, err)
	for _, text := range hostileTexts {
		assert.EqualError(t, dog.Finish(t.Context()), text)
	}
	assert.NoError(t, dog.Finish(t.Context()))
}

// A watchdog that was stopped by a signal acts nevertheless when guard orders it to. Otherwise guard would wait for it.
func TestAWatchdogThatIsStoppedObeysTheOrderToAct(t *testing.T) {
	acted := filepath.Join(t.TempDir(), "acted")
	dog, err := watchers(acted)(inAnHour())
	require.NoError(t, err)
	require.NoError(t, dog.process.Signal(syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	assert.NoError(t, dog.Finish(ctx))
	assert.FileExists(t, acted)
	_ = dog.process.Signal(syscall.SIGCONT)
}

// What a watchdog starts gets none of its files. A service that had the lock file would keep every later guard waiting, and one
// that had the pipe would keep guard from noticing that its watchdog is gone.
func TestWhatAWatchdogStartsInheritsNoneOfItsFiles(t *testing.T) {
	t.Setenv(role, "spawns")
	dir := t.TempDir()
	acted := filepath.Join(dir, "acted")
	var kept []*os.File
	for i := range 2 {
		f, err := os.Create(filepath.Join(dir, "kept"+strconv.Itoa(i)))
		require.NoError(t, err)
		defer f.Close()
		kept = append(kept, f)
	}
	dog, err := StartWatchdog(inAnHour(), os.Environ(), []string{watching, acted}, kept...)
	require.NoError(t, err)
	require.NoError(t, dog.Finish(t.Context()))
	files, err := os.ReadFile(acted)
	require.NoError(t, err)
	require.Contains(t, string(files), " 0 -> ")
	assert.NotContains(t, string(files), " 3 -> pipe", "its replies")
	assert.NotContains(t, string(files), "/kept")
}
