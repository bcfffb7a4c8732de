package spindletest

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"
)

// slowRead is what a read takes after some ten thousand commits. On a new emulator it is less than a millisecond.
const slowRead = 10 * time.Millisecond

// tellIfSlow logs once, when the test is over, that its emulator has become slow. The fastest of some reads counts: one
// alone may have waited for the machine.
func (d *Database) tellIfSlow(slow time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	fastest := time.Second
	for range 3 {
		began := time.Now()
		if _, err := d.Client.Single().ReadRow(ctx, d.Table, spanner.Key{""}, []string{"name"}); spanner.ErrCode(err) != codes.NotFound {
			return // the test has closed its client, or ended its emulator
		}
		fastest = min(fastest, time.Since(began))
	}
	if fastest >= slow {
		d.tb.Logf("spindletest: the emulator at %s takes %v for any read. It gets slower with each commit, in whatever database; a new one takes less than a millisecond. Start it anew, or give this test one of its own: spindletest.Private()",
			d.Host, fastest.Round(100*time.Microsecond))
	}
}
