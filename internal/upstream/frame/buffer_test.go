package frame

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestALentBufferIsLargeEnoughAndNotMuchLarger(t *testing.T) {
	sizes := map[int]int{} // by size class
	for n := MaxUnpooled + 1; n <= 2*MaxMessage+1; n += 1 + n/1000 {
		i, size := sizeClass(n)
		if size < n || size > n+n/4+1 || i >= numSizes {
			t.Fatalf("%d bytes: size class %d has %d", n, i, size)
		}
		if was, ok := sizes[i]; ok && was != size {
			t.Fatalf("size class %d has %d bytes, and %d", i, was, size)
		}
		sizes[i] = size
	}
}

func TestBodiesAreReadWholeWhateverLengthTheyPromise(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 4096, MaxUnpooled - 1, MaxUnpooled, MaxUnpooled + 1, 1 << 20, 2 << 20, 2<<20 + 1, 5 << 20, MaxMessage} {
		body := bytes.Repeat([]byte("0123456789abcde\n"), n/16+1)[:n]
		for _, promised := range []int{-1, n, 1, 3 << 20} {
			for name, r := range map[string]io.Reader{"": bytes.NewReader(body), "in pieces ": iotest.HalfReader(bytes.NewReader(body))} {
				got, l, err := ReadAll(r, promised, MaxMessage)
				if err != nil || !bytes.Equal(got, body) {
					t.Errorf("%s%d bytes, %d promised: %d, %v", name, n, promised, len(got), err)
				}
				if lent := l.ReleaseOnce() != nil; lent != (cap(got) > MaxUnpooled) {
					t.Errorf("%d bytes, %d promised: lent %v", n, promised, lent)
				}
				l.Release()
			}
		}
	}
	if _, _, err := ReadAll(strings.NewReader(strings.Repeat("x", MaxMessage+1)), -1, MaxMessage); err != ErrTooLarge { //nolint:errorlint // as it is made
		t.Errorf("one byte too many: %v", err)
	}
}

func TestABufferReleasedTwiceIsLentOnce(t *testing.T) {
	l := Borrow(MaxUnpooled + 1)
	repay := l.ReleaseOnce()
	repay()
	repay()
	if a, b := Borrow(MaxUnpooled+1), Borrow(MaxUnpooled+1); &a.Bytes[0] == &b.Bytes[0] {
		t.Error("two answers share a buffer")
	}
}

// BenchmarkReadAll reads a MiB and releases its buffer.
func BenchmarkReadAll(b *testing.B) {
	body := bytes.Repeat([]byte("x"), 1<<20+100)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		_, l, err := ReadAll(bytes.NewReader(body), len(body), MaxMessage)
		if err != nil {
			b.Fatal(err)
		}
		l.Release()
	}
}
