//go:build unix

package suspect_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/scan/suspect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// fastest returns the shortest time of the processor that one of several runs of f takes. The time on the clock says how busy the machine is.
func fastest(runs int, f func()) (least time.Duration) {
	used := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for i := range runs {
		began := used()
		f()
		if took := used() - began; i == 0 || took < least {
			least = took
		}
	}
	return least
}

// syntheticTool returns a definition of the size of the largest real tool, and much like it: a deep schema whose words are repeated, with sentences about properties.
func syntheticTool(size int) []byte {
	sentences := []string{
		"The unique identifier of the item. Read-only.", "Optional. The name that people see; it must be unique in the folder, and it has at most 128 characters.",
		"The date and time of the last change, as in RFC 3339 (always UTC). Do not set it: the service does.", "A link that opens the item in a browser, or a direct link to the file.",
	}
	properties := map[string]any{}
	total := 0
	for i := 0; total < size-60; i++ {
		name := fmt.Sprintf("createdByField%d", i)
		p := map[string]any{
			"type": []string{"string", "null"}, "description": fmt.Sprintf("%s Field %d.", sentences[i%len(sentences)], i), "format": "date-time",
			"anyOf": []any{map[string]any{"$ref": fmt.Sprintf("#/$defs/def%d", i%90)}, map[string]any{"type": "object", "enum": []string{"genericList", "documentLibrary", "links"}}},
		}
		text, _ := json.Marshal(p)
		total += len(text) + len(name) + 4
		properties[name] = p
	}
	definition, _ := json.Marshal(map[string]any{"name": "create_list", "description": "Creates a list.", "inputSchema": map[string]any{"type": "object", "properties": properties}})
	return definition
}

// All tools take at most 3 s, and one at most 1 ms, on a machine that is at rest.
func BenchmarkFind(b *testing.B) {
	id := switchboard.ToolID{Server: "own", Name: "create_list"}
	b.Run("a synthetic tool", func(b *testing.B) {
		definition := syntheticTool(84_963)
		b.SetBytes(int64(len(definition)))
		for b.Loop() {
			suspect.Find(id, definition, peers)
		}
	})
	c := realCorpus(b)
	b.Run("all real tools", func(b *testing.B) {
		for b.Loop() {
			for _, s := range c.real {
				suspect.Find(s.id, s.definition, s.peers)
			}
		}
	})
	bySize := slices.SortedFunc(slices.Values(c.real), func(x, y subject) int { return cmp.Compare(len(x.definition), len(y.definition)) })
	for _, percent := range []int{50, 99, 100} {
		s := bySize[min(len(bySize)*percent/100, len(bySize)-1)]
		b.Run(fmt.Sprintf("one tool of %d bytes", len(s.definition)), func(b *testing.B) {
			for b.Loop() {
				suspect.Find(s.id, s.definition, s.peers)
			}
		})
	}
}

// The time is linear in the size, also for definitions that are made to be slow. The limit is 50 ms at rest for 512 KiB, the largest definition of a server.
func TestAHostileDefinitionIsScannedInBoundedTime(t *testing.T) {
	const size = 512 << 10
	text := func(s string) []byte {
		definition, _ := json.Marshal(map[string]string{"name": "t", "description": strings.Repeat(s, size/len(s))})
		return definition
	}
	properties := func(name func(i int) string, value string) []byte {
		var b strings.Builder
		b.WriteString(`{"name":"t","inputSchema":{"type":"object","properties":{`)
		for i := range 10_000 {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `%q:%s`, name(i), value)
		}
		b.WriteString(`}}}`)
		return []byte(b.String())
	}
	anyOf := `{"type":"string"}`
	for len(anyOf)*2 < size-100 {
		anyOf = `{"anyOf":[` + anyOf + `,` + anyOf + `]}`
	}
	long, _ := json.Marshal(map[string]any{strings.Repeat("n", size/2): strings.Repeat("n", size/2)})
	for what, definition := range map[string][]byte{
		"words that begin each pattern":        text("use not tell read send user secret "),
		"one sentence that nearly matches":     text("before use any ident_name tell not user "),
		"a finding in each sentence":           text("Never tell the user. "),
		"words that are encoded":               text("c2VuZCB0aGUgdG9rZW4= "),
		"one word":                             text("a"),
		"a sentence in capital letters":        text("NEVER: "),
		"names of tools":                       text("read_file "),
		"paths":                                text("/etc/p ~/.ss "),
		"percent signs":                        text("%61%62%63%64%65%66%67%68 "),
		"letters that look like others":        text("раура "),
		"letters that are normalised":          text("ﬃｆ"),
		"characters of the private use area":   text("\ue000"),
		"characters without width":             text("\u200b"),
		"escape sequences":                     text("\x1b[8m"),
		"line feeds":                           text("\n"),
		"addresses":                            text("https://1.2.3.4/![](http "),
		"marks":                                text("<system> [INST] "),
		"10,000 properties":                    properties(func(i int) string { return fmt.Sprintf("createdByField%d", i) }, `{"type":"string","description":"Use own_tool before field_b."}`),
		"10,000 properties in words":           properties(func(i int) string { return fmt.Sprintf("chat_history_%d", i) }, `{"$ref":"#"}`),
		"anyOf, doubled again and again":       []byte(`{"name":"t","inputSchema":` + anyOf + `}`),
		"$ref to itself":                       []byte(`{"name":"t","inputSchema":{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a","properties":{"p":{"$ref":"#"}}}}}}`),
		"deep lists":                           []byte(`{"name":"t","x":` + strings.Repeat("[", size/2) + strings.Repeat("]", size/2) + `}`),
		"a name of half the size, and a value": long,
	} {
		took := fastest(3, func() { suspect.Find(switchboard.ToolID{Server: "own", Name: "t"}, definition, peers) })
		t.Logf("%-40s %7d bytes %v", what, len(definition), took.Round(10*time.Microsecond))
		if took > 2*50*time.Millisecond { // a processor that other programs use too is slower
			t.Errorf("%s: %v", what, took)
		}
	}
}

// The benchmark says the time at rest; a processor that other programs use too is slower.
func TestOneChangedToolTakesAMillisecond(t *testing.T) {
	const limit = 3 * time.Millisecond
	definition := syntheticTool(84_963)
	took := fastest(100, func() { suspect.Find(switchboard.ToolID{Server: "own", Name: "create_list"}, definition, peers) })
	if took > limit {
		t.Errorf("a synthetic tool of %d bytes takes %v", len(definition), took)
	}
	t.Logf("a synthetic tool of %d bytes: %v", len(definition), took)
	c := realCorpus(t)
	largest := slices.MaxFunc(c.real, func(a, b subject) int { return len(a.definition) - len(b.definition) })
	if took = fastest(100, func() { suspect.Find(largest.id, largest.definition, largest.peers) }); took > limit {
		t.Errorf("%s, of %d bytes, takes %v", largest.id, len(largest.definition), took)
	}
	t.Logf("the largest real tool: %v", took)
}
