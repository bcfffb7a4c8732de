package spindletest

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
)

// slowRead is the shortest time that a read takes on an emulator that thousands of commits have made slow. On a new
// emulator, a read takes less than a millisecond.
const slowRead = 10 * time.Millisecond

// tellIfSlow logs a message at the end of the test if the emulator has become slow. It measures several reads and uses
// the fastest, because a busy machine may delay a single read.
func (d *Database) tellIfSlow(slow time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	fastest := time.Second
	for range 3 {
		began := time.Now()
		if _, err := d.Client.Single().ReadRow(ctx, d.Table, spanner.Key{""}, []string{"name"}); spanner.ErrCode(err) != codes.NotFound {
			return // the test has closed its client or stopped its emulator
		}
		fastest = min(fastest, time.Since(began))
	}
	if fastest >= slow {
		d.tb.Logf("spindletest: the emulator at %s takes %v to read a row; a new emulator takes less than a millisecond. An emulator gets slower with each commit to any of its databases. Restart this emulator, or give this test its own emulator with spindletest.Private()",
			d.Host, fastest.Round(100*time.Microsecond))
	}
}
