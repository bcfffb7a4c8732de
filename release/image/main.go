// Image builds spindle's container image from the programs of a release, without Docker:
//
//	image -layout DIR PROGRAM...         # writes an OCI layout
//	image -push REPOSITORY PROGRAM...    # pushes the image under its version
//
// Pass one PROGRAM per platform. Image reads each program's version, commit and platform from its build information. It
// prints the digest of the index. The digest depends only on the programs, this module's version and the Go version.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("image", flag.ContinueOnError)
	dir := f.String("layout", "", "write an OCI layout to the directory `DIR`")
	repository := f.String("push", "", "push the image to `REPOSITORY`, with the version as its tag")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() == 0 {
		return errors.New("no programs: name one for each platform")
	}
	programs, err := readPrograms(f.Args())
	if err != nil {
		return err
	}
	index, err := newIndex(programs)
	if err != nil {
		return err
	}
	if *dir != "" {
		err = writeLayout(*dir, index, programs[0].version)
	}
	if err == nil && *repository != "" {
		err = push(ctx, *repository, index, programs[0].version)
	}
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, digest)
	return err
}
