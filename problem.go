package spindle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/spindle-lock/spindle/internal/elect"
)

// wrap adds the step and the lock's name to an error, and what to do about it where that is known.
func (l *Lock) wrap(step string, err error) error {
	if hint := mend(err); hint != "" {
		return fmt.Errorf("spindle: %s: lock %q in table %s: %w (%s)", step, l.name, l.spanner.Table, err, hint)
	}
	return fmt.Errorf("spindle: %s: lock %q: %w", step, l.name, err)
}

func mend(err error) string {
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrNoLeader) || errors.Is(err, ErrSuperseded) {
		return ""
	}
	if strings.Contains(spanner.ErrDesc(err), "Session not found") {
		return "the Spanner client has lost its session, which happens when an emulator is started again: make a new client"
	}
	if !elect.Lasting(err) {
		return "" // such as one about the transaction, not the table
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

// problems logs what goes wrong: each kind once, until it goes well again. A single failure is everyday
// life in a network, and only for Debug, if it may go away by itself.
type problems struct {
	log  *slog.Logger
	row  int // failures in a row
	said map[string]bool
}

func (p *problems) note(err error) {
	p.row++
	level := slog.LevelDebug
	if kind := kindOf(err); (p.row > 1 || elect.Lasting(err)) && !p.said[kind] {
		level = slog.LevelWarn
		if p.said == nil {
			p.said = map[string]bool{}
		}
		p.said[kind] = true
	}
	p.log.Log(context.Background(), level, "can't compete for the lock, trying on", "err", err)
}

func (p *problems) clear() {
	if p.said != nil {
		p.log.Info("competing for the lock again")
	}
	p.row, p.said = 0, nil
}

// kindOf makes messages alike that differ in times, ports or the id of a request.
func kindOf(err error) string {
	return spanner.ErrCode(err).String() + strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, spanner.ErrDesc(err))
}
