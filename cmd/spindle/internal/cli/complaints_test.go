package cli

import (
	"bytes"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// complaints are the messages on the standard error while f runs, each a line.
func complaints(f func()) []string {
	var out bytes.Buffer
	before := stderr
	stderr = newJournal(&out)
	_ = stderr.format.Set("json")
	defer func() { stderr = before }()
	f()
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

var away = status.Error(codes.Unavailable, "the database is away")
