//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"cloud.google.com/go/spanner"
	"golang.org/x/sys/unix"
)

func init() { programs["agentworker"] = agentWorker }

// agentWorker is the main function of a program that works whenever it holds a lock of an agent. It works for as long
// as the last until allows, by CLOCK_BOOTTIME. After losing the lock, it asks for it again. Its arguments are the
// socket of the agent, the path of the request, and a file in which it logs when it worked and under which token. If
// SPINDLE_DB is set, it also writes fenced rows. If WORKER_LOCKS is set, the program holds several locks: it contains
// what follows the path for each of them, and what follows the name of the file.
func agentWorker() {
	locks := strings.Fields(os.Getenv("WORKER_LOCKS"))
	for _, lock := range locks {
		w := newAgentWork(lock, time.Duration(len(locks))*workEvery)
		go w.holdForever()
	}
	if len(locks) > 0 {
		select {}
	}
	w := newAgentWork("", workEvery)
	if db := os.Getenv("SPINDLE_DB"); db != "" {
		go w.write(db)
	}
	go w.obey()
	w.holdForever()
}

const workEvery = 2 * time.Millisecond

func newAgentWork(lock string, every time.Duration) *agentWork {
	w := &agentWork{socket: os.Args[1], path: os.Args[2] + lock, returns: os.Getenv("WORKER_RETURNS") != ""}
	f, err := os.OpenFile(os.Args[3]+lock, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	w.log = f
	go w.work(every)
	return w
}

func (w *agentWork) holdForever() {
	for {
		w.hold()
		if w.returns {
			w.releaseOrphan()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

type agentWork struct {
	socket, path string
	log          io.Writer
	returns      bool         // if the agent dies, the work returns, and the program releases the lock at the next agent
	fence        atomic.Value // string: the key of the lease row

	mu    sync.Mutex
	conn  net.Conn
	id    string
	names []string
	token int64 // 0 if the program does not hold the lock or has released it
	until int64
}

// may returns the token under which the program may work now, or 0 if it may not, and the time of this check.
func (w *agentWork) may() (token, at int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at = bootMillis(); at >= w.until {
		return 0, at
	}
	return w.token, at
}

func (w *agentWork) set(token, until int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.token, w.until = token, until
}

// extend extends the term, unless the work has already returned.
func (w *agentWork) extend(until int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.token != 0 {
		w.until = until
	}
}

// work checks again and again whether the program may work, and logs the time of the check and the token.
func (w *agentWork) work(every time.Duration) {
	for {
		if token, at := w.may(); token != 0 {
			_, _ = fmt.Fprintf(w.log, "%d %d\n", at, token)
		}
		time.Sleep(every)
	}
}

func bootMillis() int64 { return clockMillis(unix.CLOCK_BOOTTIME) }

func clockMillis(id int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(id, &ts)
	return ts.Nano() / int64(time.Millisecond)
}

// write writes fenced rows without checking the time, so that only the fence prevents writes under an old token.
func (w *agentWork) write(path string) {
	db, err := spanner.NewClient(context.Background(), path)
	if err != nil {
		panic(err)
	}
	for {
		time.Sleep(50 * time.Millisecond)
		key, _ := w.fence.Load().(string)
		if key == "" {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, _ = db.Apply(ctx, []*spanner.Mutation{
			spanner.Update("locktable", []string{"name"}, []any{key}),
			spanner.Insert("written", []string{"token", "written"}, []any{key, spanner.CommitTimestamp}),
		}, spanner.ApplyAtLeastOnce())
		cancel()
	}
}

// obey closes the connection or releases the lock on an order from the test.
func (w *agentWork) obey() {
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		w.mu.Lock()
		conn, id := w.conn, w.id
		w.mu.Unlock()
		switch {
		case orders.Text() == "abort":
			dumpCore()
		case strings.HasPrefix(orders.Text(), "fill "):
			fill(orders.Text()[5:])
		case conn == nil:
		case orders.Text() == "done":
			w.post("/v1/holds/" + id + "/done")
			die()
		case orders.Text() == "say done":
			w.say("/v1/holds/" + id + "/done")
			die()
		case orders.Text() == "close":
			_ = conn.Close()
		case orders.Text() == "release":
			w.set(0, 0) // its work has returned
			w.post("/v1/holds/" + id + "/release")
		}
	}
}

// memory is what the process has filled.
var memory []byte

// fill fills so many megabytes of memory, and prints a line.
func fill(megabytes string) {
	n, err := strconv.Atoi(megabytes)
	if err != nil {
		panic(err)
	}
	memory = make([]byte, n<<20)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	fmt.Println("filled")
}

// dumpCore ends the process with SIGABRT as a program in C does: without Go's handler, and with a core dump in the
// current directory.
func dumpCore() {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &limit)
	limit.Cur = limit.Max
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &limit)
	var byDefault [4]uint64 // a sigaction of zeros
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGABRT), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	_ = unix.Kill(unix.Getpid(), unix.SIGABRT)
}

// releaseOrphan releases a lock that the program still had when its agent died, as soon as the next agent listens.
func (w *agentWork) releaseOrphan() {
	w.mu.Lock()
	token := w.token
	w.token = 0 // its work has returned
	ask := url.Values{"name": w.names, "token": {strconv.FormatInt(token, 10)}, "hold": {w.id}}
	w.mu.Unlock()
	for token != 0 && !w.post("/v1/release?"+ask.Encode()) {
		time.Sleep(10 * time.Millisecond)
	}
}

func die() { _ = unix.Kill(unix.Getpid(), unix.SIGKILL) }

// post sends a request, and reports whether an agent has answered.
func (w *agentWork) post(path string) bool {
	conn := w.say(path)
	if conn == nil {
		return false
	}
	defer conn.Close()
	n, _ := io.Copy(io.Discard, conn)
	return n > 0
}

// say sends a request without waiting for the answer. It returns nil if no agent listens.
func (w *agentWork) say(path string) net.Conn {
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		return nil
	}
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.0\r\n\r\n", path)
	return conn
}

// hold asks for the lock and reads the lines of the response.
func (w *agentWork) hold() {
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		return
	}
	defer conn.Close()
	w.mu.Lock()
	w.conn = conn
	w.mu.Unlock()
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.0\r\n\r\n", w.path)
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || r.StatusCode != http.StatusOK {
		return
	}
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l struct {
			Event, Hold string
			Names       []string
			Token       int64
			Until       struct{ Boottime_ms int64 }
			Fence       []struct{ P1 string }
		}
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		switch l.Event {
		case "hello":
			w.mu.Lock()
			w.id = l.Hold
			w.mu.Unlock()
		case "held":
			w.fence.Store(l.Fence[0].P1)
			w.mu.Lock()
			w.names = l.Names
			w.mu.Unlock()
			w.set(l.Token, l.Until.Boottime_ms)
			fmt.Println("held " + strconv.FormatInt(l.Token, 10))
		case "until":
			w.extend(l.Until.Boottime_ms)
		case "stop":
			w.set(0, 0)
			go w.post("/v1/holds/" + w.id + "/release")
		case "lost":
			w.set(0, 0)
			return
		}
	}
}
