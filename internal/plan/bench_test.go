package plan

import (
	"fmt"
	"testing"
)

func BenchmarkNext(b *testing.B) {
	for _, c := range []struct{ n, m, leave int }{{1000, 50, 1}, {20000, 300, 1}, {1000, 100, 50}, {20000, 300, 30}, {20000, 300, 150}} {
		b.Run(fmt.Sprintf("%d partitions, %d of %d leave", c.n, c.leave, c.m), func(b *testing.B) {
			l := NewList(names("p", 0, c.n))
			p := next(b, nil, l, in(l, upTo(c.m)...))
			left := in(l, upTo(c.m-c.leave)...)
			for b.Loop() {
				next(b, p, l, left)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	l := NewList(names("p", 0, 20000))
	text := next(b, nil, l, in(l, upTo(300)...)).Encode()
	for b.Loop() {
		if _, err := Decode(text, l); err != nil {
			b.Fatal(err)
		}
	}
}
