package spindle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
)

// wrap adds the step and the lock's name to an error, and what to do about it where that is known.
func (l *Lock) wrap(step string, err error) error {
	if hint := mend(err); hint != "" {
		return fmt.Errorf("spindle: %s: lock %q in table %s: %w (%s)", step, l.name, l.spanner.Table, err, hint)
	}
	return fmt.Errorf("spindle: %s: lock %q: %w", step, l.name, err)
}

func mend(err error) string {
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrNoLeader) {
		return ""
	}
	switch spanner.ErrCode(err) {
	case codes.NotFound:
		return "does the table exist? ddl.Create creates it"
	case codes.InvalidArgument, codes.FailedPrecondition:
		return "is it a lock table? ddl.Verify says what is wrong with it"
	case codes.PermissionDenied, codes.Unauthenticated:
		return "it needs roles/spanner.databaseUser on the database"
	}
	return ""
}

// problems logs each thing that goes wrong once, until it goes well again.
type problems struct {
	log  *slog.Logger
	said map[string]bool
}

func (p *problems) note(err error) {
	key := withoutDigits(err.Error())
	level := slog.LevelDebug
	if !p.said[key] {
		level = slog.LevelWarn
	}
	p.log.Log(context.Background(), level, "can't stand for the lock, trying on", "err", err)
	if p.said == nil {
		p.said = map[string]bool{}
	}
	p.said[key] = true
}

func (p *problems) clear() {
	if p.said != nil {
		p.said = nil
		p.log.Info("standing for the lock again")
	}
}

// withoutDigits makes messages alike that differ in ids, times and ports.
func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, s)
}
