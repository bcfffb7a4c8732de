package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spindle-lock/spindle/internal/testkit/testcheck"
)

// wrote waits for a file that a program writes, and returns the number in it.
func wrote(t *testing.T, path string) (n int) {
	require.Eventually(t, func() bool {
		b, _ := os.ReadFile(path)
		n, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return n != 0
	}, 10*time.Second, time.Millisecond, path)
	return n
}

// ends waits for the end of a child that has little time left.
func ends(t *testing.T, c *Child) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
		c.Kill()
		<-c.Done()
		require.Fail(t, "the program lives on")
	}
}

func strays(c *Child) int {
	killed, _ := c.Left()
	return killed
}

// stray is a program that leaves a process outside its group, and ends.
func stray(path string) []string {
	return []string{"sh", "-c", "setsid sh -c 'echo $$ >" + path + "; exec sleep 1000' & while ! [ -s " + path + " ]; do sleep 0.01; done"}
}

func TestWhatHasLeftTheGroupEndsWithTheProgram(t *testing.T) {
	for _, whole := range []bool{true, false} {
		file := filepath.Join(t.TempDir(), "stray")
		c, err := Start(Command{Args: stray(file), Apart: true, Whole: whole})
		require.NoError(t, err)
		<-c.Done()
		left := wrote(t, file)
		if whole {
			assert.Equal(t, 1, strays(c))
			assert.Empty(t, born(left), "nobody has waited for it")
			continue
		}
		assert.Zero(t, strays(c))
		assert.NotEmpty(t, born(left))
		_ = syscall.Kill(left, syscall.SIGKILL)
	}
}

// The end of a program kills nothing else that this process has started, not even what it started after the program.
func TestTheEndOfAProgramSparesOtherChildren(t *testing.T) {
	dir := t.TempDir()
	program := stray(dir + "/stray")
	program[2] += "; while ! [ -e " + dir + "/go ]; do sleep 0.01; done"
	c, err := Start(Command{Args: program, Apart: true, Whole: true})
	require.NoError(t, err)
	wrote(t, dir+"/stray")
	other, err := Start(Command{Args: []string{"sh", "-c", "echo $$ >" + dir + "/other; exec sleep 1000"}, Apart: true})
	require.NoError(t, err)
	n := wrote(t, dir+"/other")
	library := exec.Command("sleep", "1000") // which is waited for elsewhere
	require.NoError(t, library.Start())
	require.NoError(t, os.WriteFile(dir+"/go", nil, 0o600))
	ends(t, c)
	assert.False(t, gone(n), "it was killed")
	assert.NoError(t, library.Process.Kill(), "it was killed")
	assert.ErrorContains(t, library.Wait(), "killed")
	assert.Equal(t, 1, strays(c))
	other.Kill()
	<-other.Done()
}

// As long as anything that a program left behind is alive, the program has its watchdog: this process may be killed before it has
// killed all of it.
func TestAProgramHasItsWatchdogUntilAllThatItLeftHasEnded(t *testing.T) {
	dir := t.TempDir()
	chain := "[ $1 = 0 ] && { echo $$ >" + dir + "/last; exec sleep 1000; }; sh -c \"$CHAIN\" sh $(($1-1)) & wait; :"
	c, err := Start(Command{Args: []string{"sh", "-c", `setsid sh -c "$CHAIN" sh 4 & while ! [ -e ` + dir + "/go ]; do sleep 0.01; done"}, Env: append(os.Environ(), "CHAIN="+chain),
		Apart: true, Whole: true, Watch: watchers(dir + "/acted"), Until: inAnHour})
	require.NoError(t, err)
	last := wrote(t, dir+"/last")
	require.NoError(t, os.WriteFile(dir+"/go", nil, 0o600))
	for alive := true; alive; { // each process of the chain is found once its parent has been killed
		watched := c.Unwatched() != nil
		if alive = !gone(last); alive {
			require.True(t, watched)
		}
	}
	ends(t, c)
	assert.Equal(t, 5, strays(c))
	assert.NoFileExists(t, dir+"/acted")
}

// What a program leaves behind and what ends by itself does not stay a zombie until the program ends, which may take months, even
// if two end at the same time.
func TestAnOrphanThatEndsDuringTheProgramIsReaped(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(dir+"/end", 0o600))
	const many = 20
	c, err := Start(Command{Args: []string{"sh", "-c", "cd " + dir + "; for i in $(seq " + strconv.Itoa(many) + "); do (setsid sh -c 'echo $$ >'$i'; read end <end' &); done; exec sleep 1000"}, Apart: true, Whole: true})
	require.NoError(t, err)
	var orphans [many]int
	for i := range orphans {
		orphans[i] = wrote(t, dir+"/"+strconv.Itoa(i+1))
	}
	end, err := os.OpenFile(dir+"/end", os.O_RDWR, 0)
	require.NoError(t, err)
	for left := many - 2; left >= 0; left -= 2 {
		_, err = end.WriteString("\n\n") // each line ends one of them
		require.NoError(t, err)
		assert.Eventually(t, func() bool {
			exist := 0
			for _, orphan := range orphans {
				if born(orphan) != "" {
					exist++
				}
			}
			return exist == left
		}, 10*time.Second, time.Millisecond)
	}
	_ = end.Close()
	c.Kill()
	<-c.Done()
	assert.Zero(t, strays(c))
}

// A process that is being started is not an orphan, although this process does not know its id yet: a hook that runs when a program
// ends would be killed.
func TestAProcessThatIsBeingStartedIsNoOrphan(t *testing.T) {
	found, over, ended := map[int]bool{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			default:
				orphans(func(pid, _ int) { found[pid] = true })
			}
		}
	}()
	var started []int
	for range 20 {
		c := exec.Command("true")
		require.NoError(t, ownGroup(c))
		pid, err := startOwn(c)
		require.NoError(t, err)
		require.NoError(t, c.Wait())
		disown(pid)
		started = append(started, pid)
	}
	close(over)
	<-ended
	for _, pid := range started {
		assert.False(t, found[pid])
	}
}

// Once the orphans have been ended, none of them exists, not even one of the program's own group or one whose first thread ended
// before. The operator is told of those that had left the group.
func TestAnOrphanThatWasEndedExistsNoMore(t *testing.T) {
	for name, start := range map[string]func(*testing.T) int{"a process": sleeper, "a process without its first thread": headless} {
		for _, left := range []int{0, 1} {
			pid := start(t)
			program := pid
			if left > 0 {
				program = 0
			}
			adopts.Store(true)
			killed, spared := endOrphans(program)
			adopts.Store(false)
			assert.Equal(t, left, killed, name)
			assert.Zero(t, spared, name)
			assert.Empty(t, born(pid), name)
		}
	}
}

// A process that has the id of one that was there before the program is still what the program left behind.
func TestAProcessIsKnownByWhenItStarted(t *testing.T) {
	pid := sleeper(t)
	defer elders()
	for elder, found := range map[string]bool{born(pid): false, born(os.Getpid()) + "1": true, "": true} {
		family.Lock()
		family.elders = map[int]string{pid: elder}
		family.Unlock()
		is := false
		orphans(func(p, _ int) { is = is || p == pid })
		assert.Equal(t, found, is, elder)
	}
}

// A child that was there before the program is not what the program left behind: a script that becomes exec may have started it.
// Nor is it what the next program of this process leaves behind.
func TestTheEndOfAProgramSparesWhatWasThereBefore(t *testing.T) {
	before := exec.Command("sleep", "1000")
	before.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, before.Start())
	t.Cleanup(func() { _ = before.Process.Kill(); _ = before.Wait() })
	for program := range 3 {
		c, err := Start(Command{Args: stray(t.TempDir() + "/stray"), Apart: true, Whole: true})
		require.NoError(t, err)
		<-c.Done()
		assert.Equal(t, 1, strays(c), "program %d", program)
		assert.False(t, gone(before.Process.Pid), "program %d killed it", program)
	}
}

// A program may run its own spindle, whose watchdog has work to do when that spindle is killed: a guard's watchdog
// deactivates the service. That spindle itself ends with the program, like everything else.
func TestTheEndOfAProgramSparesTheWatchdogsOfOthers(t *testing.T) {
	for name, killed := range map[string]int{watchdogName: 0, "spindle": 1, watchdogName + "1": 1} {
		file := t.TempDir() + "/left"
		c, err := Start(Command{Args: []string{"sh", "-c", "setsid sh -c 'printf " + name + " >/proc/$$/comm; echo $$ >" + file + "; sleep 1000; :' & while ! [ -s " + file + " ]; do sleep 0.01; done"}, Apart: true, Whole: true})
		require.NoError(t, err)
		<-c.Done()
		pid := wrote(t, file)
		assert.Equal(t, killed > 0, strays(c) > 0, name)
		assert.Equal(t, killed > 0, born(pid) == "", name)
		signalGroup(pid, syscall.SIGKILL)
	}
}

// However a program ends, what it has left in its group ends with it, even if it ignores signals, unless that may outlive it.
func TestTheGroupEndsWithTheProgram(t *testing.T) {
	for _, end := range []string{"exit 0", "exit 3", "kill -9 $$"} {
		for _, leaving := range []bool{false, true} { // as a guard's --activate starts a service
			file := t.TempDir() + "/left"
			c, err := Start(Command{Args: []string{"sh", "-c", "trap '' TERM HUP INT QUIT; (while ! [ -e " + file + ".go ]; do sleep 0.01; done; echo 1 >" + file + ".lives) & echo $! >" + file + "; " + end}, Apart: true, Leaving: leaving})
			require.NoError(t, err)
			<-c.Done()
			left := wrote(t, file)
			if leaving {
				require.NoError(t, os.WriteFile(file+".go", nil, 0o600))
				wrote(t, file+".lives")
			} else {
				assert.Eventually(t, func() bool { return gone(left) }, 10*time.Second, time.Millisecond, end)
			}
			_ = syscall.Kill(left, syscall.SIGKILL)
		}
	}
}

// gone reports whether a process has ended, although its parent may not have noticed yet.
func gone(pid int) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return true
	}
	stat, err := p.Stat()
	return err != nil || strings.Contains("ZX", stat.State)
}

// A process of another user can't be killed, and exec does not wait for it: otherwise a program that has ended would never
// be done.
func TestWhatCannotBeKilledIsNotWaitedFor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may start what it can't kill")
	}
	dir := t.TempDir()
	self := exec.Command("/proc/self/exe", "-test.run=^TestAProgramOfAnotherUser$")
	self.Env = append(os.Environ(), "STRAY="+dir+"/stray")
	self.Stdout, self.Stderr = os.Stdout, os.Stderr
	require.NoError(t, self.Run())
	_ = syscall.Kill(wrote(t, dir+"/stray"), syscall.SIGKILL)
}

// It starts a process as root, and then gives up the right to kill it.
func TestAProgramOfAnotherUser(t *testing.T) {
	file := os.Getenv("STRAY")
	if file == "" {
		t.Skip("see TestWhatCannotBeKilledIsNotWaitedFor")
	}
	end, err := os.Create(file + ".go")
	require.NoError(t, err)
	c, err := Start(Command{Args: []string{"sh", "-c", "setsid sh -c 'echo $$ >" + file + "; exec sleep 1000' & setsid setpriv --reuid=65534 sh -c 'echo $$; exec sleep 1000' >" + file + ".own & while ! [ -s " + file + ".go ]; do sleep 0.01; done"}, Apart: true, Whole: true})
	require.NoError(t, err)
	wrote(t, file)
	wrote(t, file+".own")
	require.NoError(t, syscall.Setuid(65534))
	_, err = end.WriteString("go")
	require.NoError(t, err)
	<-c.Done()
	killed, spared := c.Left()
	assert.Equal(t, 1, killed)
	assert.Equal(t, 1, spared, "however often it was tried")
}

// All that has all the marks is killed, and nothing else: not even a program of another term under the same lock, whose token may
// begin with the same digits.
func TestWhatHasAllTheMarksIsKilled(t *testing.T) {
	start := func(env ...string) *Child {
		c, err := Start(Command{Args: []string{"sleep", "1000"}, Env: append(os.Environ(), env...), Apart: true})
		require.NoError(t, err)
		return c
	}
	own := "MARK=" + t.TempDir()
	marks := []string{own, "TERM=1"}
	var marked []*Child
	large := make([]string, 9) // more than a megabyte, before the marks
	for i := range large {
		large[i] = fmt.Sprintf("LARGE%d=%0120000d", i, 0)
	}
	for _, before := range [][]string{nil, nil, large} {
		marked = append(marked, start(slices.Concat(before, marks)...))
	}
	others := map[string]*Child{}
	for name, env := range map[string][]string{"of another term": {own, "TERM=2"}, "of a longer token": {own, "TERM=12"}, "spared": {own, "TERM=1", "SPARED=1"}, "of another variable": {own, "TERM=", "LAST_TERM=1"}, "of another lock": {own + "/1", "TERM=1"}} {
		others[name] = start(env...)
	}
	assert.True(t, KillMarked("SPARED", marks...))
	for _, c := range marked {
		ends(t, c)
		assert.Equal(t, 128+int(syscall.SIGKILL), c.Code())
	}
	assert.False(t, KillMarked("SPARED", marks...), "nothing is left")
	assert.False(t, KillMarked("SPARED"), "no mark is everybody's")
	for name, c := range others {
		c.Signal(syscall.SIGTERM)
		<-c.Done()
		assert.Equal(t, 128+int(syscall.SIGTERM), c.Code(), name)
	}
}

// A new watchdog has the deadline of the killed one, of which nothing is left.
func TestAnotherWatchdogKnowsTheDeadline(t *testing.T) {
	acted := filepath.Join(t.TempDir(), "acted")
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close its pipe, sooner or later
	testcheck.NothingLeft(t, func() {
		c, err := Start(Command{Args: []string{"sleep", "1000"}, Apart: true, Watch: watchers(acted), Until: inAnHour})
		require.NoError(t, err)
		c.Allow(time.Now().Add(2 * time.Second))
		require.NoError(t, c.leash.dog.process.Kill())
		<-c.Unwatched()
		another, err := c.Rewatch()
		require.NoError(t, err)
		assert.True(t, another)
		began := time.Now()
		ends(t, c)
		assert.Less(t, time.Since(began), 5*time.Second)
		assert.Equal(t, 128+int(syscall.SIGKILL), c.Code())
		another, err = c.Rewatch()
		require.NoError(t, err)
		assert.False(t, another, "it has ended")
		shared := &Child{leash: leash{dog: &Watchdog{gone: make(chan struct{})}}}
		assert.Nil(t, shared.Unwatched(), "the watchdog is not its own")
	})
}

// A stopped watchdog continues at the next deadline, and none is left once its program has ended.
func TestAWatchdogThatWasStoppedGoesOn(t *testing.T) {
	acted := filepath.Join(t.TempDir(), "acted")
	testcheck.NothingLeft(t, func() {
		c, err := Start(Command{Args: []string{"sleep", "1000"}, Apart: true, Watch: watchers(acted), Until: inAnHour})
		require.NoError(t, err)
		dog := c.leash.dog.process.Pid
		require.NoError(t, syscall.Kill(dog, syscall.SIGSTOP))
		c.Allow(time.Now().Add(100 * time.Millisecond))
		ends(t, c)
		assert.Equal(t, 128+int(syscall.SIGKILL), c.Code())

		c, err = Start(Command{Args: []string{"sleep", "1000"}, Apart: true, Watch: watchers(acted), Until: inAnHour})
		require.NoError(t, err)
		dog = c.leash.dog.process.Pid
		require.NoError(t, syscall.Kill(dog, syscall.SIGSTOP))
		c.Kill()
		<-c.Done()
		assert.Eventually(t, func() bool { return born(dog) == "" }, 10*time.Second, time.Millisecond, "a stopped watchdog is left")
	})
}

// A stop that Continue has ended, before its report was recorded, leaves nothing. Therefore, what waits for a report
// leaves it in the kernel: if it took the report of a stop, and the program began to exit, then nothing would say for a
// moment that the stop has ended.
func TestAReportOfAStopMayComeTooLate(t *testing.T) {
	c := &Child{cmd: exec.Command("sleep", "1000"), changed: make(chan struct{}, 1)} // only this test reads its reports
	require.NoError(t, ownGroup(c.cmd))
	var err error
	c.pid, err = startOwn(c.cmd)
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	reported := func(s syscall.Signal) report {
		c.Signal(s)
		return awaitReport(c.Pid())
	}
	r := reported(syscall.SIGSTOP)
	assert.Equal(t, report{}, r)
	c.Continue()
	assert.False(t, c.note(r))
	assert.Nil(t, c.Stopped())

	reported(syscall.SIGSTOP)
	taken := wait(c.Pid(), syscall.WNOHANG)
	assert.True(t, taken.taken, "it was left in the kernel")
	c.Continue()
	assert.False(t, c.note(taken))
	assert.Nil(t, c.Stopped(), "as on systems where it is taken")

	assert.False(t, c.note(reported(syscall.SIGTSTP)))
	assert.Equal(t, os.Signal(syscall.SIGTSTP), c.Stopped())
	assert.True(t, c.note(reported(syscall.SIGKILL)))
	assert.Equal(t, 128+int(syscall.SIGKILL), c.Code())
}

// Whoever stops or continues a program, it is known at once: a program that was continued is not ended because it does not go on.
func TestAStopAndItsEndAreKnownWhoeverCausesThem(t *testing.T) {
	c := &Child{cmd: exec.Command("sleep", "1000"), changed: make(chan struct{}, 1)}
	c.pid = inGroup(t, c.cmd)
	for range 2 {
		for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGCONT} {
			require.NoError(t, syscall.Kill(c.pid, s))
			assert.False(t, c.note(awaitReport(c.pid)))
			if s == syscall.SIGCONT {
				assert.Nil(t, c.Stopped())
			} else {
				assert.Equal(t, os.Signal(s), c.Stopped())
			}
			assert.Len(t, c.Changed(), 1, s)
			<-c.Changed()
		}
	}
}

// Once a program has been continued, it does not count as stopped because of a stop from before, and so exec does not
// stop for a program that is about to exit.
func TestAStopEndsWhenTheProgramIsContinued(t *testing.T) {
	const stops = `while :; do kill -STOP $$; done`
	for range 100 {
		c, err := Start(Command{Args: []string{"sh", "-c", stops}, Apart: true})
		require.NoError(t, err)
		<-c.Changed()
		c.Continue() // it will be stopped again at once
		c.Signal(syscall.SIGTERM)
		c.Continue()
		for ended := false; !ended; {
			require.Nil(t, c.Stopped())
			select {
			case <-c.Done():
				ended = true
			default:
			}
		}
	}
}

// As the first process of a container, this process reaps every orphan, whether or not a program runs. It kills what its program leaves,
// but not what ran before the program: an entrypoint may have started that.
func TestTheFirstProcessOfAContainerReapsAllAndKillsOnlyWhatItsProgramLeft(t *testing.T) {
	inNamespaces(t, "init", syscall.CLONE_NEWPID|syscall.CLONE_NEWNS, "DIR="+t.TempDir())
}

// asInit runs as the first process of a container, and returns what it did wrong.
func asInit(dir string) error {
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, "")); err != nil {
		return err
	}
	ReapAsInit()
	reaped := func() error { // checks that an orphan that ends is reaped
		made, err := exec.Command("sh", "-c", "setsid sh -c 'while ! [ -e "+dir+"/end ]; do sleep 0.01; done' >/dev/null 2>&1 & echo $!").Output()
		if err != nil {
			return err
		}
		orphan, err := strconv.Atoi(strings.TrimSpace(string(made)))
		if err != nil {
			return err
		}
		if err := os.WriteFile(dir+"/end", nil, 0o600); err != nil {
			return err
		}
		for limit := time.Now().Add(10 * time.Second); born(orphan) != ""; time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				return errors.New("an orphan stays a zombie")
			}
		}
		return os.Remove(dir + "/end")
	}
	elder := exec.Command("sleep", "1000")
	elder.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // before it runs: until then, it is no orphan
	if err := errors.Join(elder.Start(), reaped()); err != nil {
		return err
	}
	for i := range 2 { // the second time, there was a program before
		c, err := Start(Command{Args: stray(fmt.Sprint(dir, "/stray", i)), Apart: true, Whole: true})
		if err != nil {
			return err
		}
		<-c.Done()
		if killed, left := c.Left(); killed != 1 || left != 0 {
			return fmt.Errorf("it killed %d, and left %d", killed, left)
		}
		if born(elder.Process.Pid) == "" || onlyZombies(elder.Process.Pid) {
			return errors.New("it killed what ran before the program")
		}
		if err := reaped(); err != nil {
			return err
		}
	}
	return nil
}
