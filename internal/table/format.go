package table

import (
	"errors"
	"fmt"
)

// ErrNewer says that a newer version of this program wrote a row, which this one can't read: the row counts as if its
// lease held.
var ErrNewer = errors.New("written by a newer version of spindle")

// format is the format of the JSON that this program writes into rows, as their v, and the newest that it reads. Rows
// without a v have format 1. A change that older programs would misread needs a larger one.
const format = 1

// known fails with ErrNewer if the row was written in a newer format.
func known(row string, v int) error {
	if v <= format {
		return nil
	}
	return fmt.Errorf("row %q was %w (it has format %d, and this program reads up to %d): update this program", row, ErrNewer, v, format)
}
