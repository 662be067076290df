package surface_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// manyTools returns n tools with definitions of an ordinary size. Every
// fifth tool shares its name with another.
func manyTools(b *testing.B, n int) func() *surface.Surface {
	lines := make([]string, n)
	for i := range lines {
		name := i
		if i%5 == 0 {
			name = i / 2
		}
		lines[i] = fmt.Sprintf("server-%d/some_tool_%d", i/20, name)
	}
	task, selected := bind(b, lines...)
	for _, s := range selected {
		s.Tool.Definition = fmt.Appendf(nil, `{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{`+
			`"path":{"type":"string","description":%q},"limit":{"type":"integer","minimum":1,"default":20},`+
			`"order":{"type":"string","enum":["asc","desc"]}},"required":["path"],"additionalProperties":false},`+
			`"annotations":{"readOnlyHint":true}}`, s.Tool.ID.Name, strings.Repeat("What it does. ", 25), strings.Repeat("Where. ", 12))
	}
	return func() *surface.Surface { return surface.New(surface.Input{Task: task, Selected: selected}) }
}

// BenchmarkList answers tools/list: from the finished bytes; by putting the
// definitions together again; and, for comparison, as a program does that keeps tools
// as decoded structures and encodes them for each answer.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{100, 1000} {
		bind := manyTools(b, n)
		s := bind()
		size := int64(len(s.List(switchboard.Tools, true)))
		var decoded struct {
			Tools []struct {
				Name        string          `json:"name"`
				Description string          `json:"description"`
				InputSchema map[string]any  `json:"inputSchema"`
				Annotations map[string]bool `json:"annotations"`
			} `json:"tools"`
			ResultType string `json:"resultType"`
		}
		if err := json.Unmarshal(s.List(switchboard.Tools, true), &decoded); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("finished/%d", n), func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			out := make(copier, 0, size)
			for b.Loop() {
				send(b, out, s.List(switchboard.Tools, true))
			}
		})
		b.Run(fmt.Sprintf("together/%d", n), func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			out := make(copier, 0, size)
			for b.Loop() {
				b.StopTimer()
				anew := bind()
				b.StartTimer()
				send(b, out, anew.List(switchboard.Tools, true))
			}
		})
		b.Run(fmt.Sprintf("encoded/%d", n), func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			out := make(copier, 0, size)
			for b.Loop() {
				data, err := json.Marshal(decoded)
				if err != nil {
					b.Fatal(err)
				}
				send(b, out, data)
			}
		})
	}
}

// copier copies the written bytes, as a socket would.
type copier []byte

func (c copier) Write(p []byte) (int, error) { return copy(c[:cap(c)], p), nil }

func send(b *testing.B, to io.Writer, data []byte) {
	if _, err := to.Write(data); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkNew names the tools of a task.
func BenchmarkNew(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		bind := manyTools(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bind()
			}
		})
	}
}
