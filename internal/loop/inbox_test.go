package loop

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A receiver that takes one event each time that the Inbox is ready receives all events and the end, whenever the Inbox is closed.
func TestAReceiverOfOneEventAtATimeIsWokenForEachAndForTheEnd(t *testing.T) {
	for n := range 4 {
		for closed := range n + 1 { // after how many events have been received
			box := NewInbox[int]()
			for i := range n {
				require.True(t, box.Put(i))
			}
			var got []int
			for ended := false; !ended; {
				if len(got) == closed && !box.Closed() {
					box.Close()
					require.False(t, box.Put(-1))
				}
				select {
				case <-box.Ready():
				case <-time.After(10 * time.Second):
					require.Fail(t, "it is not woken", "%d events, closed after %d, received %v", n, closed, got)
				}
				e, ok := box.Next()
				if ended = !ok && box.Closed(); ok {
					got = append(got, e)
				}
			}
			assert.Len(t, got, n)
			for i, e := range got {
				assert.Equal(t, i, e, fmt.Sprint(got))
			}
		}
	}
}
