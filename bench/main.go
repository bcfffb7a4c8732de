package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"syscall"
	"time"

	"github.com/spindle-lock/spindle/internal/testkit/subprocess"
)

// lease is the lease of all systems. It is a whole number of seconds, because etcd and Kubernetes count in seconds.
var lease = 4 * time.Second

// These are the times for which a process holds a mutex that other processes want.
const (
	shortTurn = 20 * time.Millisecond
	longTurn  = 200 * time.Millisecond
)

// rounds says how often, or for how long, each measurement is made.
type rounds struct {
	kills, crews int // kills per crew, and the number of crews, which run at the same time
	stops        int
	rest         int // leases
	cycles       int
	turns        time.Duration
}

// options are the flags.
type options struct {
	only                   *regexp.Regexp
	short, compile, stderr bool
	apiserver              string
}

func main() {
	subprocess.Main(runTask)
	o, err := parse()
	if err == nil {
		err = o.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse() (o options, err error) {
	flag.BoolVar(&o.short, "short", false, "make only a few short measurements, to see whether they work")
	only := flag.String("only", "", "measure only systems whose names match this `regexp`")
	flag.BoolVar(&o.compile, "build-apiserver", false, "compile a kube-apiserver first, unless the cache has one")
	flag.StringVar(&o.apiserver, "apiserver", "", "the `path` of a kube-apiserver (default: the one in the cache)")
	flag.BoolVar(&o.stderr, "v", false, "print what the processes write to stderr")
	flag.Parse()
	o.only, err = regexp.Compile(*only)
	return o, err
}

func (o options) run() error {
	if o.apiserver == "" {
		var err error
		if o.apiserver, err = findAPIServer(o.compile); err != nil {
			return err
		}
	}
	n := rounds{kills: 3, crews: 4, stops: 8, rest: 3, cycles: 300, turns: 10 * time.Second}
	if o.short {
		n = rounds{kills: 1, crews: 2, stops: 1, rest: 1, cycles: 20, turns: 2 * time.Second}
	}
	c, err := o.compare(n)
	fmt.Print(c.markdown(), "- Spindle is at commit ", ownVersion(), ".\n")
	return err
}

// compare measures the systems one after the other. If one measurement fails, the others are still made.
func (o options) compare(n rounds) (comparison, error) {
	c := comparison{conditions: n.String(), versions: versionsWith(o.apiserver)}
	var stderr io.Writer
	if o.stderr {
		stderr = os.Stderr
	}
	var failures []error
	for _, s := range systems {
		switch {
		case !o.only.MatchString(s.name):
		case s.onKubernetes && o.apiserver == "":
			c.missing = append(c.missing, s.name+" was not measured, because there is no kube-apiserver. Use -build-apiserver.")
		default:
			r, err := s.measure(n, o.apiserver, stderr)
			c.results, failures = append(c.results, r), append(failures, err)
		}
	}
	return c, errors.Join(failures...)
}

func (n rounds) String() string {
	return fmt.Sprintf("The lease is %v. Each system is measured with up to %d kills, %d stops, %d leases at rest, %d cycles of lock and unlock, %v of turns that hold the lock for %v, and %v of turns that hold it for %v.",
		lease, n.kills*n.crews, n.stops, n.rest, n.cycles, n.turns, shortTurn, n.turns, longTurn)
}

// measure measures a system. Each measurement has servers of its own.
func (s system) measure(n rounds, apiserver string, stderr io.Writer) (result, error) {
	r := result{system: s}
	var failures []error
	steps := []struct {
		name string
		skip bool
		run  func(*ground) error
	}{
		{"stops", false, func(g *ground) (err error) {
			r.closed, err = s.measureFailovers(g, 1, n.stops, syscall.SIGTERM)
			return err
		}},
		{"kills", s.stopsOnly, func(g *ground) (err error) {
			r.killed, err = s.measureFailovers(g, n.crews, n.kills, syscall.SIGKILL)
			return err
		}},
		{"at rest", s.stopsOnly, func(g *ground) (err error) { r.rest, err = s.measureRest(g, n.rest); return err }},
		{"lock and unlock", s.mutex == nil, func(g *ground) (err error) { r.cycles, err = s.measureCycles(g, n.cycles); return err }},
		{"short turns", s.mutex == nil, func(g *ground) (err error) { r.short, err = s.measureTurns(g, 10, shortTurn, n.turns); return err }},
		{"long turns", s.mutex == nil, func(g *ground) (err error) { r.long, err = s.measureTurns(g, 10, longTurn, n.turns); return err }},
	}
	for _, step := range steps {
		if step.skip {
			continue
		}
		start := time.Now()
		g, err := newGround(apiserver, stderr)
		if err == nil {
			err = step.run(g)
			g.close()
		}
		fmt.Fprintf(os.Stderr, "%s: %s (%v)\n", s.name, step.name, time.Since(start).Round(time.Second))
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %s: %w", s.name, step.name, err))
		}
	}
	return r, errors.Join(failures...)
}
