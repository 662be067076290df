//go:build race

package frame

import (
	"bytes"
	"testing"
)

func TestUnderTheRaceDetectorAReleasedBufferIsOverwritten(t *testing.T) {
	l := Borrow(MaxUnpooled + 1)
	copy(l.Bytes, "an answer")
	kept := l.Bytes[:9]
	l.ReleaseOnce()()
	if !bytes.Equal(kept, []byte("!!!!!!!!!")) {
		t.Errorf("it holds %q", kept)
	}
}
