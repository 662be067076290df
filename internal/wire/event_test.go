package wire_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// readEvents reads a whole stream, and writes each event as type|id|data.
func readEvents(t testing.TB, r io.Reader, maxEvent int) ([]string, *wire.EventReader, error) {
	t.Helper()
	var got []string
	events := wire.NewEventReader(r, maxEvent)
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return got, events, nil
		}
		if err != nil {
			return got, events, err
		}
		got = append(got, e.Type+"|"+e.ID+"|"+string(e.Data))
	}
}

func TestEventsAreReadAsTheStandardDefines(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"one", "data: x\n\n", []string{"||x"}},
		{"no space", "data:x\n\n", []string{"||x"}},
		{"one space goes", "data:  x \n\n", []string{"|| x "}},
		{"CRLF", "data: x\r\n\r\ndata: y\r\n\r\n", []string{"||x", "||y"}},
		{"CR", "data: x\r\rdata: y\r\r", []string{"||x", "||y"}},
		{"mixed", "data: x\r\n\ndata: y\n\rdata: z\r\r\n", []string{"||x", "||y", "||z"}},
		{"several lines", "data: x\ndata\ndata:\ndata: y\n\n", []string{"||x\n\n\ny"}},
		{"several lines, CRLF", "data: x\r\ndata: y\r\n\r\n", []string{"||x\ny"}},
		{"data of nothing", "id: 7\ndata:\n\n", []string{"|7|"}},
		{"data of nothing, no colon", "data\n\n", []string{"||"}},
		{"a type", "event: message\ndata: x\n\ndata: y\n\n", []string{"message||x", "||y"}},
		{"a type without data is forgotten", "event: e\n\ndata: x\n\n", []string{"||x"}},
		{"an id lasts", "id: 1\ndata: x\n\ndata: y\n\nid\ndata: z\n\n", []string{"|1|x", "|1|y", "||z"}},
		{"an id without data counts", "id: 1\n\ndata: y\n\n", []string{"|1|y"}},
		{"an id with a NUL does not", "id: 1\nid: a\x00b\ndata: x\n\n", []string{"|1|x"}},
		{"comments", ": ping\n\n:\n\n:data: x\ndata: y\n\n", []string{"||y"}},
		{"unknown fields, and other cases of ours", "foo: 1\nData: x\n data: y\ndata : z\n\ndata: w\n\n", []string{"||w"}},
		{"an end that is missing", "data: x\n\ndata: y\n", []string{"||x"}},
		{"a line end that is missing", "data: x\n\ndata: y\n\ndata: z", []string{"||x", "||y"}},
		{"a byte order mark", "\uFEFFdata: x\n\n", []string{"||x"}},
		{"a second one is part of the name", "\uFEFF\uFEFFdata: x\n\n", nil},
		{"half of one is too", "\xEF\xBBdata: x\n\n", nil},
		{"a colon in the value", "data: a: b\n\n", []string{"||a: b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once":         strings.NewReader(tt.in),
				"byte by byte":    iotest.OneByteReader(strings.NewReader(tt.in)),
				"with the end":    iotest.DataErrReader(strings.NewReader(tt.in)),
				"in small halves": iotest.HalfReader(strings.NewReader(tt.in)),
			} {
				if got, _, err := readEvents(t, r, 1000); err != nil || !slices.Equal(got, tt.want) {
					t.Errorf("%s: %q, %v, want %q", how, got, err, tt.want)
				}
			}
		})
	}
}

func TestAnEventThatEndsInCRDoesNotWaitForMore(t *testing.T) {
	pr, pw := io.Pipe()
	t.Cleanup(func() { _ = pw.Close() })
	events := wire.NewEventReader(pr, 100)
	for _, text := range []string{"data: x\r\r", "\ndata: y\r\n\r", "\ndata: z\n\n"} {
		go func() { _, _ = io.WriteString(pw, text) }()
		if e, err := events.Next(); err != nil || len(e.Data) != 1 {
			t.Fatalf("after %q: %q, %v", text, e.Data, err)
		}
	}
}

func TestTheReaderRemembersRetryAndIDForTheNextConnection(t *testing.T) {
	for _, tt := range []struct {
		in    string
		retry time.Duration
		id    string
	}{
		{"retry: 1500\n\n", 1500 * time.Millisecond, ""},
		{"retry: 10\nretry: x\nretry: -1\nretry: 1.5\nretry:\nretry: 1 \nid: 5\n\n", 10 * time.Millisecond, "5"},
		{"retry: 99999999999999999999999999999999\n\n", wire.MaxRetry, ""},
		{"id: 1\ndata: x\n\nid: 2\n", 0, "2"},
	} {
		_, r, err := readEvents(t, strings.NewReader(tt.in), 100)
		if err != nil || r.Retry() != tt.retry || r.LastID() != tt.id {
			t.Errorf("%q: retry %v, id %q, %v, want %v, %q", tt.in, r.Retry(), r.LastID(), err, tt.retry, tt.id)
		}
	}
}

// endless repeats its text forever, and counts the bytes read.
type endless struct {
	text string
	n    int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[e.n%len(e.text)]
		e.n++
	}
	return len(p), nil
}

func TestEventsAreBounded(t *testing.T) {
	const limit = 100_000
	for _, tt := range []struct{ name, head, rest string }{
		{"a line without end", "data: ", "x"},
		{"a comment without end", ":", "x"},
		{"a field name without end", "", "x"},
		{"data lines without end", "", "data: x\n"},
		{"empty data lines without end", "", "data\r"},
		{"an id without end", "id: ", "x"},
		{"a long id", "id: " + strings.Repeat("x", wire.MaxEventIDBytes+1) + "\n", "data: x\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flood := &endless{text: tt.rest}
			r := wire.NewEventReader(io.MultiReader(strings.NewReader(tt.head), flood), limit)
			_, err := r.Next()
			if !errors.Is(err, wire.ErrEventTooLong) {
				t.Fatalf("error %v, want ErrEventTooLong", err)
			}
			if flood.n > 10*limit {
				t.Errorf("%d bytes were read for a limit of %d", flood.n, limit)
			}
			if _, again := r.Next(); !errors.Is(again, wire.ErrEventTooLong) {
				t.Errorf("the next call: %v, want the same error", again)
			}
		})
	}
	at := "data: " + strings.Repeat("x", limit) + "\n\n"
	if got, _, err := readEvents(t, strings.NewReader(at), limit); err != nil || len(got) != 1 {
		t.Errorf("an event of just the limit: %d events, %v", len(got), err)
	}
	over := "data: " + strings.Repeat("x", limit+1) + "\n\n"
	if got, _, err := readEvents(t, strings.NewReader(over), limit); !errors.Is(err, wire.ErrEventTooLong) {
		t.Errorf("an event of one more: %d events, %v", len(got), err)
	}
}

func TestCommentsMayContinueForever(t *testing.T) {
	in := strings.Repeat(": ping\n\n", 100_000) + "data: x\n\n"
	if got, _, err := readEvents(t, strings.NewReader(in), 100); err != nil || len(got) != 1 {
		t.Errorf("%q, %v, want the one event", got, err)
	}
}

// silent returns neither bytes nor an error.
type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

func TestReadersErrorsArePassedOn(t *testing.T) {
	lost := errors.New("connection lost")
	got, _, err := readEvents(t, io.MultiReader(strings.NewReader("data: x\n\ndata: y\n"), iotest.ErrReader(lost)), 100)
	if !errors.Is(err, lost) || len(got) != 1 {
		t.Errorf("%q, %v, want one event and the error", got, err)
	}
	if _, _, err := readEvents(t, silent{}, 100); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a silent reader: %v", err)
	}
}

func TestTheCallerOwnsTheDataOfEvents(t *testing.T) {
	r := wire.NewEventReader(strings.NewReader("data: aaaa\n\ndata: bbbb\n\n"), 100)
	a, _ := r.Next()
	if b, err := r.Next(); err != nil || string(a.Data) != "aaaa" || string(b.Data) != "bbbb" {
		t.Errorf("%s, %s, %v", a.Data, b.Data, err)
	}
}

func TestWriteEvent(t *testing.T) {
	for _, tt := range []struct{ kind, id, data, want string }{
		{"message", "7", `{"a":1}`, "event: message\nid: 7\ndata: {\"a\":1}\n\n"},
		{"", "", "x", "data: x\n\n"},
		{"", "", "", "data: \n\n"},
		{"", "", "a\nb\r\nc\rd\n", "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"},
		{"", "", "a\n\rb", "data: a\ndata: \ndata: b\n\n"},
		{"e\ndata: forged", "1\r\n\x00", "x", "event: edata: forged\nid: 1\ndata: x\n\n"},
		{"", "", "\n\ndata: forged\n\n", "data: \ndata: \ndata: data: forged\ndata: \ndata: \n\n"},
	} {
		if got := writeEvent([]byte(">"), tt.kind, tt.id, []byte(tt.data)); string(got) != ">"+tt.want {
			t.Errorf("WriteEvent(%q, %q, %q) = %q, want %q", tt.kind, tt.id, tt.data, got[1:], tt.want)
		}
	}
}

func TestLines(t *testing.T) {
	const limit = 100_000
	long := strings.Repeat("x", limit)
	for _, tt := range []struct {
		name, in string
		want     []string // "!" means a line that is too long
	}{
		{"nothing", "", nil},
		{"LF", "a\nb\n", []string{"a", "b"}},
		{"CRLF", "a\r\nb\r\n", []string{"a", "b"}},
		{"CR is no end", "a\rb\n", []string{"a\rb"}},
		{"empty lines", "\n\r\na\n\n", []string{"", "", "a", ""}},
		{"an end that is missing", "a\nb", []string{"a", "b"}},
		{"just the limit", long + "\n" + long + "\r\nb\n", []string{long, long, "b"}},
		{"one more", long + "x\nb\n", []string{"!", "b"}},
		{"many more", strings.Repeat(long, 5) + "\nb\n", []string{"!", "b"}},
		{"many more, and no end", "a\n" + strings.Repeat(long, 5), []string{"a", "!"}},
		{"one more, and no end", "a\n" + long + "x", []string{"a", "!"}},
		{"a CRLF on the edge of the buffer", strings.Repeat("y", 32<<10-1) + "\r\nb\n", []string{strings.Repeat("y", 32<<10-1), "b"}},
		{"a line of just the buffer", strings.Repeat("y", 32<<10) + "\nb\n", []string{strings.Repeat("y", 32<<10), "b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once":      strings.NewReader(tt.in),
				"byte by byte": iotest.OneByteReader(strings.NewReader(tt.in)),
				"with the end": iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				var got []string
				lines := wire.NewLineReader(r, limit)
				for {
					line, err := lines.Next()
					if errors.Is(err, io.EOF) {
						break
					}
					if errors.Is(err, wire.ErrLineTooLong) {
						line = []byte("!")
					} else if err != nil {
						t.Fatal(err)
					}
					got = append(got, string(line))
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("%s: %d lines %.200q, want %d", how, len(got), got, len(tt.want))
				}
			}
		})
	}
}

func TestTheCRofACRLFDoesNotCount(t *testing.T) {
	// The buffer ends between CR and LF.
	const limit = 32<<10 - 1
	line := strings.Repeat("x", limit)
	lines := wire.NewLineReader(strings.NewReader(line+"\r\n"+line+"x\r\n"), limit)
	if got, err := lines.Next(); err != nil || string(got) != line {
		t.Errorf("a line of just the limit: %d bytes, %v", len(got), err)
	}
	if got, err := lines.Next(); !errors.Is(err, wire.ErrLineTooLong) {
		t.Errorf("a line of one more: %d bytes, %v", len(got), err)
	}
}

func TestALineThatIsTooLongIsReportedBeforeItEnds(t *testing.T) {
	flood := &endless{text: "x"}
	lines := wire.NewLineReader(flood, 100_000)
	if _, err := lines.Next(); !errors.Is(err, wire.ErrLineTooLong) || flood.n > 1_000_000 {
		t.Errorf("%v after %d bytes, want ErrLineTooLong soon", err, flood.n)
	}
}

func TestTheCallerOwnsTheLines(t *testing.T) {
	lines := wire.NewLineReader(strings.NewReader("aaaa\nbbbb\n"), 100)
	a, _ := lines.Next()
	if b, err := lines.Next(); err != nil || string(a) != "aaaa" || string(b) != "bbbb" {
		t.Errorf("%s, %s, %v", a, b, err)
	}
}

// refEvents is a slow and plain implementation of the standard.
func refEvents(in string) (got []string) {
	in = strings.TrimPrefix(in, "\uFEFF")
	in = strings.ReplaceAll(strings.ReplaceAll(in, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(in, "\n")
	var kind, id, data string
	for _, line := range lines[:len(lines)-1] { // the last line is incomplete
		if line == "" {
			if data != "" {
				got = append(got, kind+"|"+id+"|"+strings.TrimSuffix(data, "\n"))
			}
			kind, data = "", ""
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data += value + "\n"
		case "event":
			kind = value
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		}
	}
	return got
}

func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		"data: x\n\n", "\uFEFFid: 1\r\ndata: a\rdata: b\n\r\n", ": c\nevent: e\ndata\n\nretry: 5\n\n", "id: a\x00\ndata:y\n\ndata: z\n", "\r\r\n\n\r",
	} {
		f.Add(s, "message", "7", uint8(3))
	}
	f.Fuzz(func(t *testing.T, in, kind, id string, chunk uint8) {
		if len(in) < wire.MaxEventIDBytes { // below every limit
			want := refEvents(in)
			for _, r := range []io.Reader{strings.NewReader(in), &chunks{[]byte(in), int(chunk)%7 + 1}} {
				if got, _, err := readEvents(t, r, 1<<20); err != nil || !slices.Equal(got, want) {
					t.Fatalf("%q: %q, %v, want %q", in, got, err, want)
				}
			}
		}
		// A written event is read as the same event.
		e, err := wire.NewEventReader(bytes.NewReader(writeEvent(nil, kind, id, []byte(in))), 1<<20).Next()
		want := strings.ReplaceAll(strings.ReplaceAll(in, "\r\n", "\n"), "\r", "\n")
		if err != nil && len(kind)+len(id) < wire.MaxEventIDBytes || err == nil && string(e.Data) != want {
			t.Fatalf("%q came back as %q, %v", in, e.Data, err)
		}
		if stream := writeEvent(nil, kind, id, []byte(in)); len(id) < wire.MaxEventIDBytes {
			if got, _, _ := readEvents(t, bytes.NewReader(stream), 1<<20); len(got) > 1 {
				t.Fatalf("%q became %d events", stream, len(got))
			}
		}
	})
}

// chunks reads n bytes at a time.
type chunks struct {
	rest []byte
	n    int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.n)], c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func TestAnEventReaderIsLinearInManyShortLines(t *testing.T) {
	// Searching the whole buffer for each line end would take a minute instead of a third of a second, because the long
	// comment makes the buffer large.
	start := time.Now()
	for _, end := range []string{"\r", "\n", "\r\n"} {
		in := ":" + strings.Repeat("x", 4<<20) + end + "data: w" + end + strings.Repeat(":"+end, 1<<20) + "data: x" + end + end
		if got, _, err := readEvents(t, strings.NewReader(in), 8<<20); err != nil || len(got) != 1 {
			t.Errorf("%q: %d events, %v", end, len(got), err)
		}
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	const n = 1 << 20
	written := writeEvent(nil, "", "", bytes.Repeat([]byte("\r"), n))
	if got, want := len(written), (n+1)*len("data: \n")+1; got != want {
		t.Errorf("%d line ends were written as %d bytes, want %d", n, got, want)
	}
}

// writeEvent appends one event. An empty kind or id is left out, and so is one with a line end or a NUL, because a
// reader would not return it. Data of several lines comes back with LF as the line end.
func writeEvent(dst []byte, kind, id string, data []byte) []byte {
	dst = appendEventField(dst, "event: ", kind)
	dst = appendEventField(dst, "id: ", id)
	line := 0 // the start of the line
	if bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 {
		for i, c := range data {
			if c == '\r' || c == '\n' && (i == 0 || data[i-1] != '\r') {
				dst = append(append(append(dst, "data: "...), data[line:i]...), '\n')
			}
			if c == '\r' || c == '\n' {
				line = i + 1
			}
		}
	}
	return append(append(append(dst, "data: "...), data[line:]...), "\n\n"...)
}

func appendEventField(dst []byte, field, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(dst, field...)
	for i := range len(value) {
		if c := value[i]; c != '\r' && c != '\n' && c != 0 {
			dst = append(dst, c)
		}
	}
	return append(dst, '\n')
}

func TestAnEventThatIsTooLongCanBeSkipped(t *testing.T) {
	const limit = 100
	x := strings.Repeat("x", 3*limit)
	for name, tt := range map[string]struct{ event, data string }{
		"one line":           {"id: 7\ndata: " + x + "\n\n", " " + x},
		"of which no end is": {"data:" + x + "\nevent: message\ndata: y\n\n", x + " y"},
		"many lines":         {"data: a\ndata: " + x[:limit-10] + "\n: a comment\ndata: " + x[:limit/2] + "\ndata: z\n\n", "a" + x[:limit-10] + x[:limit/2] + " z"},
		"another field":      {"data: a\nother: " + x + "\ndata: b\n\n", "a b"},
		"CRLF":               {"data: " + x + "\r\ndata: y\r\n\r\n", " " + x + " y"},
		"CR":                 {"data: " + x + "\rdata: y\r\r", " " + x + " y"},
	} {
		t.Run(name, func(t *testing.T) {
			for how, wrap := range map[string]func(io.Reader) io.Reader{
				"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "in halves": iotest.HalfReader,
			} {
				stream := "data: before\n\n" + tt.event + "data: after\n\n"
				r := wire.NewEventReader(wrap(strings.NewReader(stream)), limit)
				if e, err := r.Next(); err != nil || string(e.Data) != "before" {
					t.Fatalf("%s: %q, %v", how, e.Data, err)
				}
				for range 2 {
					if _, err := r.Next(); !errors.Is(err, wire.ErrEventTooLong) {
						t.Fatalf("%s: %v", how, err)
					}
				}
				var got []byte
				n, err := r.Skip(func(piece []byte) { got = append(got, piece...) }, 10*limit)
				if err != nil || strings.ReplaceAll(string(got), "\n", "") != tt.data || n < len(got) {
					t.Errorf("%s: %d bytes %q, %v; want %q", how, n, got, err, tt.data)
				}
				if e, err := r.Next(); err != nil || string(e.Data) != "after" {
					t.Errorf("%s: then %q, %v", how, e.Data, err)
				}
				if _, err := r.Next(); !errors.Is(err, io.EOF) {
					t.Errorf("%s: at the end %v", how, err)
				}
			}
		})
	}
	for _, rest := range []string{"x", "data: x\n", "other: x\n"} {
		flood := &endless{text: rest}
		r := wire.NewEventReader(io.MultiReader(strings.NewReader("data: "+x), flood), limit)
		if _, err := r.Next(); !errors.Is(err, wire.ErrEventTooLong) {
			t.Fatal(err)
		}
		if _, err := r.Skip(func([]byte) {}, 10*limit); !errors.Is(err, wire.ErrEventTooLong) || flood.n > 1<<20 {
			t.Errorf("without end, after %d bytes: %v", flood.n, err)
		}
		if _, err := r.Next(); !errors.Is(err, wire.ErrEventTooLong) {
			t.Errorf("the stream can still be read: %v", err)
		}
	}
}
