package frame

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

func TestLinesAreReadWholeOrNotAtAll(t *testing.T) {
	const limit = 100_000
	long := strings.Repeat("x", limit+1)
	input := "one\n\ntwo\r\n" + strings.Repeat("y", limit) + "\n" +
		`{"result":"` + long + `","id":7}` + "\n" + `{"id":"a\"b","method":"x","params":"` + long + `"}` + "\n" +
		long + "\nlast\nnot ended"
	want := []Line{
		{Text: []byte("one")},
		{Text: []byte{}},
		{Text: []byte("two\r")},
		{Text: []byte(strings.Repeat("y", limit))},
		{Skipped: limit + 21, ID: []byte("7")},
		{Skipped: limit + 40},
		{Skipped: limit + 1},
		{Text: []byte("last")},
	}
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "halves": iotest.HalfReader,
	} {
		r := NewMessageReader(wrap(strings.NewReader(input)), limit)
		for i, w := range want {
			got, err := r.Next()
			if err != nil {
				t.Fatalf("%s, line %d: %v", name, i, err)
			}
			if !bytes.Equal(got.Text, w.Text) || !bytes.Equal(got.ID, w.ID) || (got.Skipped > 0) != (w.Skipped > 0) || got.Skipped > w.Skipped+1 || got.Skipped < w.Skipped-1 {
				t.Errorf("%s, line %d: %.20q %d %q, want %.20q %d %q", name, i, got.Text, got.Skipped, got.ID, w.Text, w.Skipped, w.ID)
			}
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

type zeros struct{}

func TestALineWithoutEndIsNotReadForEver(t *testing.T) {
	if _, err := NewMessageReader(zeros{}, 1000).Next(); !errors.Is(err, ErrEndlessLine) {
		t.Errorf("error %v", err)
	}
}

// FuzzIDScanner compares the id scanner with the parser: in a message, both find the id of the
// envelope.
func FuzzIDScanner(f *testing.F) {
	for _, s := range []string{
		`{"id":1,"result":{"id":2}}`, `{"result":["id",{"id":"x"}],"id":"a"}`, `{"id":"\"","method":"m"}`, `{ "id" : -5 , "error":{} }`,
		`{"a":{"b":[{}]},"id":null}`, `[{"id":1}]`, `{}`, `{"x":"id","id":9}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := IDScanner{}
		for part := range slices.Chunk(data, 3) {
			s.Feed(part)
		}
		m, err := wire.ParseEnvelope(data)
		if err != nil || m.Kind != wire.Response || len(m.ID) == 0 || len(m.ID) > maxScanned || bytes.Contains(data, []byte(`\u`)) {
			return // names may be escaped there, and the scanner knows only plain names
		}
		if got := s.ResponseID(); string(got) != string(m.ID) {
			t.Errorf("id in %s: %q, want %q", data, got, m.ID)
		}
	})
}
func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
