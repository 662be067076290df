package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// smallCall is a typical call of an agent.
var smallCall = []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"_meta":{"progressToken":17,` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":"read_file","arguments":{"path":"/srv/project/README.md","head":40}}}`)

const mebi = 1 << 20

// callWith returns a call with a MiB of arguments.
func callWith() []byte {
	args := bigValue()
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"c-1","method":"tools/call","params":{"name":"put","arguments":{"rows":%s}}}`, args)
}

// bigValue returns a MiB of small objects.
func bigValue() []byte {
	row := `{"id":12345,"name":"a name of some length","tags":["x","y"],"ok":true,"ratio":0.25}`
	return []byte("[" + strings.TrimSuffix(strings.Repeat(row+",", mebi/len(row)+1), ",") + "]")
}

// textResult returns a typical result of a MiB: the text of a file.
func textResult() []byte {
	line := `\tif err := run(ctx, \"config.yaml\"); err != nil { return fmt.Errorf(\"run: %w\", err) }\n`
	return []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat(line, mebi/len(line)+1) + `"}],"isError":false}}`)
}

// proseResult has few escapes.
func proseResult() []byte {
	line := `It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness. `
	return []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat(line, mebi/len(line)+1) + `"}]}}`)
}

func BenchmarkParse(b *testing.B) {
	many := strings.Builder{}
	for i := range 50_000 {
		fmt.Fprintf(&many, `"key%d":%d,`, i, i)
	}
	for _, bb := range []struct {
		name string
		data []byte
	}{
		{"small call", smallCall},
		{"1 MiB of objects", callWith()},
		{"1 MiB of text", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{"text":"%s"}}}`,
			strings.Repeat("some text that a client sends. ", 1<<15))},
		{"50,000 names in one object", []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{` + many.String() + `"z":0}}}`)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bb.data)))
			for b.Loop() {
				if _, err := wire.Parse(bb.data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseEnvelope(b *testing.B) {
	for _, bb := range []struct {
		name string
		data []byte
	}{
		{"small", []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"ok"}]}}`)},
		{"1 MiB of prose", proseResult()},
		{"1 MiB of source text", textResult()},
		{"1 MiB of objects", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"result":{"structuredContent":%s}}`, bigValue())},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bb.data)))
			for b.Loop() {
				if _, err := wire.ParseEnvelope(bb.data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOthers measures other parsers, to compare the scans with.
func BenchmarkOthers(b *testing.B) {
	for _, bb := range []struct {
		name string
		data []byte
	}{
		{"small call", smallCall}, {"1 MiB of objects", callWith()}, {"1 MiB of source text", textResult()},
	} {
		b.Run("jsontext IsValid/"+bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.data)))
			for b.Loop() {
				if !jsontext.Value(bb.data).IsValid() {
					b.Fatal("not valid")
				}
			}
		})
		b.Run("encoding json Valid/"+bb.name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.data)))
			for b.Loop() {
				if !json.Valid(bb.data) {
					b.Fatal("not valid")
				}
			}
		})
	}
}

func BenchmarkRewrite(b *testing.B) {
	m, err := wire.Parse(smallCall)
	if err != nil {
		b.Fatal(err)
	}
	name := []byte(`"fs_read_file"`)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = wire.Rewrite(buf[:0], m.Params, wire.Edit{Name: "name", Value: name})
	}
}

func BenchmarkField(b *testing.B) {
	m, err := wire.ParseEnvelope(textResult())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(m.Result)))
	for b.Loop() {
		if _, ok := wire.Field(m.Result, "isError"); !ok {
			b.Fatal("no isError")
		}
	}
}

func BenchmarkEvents(b *testing.B) {
	for _, bb := range []struct {
		name string
		data []byte
	}{{"small", smallCall}, {"1 MiB", textResult()}} {
		event := writeEvent(nil, "message", "", bb.data)
		b.Run("write "+bb.name, func(b *testing.B) {
			var buf []byte
			b.ReportAllocs()
			b.SetBytes(int64(len(bb.data)))
			for b.Loop() {
				buf = writeEvent(buf[:0], "message", "", bb.data)
			}
		})
		b.Run("read "+bb.name, func(b *testing.B) {
			const n = 16
			stream := bytes.Repeat(event, n)
			b.ReportAllocs()
			b.SetBytes(int64(len(stream)))
			for b.Loop() {
				r := wire.NewEventReader(bytes.NewReader(stream), 4<<20)
				for range n {
					if _, err := r.Next(); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := r.Next(); !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLines(b *testing.B) {
	stream := bytes.Repeat(append(bytes.Clone(smallCall), '\n'), 1000)
	b.ReportAllocs()
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		r := wire.NewLineReader(bytes.NewReader(stream), 1<<20)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
	}
}
