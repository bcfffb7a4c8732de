package spindletest

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
)

// slowRead is roughly how long a read takes after ten thousand commits. On a new emulator, a read takes less than a
// millisecond.
const slowRead = 10 * time.Millisecond

// tellIfSlow logs at the end of the test if its emulator has become slow. It uses the fastest of several reads, because
// a single read may have been delayed by a busy machine.
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
		d.tb.Logf("spindletest: the emulator at %s takes %v for a read, compared with less than a millisecond when it was new. It gets slower with each commit, whichever database the commit is in. Restart it, or give this test its own emulator with spindletest.Private()",
			d.Host, fastest.Round(100*time.Microsecond))
	}
}
