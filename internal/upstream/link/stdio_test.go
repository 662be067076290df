package link

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/test/law"
)

func TestARequestIsUnsentIfThePipeTookNoByte(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	defer ours.Close() //nolint:errcheck // it is broken already
	l := New(slog.New(slog.DiscardHandler), &mask.Mask{}, nil, "", nil)
	s := &stdioPort{link: l, proc: &process.Process{Stdin: ours}, wake: make(chan struct{}, 1), readDone: make(chan struct{})}
	l.Use(s, true)
	close(s.readDone)
	go s.write()
	f := l.newRequest("x", nil)
	if err := l.roundTrip(t.Context(), f, nil); err == nil || AsError(err).Sent || f.Sending.MayBeSent() {
		t.Errorf("%+v", err)
	}
}

func TestARequestMayBeSentIfThePipeTookAPart(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close() //nolint:errcheck // it is broken already
	l := New(slog.New(slog.DiscardHandler), &mask.Mask{}, nil, "", nil)
	s := &stdioPort{link: l, proc: &process.Process{Stdin: ours}, wake: make(chan struct{}, 1), readDone: make(chan struct{})}
	l.Use(s, true)
	close(s.readDone)
	go s.write()
	f := l.newRequest("x", []byte(`{"x":"`+strings.Repeat("x", 1<<20)+`"}`))
	ended := startAsync(func() error { return l.roundTrip(t.Context(), f, nil) })
	if _, err := theirs.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	if err := <-ended; !AsError(err).Sent {
		t.Errorf("%+v", err)
	}
}
