package child

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
	"github.com/spindle-lock/spindle/internal/elect"
	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

// watching is the first argument of a watchdog of these tests. What follows is a file, in which it writes that it acts.
const watching = "watching"

func watchFor(file string) {
	if role := os.Getenv(role); role == "reports" || role == "spawns" || role == "floods" {
		attempts := 0
		Watch(func(a Act) {
			if role == "floods" {
				for range 1000 {
					a.Report(errors.New(strings.Repeat("again ", 100)))
				}
				_ = os.WriteFile(file, nil, 0o600)
				return
			}
			if role == "spawns" { // a service, which outlives the watchdog
				_ = exec.Command("sh", "-c", "ls -l /proc/$$/fd >"+file+".tmp; mv "+file+".tmp "+file).Run()
				return
			}
			for attempts++; attempts <= len(hostileTexts); attempts++ {
				a.Report(errors.New(hostileTexts[attempts-1]))
			}
			a.Report(errors.New(strings.Repeat("long ", 1<<15)))
		})
		return
	}
	Watch(func(a Act) {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		_, _ = f.WriteString(strconv.Itoa(int(a.Why)))
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

// If another process is writing a program, or the machine is short of something, a later start of the program can succeed. Start therefore
// does not return the error of a program that can never be run.
func TestAProgramThatIsBeingWrittenCanBeStartedLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	text, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o700))
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer writer.Close()
	for _, watchdog := range []*Watchdog{nil, nobody(t, time.Hour).Watchdog} {
		_, err = Start(Command{Args: []string{path}, Apart: true, Dog: watchdog})
		require.ErrorIs(t, err, syscall.ETXTBSY)
		var forGood *terminal.Exit
		assert.NotErrorAs(t, err, &forGood)
	}
	for _, shortage := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		var forGood *terminal.Exit
		assert.NotErrorAs(t, startError("program", &os.PathError{Op: "fork/exec", Path: "program", Err: shortage}), &forGood)
	}
}

// What is said of a program that does not exist names what is missing, and a command that can be pasted as it is.
func TestAProgramThatIsNotFoundHasAHint(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/script", []byte("#!/no/such/interpreter\n"), 0o700))
	require.NoError(t, os.Symlink(dir+"/missing", dir+"/link"))
	for name, hint := range map[string]string{dir + "/script": "the interpreter", dir + "/link": "check that it is in PATH", dir + "/missing": "check that it is in PATH", "no-such-program": "check that it is in PATH",
		"echo it works": "sh -c", `printf "it's %s" 'works'`: "sh -c", "echo $((40+2)); echo": "sh -c"} {
		err := Find(name)
		if err == nil {
			_, err = Start(Command{Args: []string{name}, Apart: true, Dog: nobody(t, time.Hour).Watchdog})
		}
		require.ErrorContains(t, err, hint, name)
		if _, pasted, found := strings.Cut(err.Error(), "use sh -c "); found {
			want, err := exec.Command("sh", "-c", name).Output()
			require.NoError(t, err, name)
			said, err := exec.Command("sh", "-c", "sh -c "+pasted).Output()
			assert.NoError(t, err, name)
			assert.Equal(t, string(want), string(said), name)
		}
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
	for _, watch := range []func(time.Time) (*Watchdog, error){nil, watchers(filepath.Join(t.TempDir(), "acted")), func(until time.Time) (*Watchdog, error) {
		return StartWatchdog(until, tooLarge, []string{watching, "none"})
	}} {
		testcheck.NothingLeft(t, func() {
			_, err := Start(Command{Args: []string{"true"}, Env: tooLarge, Apart: true, Whole: true, Watch: watch, Until: inAnHour})
			assert.ErrorIs(t, err, syscall.E2BIG)
		})
	}
}

// tooLarge is an environment with which nothing can be started.
var tooLarge = []string{"LARGE=" + strings.Repeat("x", 1<<18)}

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
		v := vigil{group: group, leader: "of another process", replies: replies, action: func(a Act) {
			acted = true
			assert.Equal(t, why == Told, a.Report(errors.New("it failed")), "only a parent that waits is told")
		}}
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

// A process that has run out of descriptors can't tell its watchdog when its program began. The watchdog kills the program all the same.
func TestAWatchdogKillsAGroupWhoseBeginningIsUnknown(t *testing.T) {
	replies, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer replies.Close()
	group, lives := echo(t)
	v := vigil{group: group, replies: replies, action: func(Act) {}}
	v.act(Late)
	assert.False(t, lives())
}

// A watchdog kills all of its group, even if the program itself has ended. Only when nothing of it runs is it gone, and a watchdog of
// nothing can't know that.
func TestAWatchdogKillsWhatIsLeftOfItsGroup(t *testing.T) {
	assert.False(t, new(vigil).gone())
	replies, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer replies.Close()
	for _, end := range []string{"wait", "exec true"} { // the program goes on, or ends
		for _, awaited := range []bool{false, true} {
			file := filepath.Join(t.TempDir(), "left")
			c := exec.Command("sh", "-c", "sleep 1000 & echo $! >"+file+"; "+end)
			v := vigil{group: inGroup(t, c), replies: replies, action: func(Act) {}}
			v.leader = born(v.group)
			left := wrote(t, file)
			if awaited && end != "wait" {
				_ = c.Wait()
			}
			assert.False(t, v.gone(), "%s, %v", end, awaited)
			v.act(Dead)
			require.Eventually(t, v.gone, 10*time.Second, time.Millisecond, "%s, %v", end, awaited)
			assert.True(t, gone(left))
		}
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

// From the moment that the end of a program is noted, it is sent no signal, although its strays may still be ending: another
// group may have its number by then.
func TestAProgramWhoseEndIsNotedIsSentNoSignal(t *testing.T) {
	for _, leaving := range []bool{false, true} {
		for name, end := range map[string]func(*Child) report{
			"it is killed":        func(c *Child) report { c.Kill(); return awaitReport(c.pid) },
			"it ends itself":      func(c *Child) report { c.Signal(syscall.SIGTERM); return awaitReport(c.pid) },
			"it is nobody's":      func(c *Child) report { signalGroup(c.pid, syscall.SIGKILL); return report{err: syscall.ECHILD} },
			"somebody awaited it": func(c *Child) report { c.Kill(); _ = c.cmd.Wait(); return awaitReport(c.pid) },
		} {
			c := &Child{Command: Command{Leaving: leaving}, cmd: exec.Command("cat"), changed: make(chan struct{}, 1)}
			c.pid = inGroup(t, c.cmd)
			assert.True(t, c.note(end(c)), name)
			stranger, lives := echo(t)
			c.pid = stranger
			c.Signal(syscall.SIGTERM)
			c.Continue()
			c.Kill()
			assert.True(t, lives(), "%s: a stranger was killed", name)
		}
	}
}

// By the time that a watchdog says that it has begun, its group is killed, and it says so before it acts, which may take long:
// its parent asks before each heartbeat whether the service is still watched.
func TestAWatchdogSaysThatItHasBegunOnceItsGroupIsKilledAndBeforeItActs(t *testing.T) {
	said, replies, err := os.Pipe()
	require.NoError(t, err)
	defer said.Close()
	defer replies.Close()
	require.NoError(t, said.SetReadDeadline(time.Now().Add(time.Second)))
	group, lives := echo(t)
	v := vigil{group: group, leader: born(group), replies: replies, action: func(Act) {
		b := make([]byte, 100)
		n, _ := said.Read(b)
		assert.Equal(t, "begun\n", string(b[:n]))
		assert.False(t, lives())
	}}
	v.act(Told)
}

// A watchdog whose deadline has passed kills what it is told to watch then: that program began too late.
func TestAWatchdogThatHasActedKillsWhatBeginsTooLate(t *testing.T) {
	acted := filepath.Join(t.TempDir(), "acted")
	dog, err := watchers(acted)(time.Now())
	require.NoError(t, err)
	wrote := func(want string) {
		require.Eventually(t, func() bool { text, _ := os.ReadFile(acted); return string(text) == want }, 10*time.Second, time.Millisecond)
	}
	late := strconv.Itoa(int(Late))
	wrote(late)
	group, lives := echo(t)
	dog.watch(group, born(group))
	wrote(late + late)
	assert.False(t, lives())
	dog.watch(0, "")
	require.NoError(t, dog.Finish(t.Context()))
	wrote(late + late + strconv.Itoa(int(Told)))
}

// A watchdog that was killed is known to be gone, whoever asks: otherwise guard would keep a service that nothing deactivates, or
// wait forever for a deactivation.
func TestAWatchdogThatWasKilledIsGone(t *testing.T) {
	testcheck.NothingLeft(t, func() {
		dog, err := watchers(filepath.Join(t.TempDir(), "acted"))(inAnHour())
		require.NoError(t, err)
		require.NoError(t, dog.process.Kill())
		for name, told := range map[string]<-chan struct{}{"gone": dog.Gone(), "begun": dog.Begun()} {
			select {
			case <-told:
			case <-time.After(10 * time.Second):
				assert.Fail(t, name)
			}
		}
		for range 2 {
			assert.ErrorIs(t, dog.Finish(t.Context()), ErrGone)
		}
	})
}

// A watchdog that has acted because its parent was late still watches. A parent that took it for gone would replace it, and it would take
// that for the death of its parent, and release the lock.
func TestAWatchdogThatHasActedIsNotGone(t *testing.T) {
	watch := watchers(filepath.Join(t.TempDir(), "acted"))
	dog, err := watch(time.Now())
	require.NoError(t, err)
	c := &Child{Command: Command{Watch: watch}, leash: leash{dog: dog}}
	<-dog.Begun()
	select {
	case <-c.Unwatched():
		assert.Fail(t, "it would be replaced")
	case <-dog.Gone():
		assert.Fail(t, "it is gone")
	default:
	}
	require.NoError(t, dog.process.Kill())
	<-c.Unwatched()
	c.unleash()
	assert.Nil(t, c.Unwatched())
}

// A watchdog keeps the lock file of its parent until its action is done, and no longer: the next guard begins then.
func TestAWatchdogKeepsTheLockFileUntilItIsDone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := NewLockFile(path)
	require.NoError(t, err)
	dog, err := StartWatchdog(inAnHour(), os.Environ(), []string{watching, path + ".acted"}, lock.File)
	require.NoError(t, err)
	require.NoError(t, lock.Close())
	_, err = NewLockFile(path)
	assert.ErrorIs(t, err, ErrBusy)
	require.NoError(t, dog.Finish(t.Context()))
	next, err := NewLockFile(path)
	require.NoError(t, err)
	next.End()
}

// A watchdog that does not read delays nobody, and the order to act is given again once it reads: otherwise guard would wait for a
// deactivation that never begins.
func TestAWatchdogThatDoesNotReadHearsTheOrderToActLater(t *testing.T) {
	dog := nobody(t, time.Hour)
	var err error
	dog.process, err = os.FindProcess(os.Getpid())
	require.NoError(t, err)
	full := make(chan struct{})
	go func() {
		defer close(full)
		for range 1 << 14 {
			_ = order(dog.pipe, "\n")
		}
		for order(dog.pipe, "\n") == nil {
		}
	}()
	select {
	case <-full:
	case <-time.After(30 * time.Second):
		require.Fail(t, "an order waits for a watchdog that does not read")
	}
	dog.Allow(inAnHour())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, dog.Finish(over), context.Canceled)
	var heard []byte
	for b := make([]byte, 1<<15); len(heard) < 1<<17 && !bytes.Contains(heard, []byte("finish\n")); {
		require.NoError(t, dog.lines.SetReadDeadline(time.Now().Add(10*time.Second)))
		n, err := dog.lines.Read(b)
		require.NoError(t, err)
		heard = append(heard, b[:n]...)
		require.ErrorIs(t, dog.Finish(over), context.Canceled)
	}
	dog.pipe.Close()
	rest, err := io.ReadAll(dog.lines)
	require.NoError(t, err)
	assert.Equal(t, 1, bytes.Count(append(heard, rest...), []byte("finish\n")))
}

// fixed is a clock that has stopped.
type fixed struct {
	elect.SystemClock
	now elect.Instant
}

func (f fixed) Now() elect.Instant { return f.now }

// A deadline passes by whichever clock is ahead, and counts from when it was sent, however late it is read.
func TestADeadlineOfAWatchdogPassesByTheClockThatIsAhead(t *testing.T) {
	at := func(wall, mono int64) elect.Instant { return elect.Instant{Wall: wall, Mono: mono} }
	for name, r := range map[string]struct {
		read, now elect.Instant
		want      time.Duration
	}{
		"both clocks run":               {at(1000, 0), at(1004, 4), 6},
		"the machine was suspended":     {at(1000, 0), at(1009, 1), 1},
		"the wall clock was set back":   {at(1000, 0), at(900, 4), 6},
		"it is read late":               {at(1007, 7), at(1008, 8), 2},
		"it is read after the deadline": {at(1011, 11), at(1011, 11), -1},
	} {
		assert.Equal(t, r.want, remaining(fixed{now: r.now}, r.read, 10, 1010), name)
	}
}

// A watchdog first hears until when the lock is held, then what it watches, and at last that it watches nothing.
func TestAWatchdogHearsTheDeadlineBeforeItHearsOfTheProgram(t *testing.T) {
	for _, args := range [][]string{{"true"}, {"sh", "-c", "exit 3"}, {filepath.Join(t.TempDir(), "missing")}} {
		dog, until := nobody(t, time.Minute), inAnHour()
		c, err := Start(Command{Args: args, Dog: dog.Watchdog, Until: func() time.Time { return until }, Apart: true})
		watched := `watch [1-9]\d* \d+`
		if err == nil {
			<-c.Done()
			watched = fmt.Sprintf("watch %d %s", c.pid, c.leash.leader)
		}
		dog.pipe.Close()
		orders, err := io.ReadAll(dog.lines)
		require.NoError(t, err)
		assert.Regexp(t, fmt.Sprintf(`\Aallow \d+ %d\nallow \d+ %d\n%s\nwatch 0 \n\z`, dog.first.UnixNano(), until.UnixNano(), watched), string(orders))
	}
}

// Nothing is remembered of a program or watchdog that has ended, however it ended: a later process may have its id, and orphans
// that nobody kills any more must have another parent.
func TestNothingIsRememberedOfWhatHasEnded(t *testing.T) {
	watch := watchers(filepath.Join(t.TempDir(), "acted"))
	known := func() map[int]bool {
		family.Lock()
		defer family.Unlock()
		return maps.Clone(family.pids)
	}
	before := known()
	for _, path := range []string{"no-such-program-in-path", t.TempDir(), "true"} {
		for _, whole := range []bool{false, true} {
			for _, watch := range []func(time.Time) (*Watchdog, error){nil, watch} {
				if c, err := Start(Command{Args: []string{path}, Apart: true, Whole: whole, Watch: watch, Until: inAnHour}); err == nil {
					<-c.Done()
				}
				if path == "true" && whole && watch == nil {
					for range 10 { // to see the first moment at which the program is done
						c, err := Start(Command{Args: []string{path}, Apart: true, Whole: true})
						require.NoError(t, err)
						for over := false; !over; {
							select {
							case <-c.Done():
								over = true
							default:
							}
						}
						require.False(t, adopts.Load(), "the end of this program would end the adoption for the next one")
					}
				}
				var reaper int32
				require.NoError(t, unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&reaper)), 0, 0, 0))
				assert.Zero(t, reaper, path)
				assert.False(t, adopts.Load(), path)
			}
		}
	}
	assert.Eventually(t, func() bool {
		now := known()
		maps.DeleteFunc(now, func(pid int, _ bool) bool { return before[pid] })
		return len(now) == 0
	}, 10*time.Second, time.Millisecond)
}

// A program gets the files that this process was given, and no file of the gate, which would tell it nothing and stay open.
func TestAProgramBehindAGateHasTheFilesThatItWouldHaveWithoutOne(t *testing.T) {
	if os.Getenv(role) != "heir" {
		f, err := os.Open(os.DevNull)
		require.NoError(t, err)
		defer f.Close()
		heir := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$") // it inherits 3 and 4
		heir.Env, heir.ExtraFiles = append(os.Environ(), role+"=heir"), []*os.File{f, f}
		said, err := heir.CombinedOutput()
		require.NoError(t, err, "%s", said)
		return
	}
	out := filepath.Join(t.TempDir(), "out")
	files := func(dog *Watchdog) string {
		c, err := Start(Command{Args: []string{"sh", "-c", "exec >" + out + "; for f in /proc/$$/fd/*; do echo ${f##*/}; readlink $f; done"}, Env: os.Environ(), Apart: true, Dog: dog})
		require.NoError(t, err)
		<-c.Done()
		text, err := os.ReadFile(out)
		require.NoError(t, err)
		return string(text)
	}
	without := files(nil)
	assert.Contains(t, without, "\n3\n/dev/null\n4\n/dev/null\n")
	assert.Equal(t, without, files(nobody(t, time.Hour).Watchdog))
}

// A program has the standard files of this process, behind a gate or not. A hook, which runs beside the program, has no input: it would
// take the program's away.
func TestAProgramHasTheStandardFilesOfThisProcess(t *testing.T) {
	in, out, complaints := os.Stdin, os.Stdout, os.Stderr
	for typed, apart := range map[string]bool{"typed": false, "": true} {
		for _, dog := range []*Watchdog{nil, nobody(t, time.Hour).Watchdog} {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(dir+"/0", []byte("typed"), 0o600))
			var files [3]*os.File
			for i := range files {
				var err error
				files[i], err = os.OpenFile(dir+"/"+strconv.Itoa(i), os.O_RDWR|os.O_CREATE, 0o600)
				require.NoError(t, err)
				defer files[i].Close()
			}
			os.Stdin, os.Stdout, os.Stderr = files[0], files[1], files[2]
			c, err := Start(Command{Args: []string{"sh", "-c", "cat; printf complaint >&2"}, Apart: apart, Dog: dog})
			os.Stdin, os.Stdout, os.Stderr = in, out, complaints
			require.NoError(t, err)
			<-c.Done()
			for i, want := range map[int]string{1: typed, 2: "complaint"} {
				text, err := os.ReadFile(files[i].Name())
				require.NoError(t, err)
				assert.Equal(t, want, string(text))
			}
		}
	}
}

// What the kernel reports of a stop is read as it is meant on every Unix.
func TestAReportIsAStopOrAContinuationOrAnEnd(t *testing.T) {
	for status, r := range map[syscall.WaitStatus]struct {
		stopped   os.Signal
		continued bool
	}{
		0xffff: {continued: true}, // Linux
		0x7f | syscall.WaitStatus(syscall.SIGCONT)<<8: {continued: true}, // macOS
		0x7f | syscall.WaitStatus(syscall.SIGSTOP)<<8: {stopped: syscall.SIGSTOP},
		0x7f | syscall.WaitStatus(syscall.SIGTTIN)<<8: {stopped: syscall.SIGTTIN},
		0: {}, 3 << 8: {}, syscall.WaitStatus(syscall.SIGKILL): {}, 0x80 | syscall.WaitStatus(syscall.SIGABRT): {},
	} {
		stopped, continued := stopOf(status)
		assert.Equal(t, r.stopped, stopped, "%#x", status)
		assert.Equal(t, r.continued, continued, "%#x", status)
	}
	for status, code := range map[syscall.WaitStatus]int{0: 0, 3 << 8: 3, 255 << 8: 255, syscall.WaitStatus(syscall.SIGKILL): 137, 0x80 | syscall.WaitStatus(syscall.SIGABRT): 134} {
		assert.Equal(t, code, exitCode(status), "%#x", status)
	}
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
	assert.ErrorContains(t, dog.Finish(t.Context()), strings.Repeat("long ", 100), "its beginning, which says what happened")
	assert.NoError(t, dog.Finish(t.Context()))
}

// An error that arrives while guard waits between two calls is kept for the next one: otherwise guard would not say why the service is
// still active.
func TestAnErrorOfAWatchdogIsKeptUntilItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self, err := os.FindProcess(os.Getpid())
		require.NoError(t, err)
		replies, says := io.Pipe()
		w := &Watchdog{process: self, told: true, begun: make(chan struct{}), failed: make(chan error), gone: make(chan struct{})}
		go w.listen(replies)
		go func() {
			_, _ = io.WriteString(says, "begun\nfailed \"one\"\nfailed \"two\"\ndone\n")
			_ = says.Close()
		}()
		for _, want := range []string{"one", "two"} {
			synctest.Wait()
			assert.EqualError(t, w.Finish(t.Context()), want)
		}
		synctest.Wait()
		assert.NoError(t, w.Finish(t.Context()))
	})
}

// A parent that waits no longer, and reads no more errors, does not keep its watchdog from trying on: the service is still active.
func TestAWatchdogTriesOnAlthoughNobodyReadsItsErrors(t *testing.T) {
	t.Setenv(role, "floods")
	acted := filepath.Join(t.TempDir(), "acted")
	dog, err := watchers(acted)(inAnHour())
	require.NoError(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, dog.Finish(over))
	assert.Eventually(t, func() bool { _, err := os.Stat(acted); return err == nil }, 10*time.Second, time.Millisecond)
	for err = dog.Finish(t.Context()); err != nil && !errors.Is(err, ErrGone); err = dog.Finish(t.Context()) {
		assert.ErrorContains(t, err, "again again")
	}
}

// A watchdog that has acted because its parent was late acts once more when the parent dies or orders it to: only then may it release
// the lock.
func TestAWatchdogThatHasActedActsOnceMoreAtTheEndOfItsParent(t *testing.T) {
	for why, end := range map[Reason]func(*Watchdog){
		Dead: func(dog *Watchdog) { _ = dog.pipe.Close() },
		Told: func(dog *Watchdog) { assert.NoError(t, dog.Finish(t.Context())) },
	} {
		acted := filepath.Join(t.TempDir(), "acted")
		dog, err := watchers(acted)(time.Now())
		require.NoError(t, err)
		late := strconv.Itoa(int(Late))
		require.Eventually(t, func() bool { text, _ := os.ReadFile(acted); return string(text) == late }, 10*time.Second, time.Millisecond)
		end(dog)
		<-dog.Gone()
		text, err := os.ReadFile(acted)
		require.NoError(t, err)
		assert.Equal(t, late+strconv.Itoa(int(why)), string(text))
	}
}

// A watchdog has a session of its own. At its parent's terminal, Ctrl-Z or a message that it prints in the background could stop it.
// It also has the name by which another exec around its parent spares it.
func TestAWatchdogHasASessionAndANameOfItsOwn(t *testing.T) {
	dog, err := watchers(filepath.Join(t.TempDir(), "acted"))(inAnHour())
	require.NoError(t, err)
	session, err := unix.Getsid(dog.process.Pid)
	require.NoError(t, err)
	assert.Equal(t, dog.process.Pid, session)
	p, err := procfs.NewProc(dog.process.Pid)
	require.NoError(t, err)
	assert.Eventually(t, func() bool { return isWatchdog(p) }, 10*time.Second, time.Millisecond)
	assert.NoError(t, dog.Finish(t.Context()))
}

// After an upgrade or a removal of spindle, a process that still runs starts programs and watchdogs of its own version.
func TestAProcessWhoseFileWasRemovedStartsPrograms(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	if os.Getenv(role) == "removed" {
		require.NoError(t, os.Remove(self))
		c, err := Start(Command{Args: []string{"true"}, Apart: true, Watch: watchers(filepath.Join(t.TempDir(), "acted")), Until: inAnHour})
		require.NoError(t, err)
		<-c.Done()
		assert.Zero(t, c.Code())
		return
	}
	text, err := os.ReadFile(self)
	require.NoError(t, err)
	old := filepath.Join(t.TempDir(), "old")
	require.NoError(t, os.WriteFile(old, text, 0o700))
	c := exec.Command(old, "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), role+"=removed")
	said, err := c.CombinedOutput()
	assert.NoError(t, err, "%s", said)
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
