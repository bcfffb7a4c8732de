package serve

import (
	"cmp"
	"slices"
)

// A feed keeps the most recent frames for all open pages. Each of these frames is encoded only once. The handler of a
// page takes newer frames from the feed when it has sent the previous ones. Therefore, a slow page delays no other
// page, and no page needs its own queue.
type feed struct {
	version  int // of the state after the last frame
	frames   [][]byte
	snapshot []byte        // of all shown locks in that state; nil until a page needs it
	more     chan struct{} // closed when the next frame is added
}

const (
	maxBehind = 16 // a page that is further behind gets a snapshot instead of the frames
	never     = -1 // the version of a page that has received nothing yet
)

func (f *feed) add(frame []byte) {
	f.version++
	if f.frames = append(f.frames, frame); len(f.frames) > maxBehind {
		f.frames = append([][]byte(nil), f.frames[1:]...)
	}
	f.snapshot = nil
	close(f.more)
	f.more = make(chan struct{})
}

// since returns the frames that were added after a version, the current version, and a channel that is closed when the
// next frame is added. If the feed no longer has all of these frames, since returns a snapshot and a tick instead.
func (s *Server) since(version int) (frames [][]byte, now int, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.feed
	if behind := f.version - version; behind <= len(f.frames) {
		return f.frames[len(f.frames)-behind:], f.version, f.more
	}
	if f.snapshot == nil {
		f.snapshot = s.whole()
	}
	return [][]byte{f.snapshot, frame("tick", tickFrame{Old: s.old().Milliseconds()})}, f.version, f.more
}

func (s *Server) tick() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return frame("tick", tickFrame{Old: s.old().Milliseconds()})
}

// whole returns a snapshot of all shown locks.
func (s *Server) whole() []byte {
	f := snapshotFrame{At: millis(s.history.at), Next: s.pace.Next().Milliseconds(), Database: s.Path, Table: s.Table,
		Prefix: s.Prefix, Released: s.Released, Locks: []lockWire{}, Away: s.awayFrame()}
	for _, k := range s.history.locks {
		if k.shown {
			f.Locks = append(f.Locks, k.wire(len(k.terms)))
		}
	}
	slices.SortFunc(f.Locks, func(a, b lockWire) int { return cmp.Compare(a.ID, b.ID) })
	return frame("snapshot", f)
}
