package child

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// again runs a test again, in a process that has a part in it.
func again(t *testing.T, part string, attr *syscall.SysProcAttr, files ...*os.File) *exec.Cmd {
	c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	c.Env, c.SysProcAttr, c.ExtraFiles = append(os.Environ(), role+"="+part), attr, files
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	require.NoError(t, c.Start())
	return c
}

// atATerminal runs the test again at a terminal of its own, and returns nil. In that process, it returns the terminal, and what a user
// types there. That process leads the session, so no shell could continue it.
func atATerminal(t *testing.T) (tty *Terminal, keys *os.File) {
	if os.Getenv(role) != "" {
		signal.Reset(syscall.SIGTTOU)
		tty = OpenTerminal()
		require.NotNil(t, tty)
		return tty, os.NewFile(4, "keys")
	}
	keys, screen, err := pty.Open()
	require.NoError(t, err)
	defer keys.Close()
	defer screen.Close()
	assert.NoError(t, again(t, "at a terminal", &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}, screen, keys).Wait())
	return nil, nil
}

// echoes reports whether a terminal shows what is typed, and sets that.
func echoes(t *testing.T, tty *Terminal, set ...bool) bool {
	mode, err := unix.IoctlGetTermios(int(tty.file.Fd()), unix.TCGETS)
	require.NoError(t, err)
	for _, on := range set {
		if mode.Lflag &^= unix.ECHO; on {
			mode.Lflag |= unix.ECHO
		}
		require.NoError(t, unix.IoctlSetTermios(int(tty.file.Fd()), unix.TCSETS, mode))
	}
	return mode.Lflag&unix.ECHO != 0
}

// Whoever has the terminal when a loan ends, it goes back to exec, unless another job has taken it meanwhile. A program that was
// killed leaves it as it was before this loan, not before an earlier one; the settings that a program has made by itself remain.
func TestATerminalIsTakenBackFromAProgramAndFromNobodyElse(t *testing.T) {
	tty, _ := atATerminal(t)
	if tty == nil {
		return
	}
	program, other := sleeper(t), sleeper(t)
	shown := false
	for _, has := range []string{"the program", "exec", "another job", "a job that has ended"} {
		for _, killed := range []bool{true, false} {
			for _, asked := range []int{1, 2} { // how often the program asks
				about := has + ", killed: " + strconv.FormatBool(killed) + ", asked: " + strconv.Itoa(asked)
				require.NoError(t, tty.give(tty.own))
				shown = !shown
				echoes(t, tty, shown)
				for range asked {
					require.True(t, tty.Lend(program), about)
					require.True(t, tty.Lent(), about)
					echoes(t, tty, !shown)
				}
				want := tty.own
				switch has {
				case "exec":
					require.NoError(t, tty.give(tty.own))
				case "another job":
					require.NoError(t, tty.give(other))
					want = other
				case "a job that has ended":
					ended := exec.Command("sleep", "1000")
					require.NoError(t, tty.give(inGroup(t, ended)))
					require.NoError(t, ended.Process.Kill())
					_ = ended.Wait()
				}
				for range 2 { // the second time, there is no loan
					tty.TakeBack(killed)
					now, err := tty.foreground()
					require.NoError(t, err)
					assert.Equal(t, want, now, about)
					assert.False(t, tty.Lent(), about)
					assert.Equal(t, shown == (killed && want == tty.own), echoes(t, tty), about)
				}
			}
		}
	}
}

// Only who has the terminal can lend it, and only to a group that exists: a job in the background that gave the terminal away would
// take it from what the user is typing into. A loan that fails changes nothing.
func TestATerminalIsLentOnlyByWhoHasIt(t *testing.T) {
	tty, _ := atATerminal(t)
	if tty == nil {
		return
	}
	program, other := sleeper(t), sleeper(t)
	ended := exec.Command("true")
	never := inGroup(t, ended)
	_ = ended.Wait()
	for _, r := range []struct {
		has, to    int
		lent, gets bool
	}{
		{tty.own, program, true, true},
		{program, program, false, true}, // somebody else has given it to the program
		{other, program, false, false},
		{tty.own, never, false, false},
		{other, never, false, false},
	} {
		require.NoError(t, tty.give(r.has))
		assert.Equal(t, r.gets, tty.Lend(r.to), "%+v", r)
		assert.Equal(t, r.lent, tty.Lent(), "%+v", r)
		now, err := tty.foreground()
		require.NoError(t, err)
		if r.gets {
			assert.Equal(t, r.to, now, "%+v", r)
		} else {
			assert.Equal(t, r.has, now, "%+v", r)
		}
		tty.lent = 0
	}
}

// A process in the background, as most are, has no terminal to lend.
func TestAProcessWithoutATerminalHasNone(t *testing.T) {
	if os.Getenv(role) == "" {
		assert.NoError(t, again(t, "without a terminal", &syscall.SysProcAttr{Setsid: true}).Wait())
		return
	}
	assert.Nil(t, OpenTerminal())
	assert.False(t, signal.Ignored(syscall.SIGTTOU))
	assert.False(t, programsGetTTOU)
}

// Ctrl-Z reaches who has the terminal. If that is exec, it is told, and is not stopped before it has done what is to be done then.
func TestCtrlZReachesWhoHasTheTerminal(t *testing.T) {
	tty, keys := atATerminal(t)
	if tty == nil {
		return
	}
	assert.True(t, signal.Ignored(syscall.SIGTTOU), "what it prints while a program has the terminal would stop it")
	assert.True(t, programsGetTTOU)
	_, err := keys.WriteString("\x1a")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(tty.Stops()) == 1 }, 10*time.Second, time.Millisecond, "it is busy, and is told later")
	assert.Equal(t, syscall.SIGTSTP, <-tty.Stops())

	program, err := Start(Command{Args: []string{"sleep", "1000"}, Apart: true})
	require.NoError(t, err)
	defer func() { program.Kill(); <-program.Done() }()
	require.True(t, tty.Lend(program.Pid()))
	// This process's group, unlike the program's, is orphaned, so the kernel would not stop it. The program's is not: its parent is in
	// the same session.
	_, err = keys.WriteString("\x1a")
	require.NoError(t, err)
	<-program.Changed()
	assert.Equal(t, syscall.SIGTSTP, program.Stopped())
	assert.Empty(t, tty.Stops())

	programsGetTTOU = false // as in a process that inherits the setting, and whose programs are to inherit it, too
	require.NotNil(t, OpenTerminal())
	assert.False(t, programsGetTTOU)
}

// When exec is suspended, the shell finds the terminal with exec, and when exec goes on, it knows that it was stopped, and does not
// stop once more for the same key. All of its job is stopped with it. If no shell can continue it, it is not stopped, and knows that.
func TestASuspendedProcessKnowsThatItWasStopped(t *testing.T) {
	tty, _ := atATerminal(t)
	if tty == nil {
		return
	}
	program := sleeper(t)
	companion := exec.Command("sleep", "1000") // as in a pipeline
	require.NoError(t, companion.Start())
	defer func() { _ = companion.Process.Kill(); _ = companion.Wait() }()
	const tries = 3
	suspended := 0
	for range tries { // a signal may be late on a busy machine, but not twice
		require.NoError(t, tty.give(tty.own))
		echoes(t, tty, true)
		require.True(t, tty.Lend(program))
		echoes(t, tty, false)
		if tty.Suspend() == (os.Getenv(role) == "a job") && len(tty.Stops()) == 0 {
			suspended++
		}
		assert.False(t, tty.Lent())
		assert.False(t, echoes(t, tty), "the program goes on as it was")
		now, err := tty.foreground()
		require.NoError(t, err)
		assert.Equal(t, tty.own, now)
	}
	assert.GreaterOrEqual(t, suspended, tries-1)
	if os.Getenv(role) == "a job" {
		return
	}
	job := again(t, "a job", &syscall.SysProcAttr{Foreground: true, Ctty: int(tty.file.Fd())}, tty.file, tty.file)
	for {
		r := wait(job.Process.Pid, 0)
		require.NoError(t, r.err)
		switch stopped, continued := stopOf(r.status); {
		case stopped != nil:
			now, err := tty.foreground()
			require.NoError(t, err)
			assert.Equal(t, job.Process.Pid, now)
			assert.Eventually(t, func() bool {
				members, stopped := 0, 0
				for _, stat := range processes() {
					if stat.PGRP == job.Process.Pid {
						if members++; stat.State == "T" {
							stopped++
						}
					}
				}
				return members == 2 && stopped == 2
			}, 10*time.Second, time.Millisecond, "the job and its companion are stopped")
			time.Sleep(2 * soon / steps) // longer than the job waits at a time
			signalGroup(job.Process.Pid, syscall.SIGCONT)
		case !continued:
			assert.Zero(t, exitCode(r.status))
			return
		}
	}
}
