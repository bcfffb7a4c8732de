package commandtest

import (
	"bytes"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spindle-lock/spindle/cmd/spindle/internal/terminal"
)

// Complaints returns the lines that f writes to standard error.
func Complaints(f func()) []string {
	var out bytes.Buffer
	before := terminal.Stderr
	terminal.Stderr = terminal.NewJournal(&out)
	_ = terminal.Stderr.Format.Set("json")
	defer func() { terminal.Stderr = before }()
	f()
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// Away is the error from a database that can't be reached.
var Away = status.Error(codes.Unavailable, "the database is away")
