package upstream

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// The framer finds the boundaries of any sequence of frames, however it is
// cut, and stops at the first one.
func TestFramer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mode := rapid.SampledFrom([]framing{lines, lengthPrefixed, webSocket}).Draw(t, "mode")
		var all []byte
		ends := map[int]bool{0: true}
		for range rapid.IntRange(1, 6).Draw(t, "frames") {
			n := rapid.SampledFrom([]int{0, 1, 5, 125, 126, 127, 65535, 65536, 70000}).Draw(t, "length")
			switch mode {
			case lines:
				all = append(append(all, bytes.Repeat([]byte{'x'}, n)...), '\n')
			case lengthPrefixed:
				all = append(all, protobufEvent(n)...)
			case webSocket:
				opcode := rapid.SampledFrom([]byte{0, 1, 2, 9}).Draw(t, "opcode")
				all = append(all, frame(opcode, n, rapid.Bool().Draw(t, "masked"))...)
			}
			ends[len(all)] = true
		}
		f := framer{mode: mode}
		at := 0
		for at < len(all) {
			n := min(rapid.IntRange(1, 80000).Draw(t, "cut"), len(all)-at)
			if rapid.Bool().Draw(t, "to boundary") {
				k := f.scanToBoundary(all[at : at+n])
				if ends[at] && k != 0 {
					t.Fatalf("went past the boundary at %d by %d", at, k)
				}
				for i := at + 1; i < at+k; i++ {
					if ends[i] {
						t.Fatalf("went past the boundary at %d", i)
					}
				}
				if k < n && !ends[at+k] {
					t.Fatalf("stopped at %d, which is no boundary", at+k)
				}
				at += k
				if !ends[at] {
					continue
				}
				n = min(1, len(all)-at)
			}
			f.scan(all[at : at+n])
			at += n
			if f.atBoundary() != ends[at] {
				t.Fatalf("after %d of %d bytes: boundary %t, want %t", at, len(all), f.atBoundary(), ends[at])
			}
		}
		if f.sawClose {
			t.Fatal("saw a close frame in a payload")
		}
	})
}

// Bytes that are no frames at all must do no harm.
func FuzzFramer(f *testing.F) {
	f.Add(byte(webSocket), []byte("\x88\x02\x03\xe9"), 1)
	f.Add(byte(webSocket), []byte("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00x"), 3)
	f.Add(byte(lengthPrefixed), []byte("\xff\xff\xff\xff"), 2)
	f.Fuzz(func(t *testing.T, mode byte, data []byte, cut int) {
		if cut < 1 || framing(mode) > webSocket {
			return
		}
		whole, parts := framer{mode: framing(mode)}, framer{mode: framing(mode)}
		whole.scan(data)
		for rest := data; len(rest) > 0; {
			n := min(cut, len(rest))
			parts.scan(rest[:n])
			rest = rest[n:]
		}
		if whole.atBoundary() != parts.atBoundary() || whole.need != parts.need || whole.sawClose != parts.sawClose {
			t.Fatalf("cut in parts: %+v, %+v", whole, parts)
		}
		if n := whole.scanToBoundary(data); n < 0 || n > len(data) {
			t.Fatalf("scanToBoundary = %d", n)
		}
	})
}
