package serve

import "sync"

// maxBehind is the number of frames that a page can be behind before it gets a snapshot instead.
const maxBehind = 16

// A feed keeps the most recent frames, each encoded once for all pages. A page that reads slowly does not delay other
// pages and needs no queue of its own, because it asks for newer frames when it has read the previous ones.
type feed struct {
	mu      sync.Mutex
	version int // of the state after the last frame
	frames  [][]byte
	more    chan struct{} // closed when the next frame is added
}

func newFeed() *feed { return &feed{more: make(chan struct{})} }

func (f *feed) add(frame []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	if f.frames = append(f.frames, frame); len(f.frames) > maxBehind {
		f.frames = append([][]byte(nil), f.frames[1:]...)
	}
	close(f.more)
	f.more = make(chan struct{})
}

func (f *feed) now() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}

// since returns the frames after a version, and a channel that is closed when the next frame is added. It reports false
// if the feed no longer has all of these frames.
func (f *feed) since(version int) (frames [][]byte, now int, ok bool, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	behind := f.version - version
	if behind > len(f.frames) {
		return nil, 0, false, nil
	}
	return f.frames[len(f.frames)-behind:], f.version, true, f.more
}
