package table

import (
	"errors"
	"fmt"
)

// ErrNewer means that a row was written by a newer version of this program, in a format that this version can't read. A
// lock with such a row counts as held.
var ErrNewer = errors.New("written by a newer version of spindle")

// format is the version of the JSON that this program writes into rows, as the field v, and the newest version that it
// reads. Rows without a v have version 1. A change that older programs would misread requires a larger version.
const format = 1

// known returns ErrNewer if v, the format of the row, is newer than this program can read.
func known(row string, v int) error {
	if v <= format {
		return nil
	}
	return fmt.Errorf("row %q was %w (it has format %d, and this program reads formats up to %d): update this program", row, ErrNewer, v, format)
}
