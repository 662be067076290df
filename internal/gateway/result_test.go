package gateway

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// lenient reads a result as the most lenient reader would: it ignores the case of names.
type lenient struct {
	Meta       map[string]json.RawMessage `json:"_meta"`
	ResultType any                        `json:"resultType"`
}

// FuzzBridge checks what clients may rely on in any result.
func FuzzBridge(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"content":[]}`, `{"_meta":{}}`, `{"_meta":null}`, `{"_meta":[1],"resultType":"complete"}`,
		`{"_meta":{"io.switchboard/x":1,"a":1.0}}`, `{"\u005fmeta":{"io.modelcontextprotocol/serverInfo":{}}}`, `{"_Meta":{"io.switchboard/x":1}}`,
		`{"resultType":"complete","ttlMs":1,"cacheScope":"public","x":"_meta"}`, `{"resultType":7}`, `{"reſultType":"complete"}`,
		`{ "a" : "\"_meta" , "_meta" : { "io.switchboard/a" : 1 , "io.switchboard/a" : 2 } }`,
	} {
		f.Add([]byte(s))
	}
	enc := newEncoder(ServerInfo("switchboard", "1"), noCallRecorder{}, slog.New(slog.DiscardHandler))
	f.Fuzz(func(t *testing.T, result []byte) {
		m, err := wire.ParseEnvelope([]byte(`{"jsonrpc":"2.0","id":1,"result":` + string(result) + `}`))
		if err != nil || m.Result == nil {
			return
		}
		for _, modern := range []bool{false, true} {
			a, err := enc.encodeForEra(switchboard.Result{JSON: m.Result, Outline: m.Outline}, modern)
			if err != nil {
				continue
			}
			sent, err := wire.ParseEnvelope(a.message([]byte("1")))
			if err != nil {
				t.Fatalf("modern %v: %v: %s", modern, err, a.message(nil))
			}
			got := sent.Result
			if !json.Valid(got) {
				t.Fatalf("modern %v: no JSON: %s", modern, got)
			}
			var l lenient
			if err := json.Unmarshal(got, &l); err != nil && modern {
				t.Fatalf("modern: %v: %s", err, got)
			}
			for key, value := range l.Meta {
				if isForeignReserved(key) && (!modern || key != wire.MetaServerInfo || !bytes.Equal(value, enc.serverInfo)) {
					t.Fatalf("modern %v: %s passed: %s", modern, key, got)
				}
			}
			if modern && (l.Meta[wire.MetaServerInfo] == nil || l.ResultType == nil && !strings.Contains(string(got), `"resultType":null`)) {
				t.Fatalf("modern: something is missing: %s", got)
			}
			if again, err := enc.encodeForEra(switchboard.Result{JSON: got}, modern); err != nil || !modern && !bytes.Equal(again.whole(), got) {
				t.Fatalf("modern %v: not the same twice: %s, %s %v", modern, got, again.whole(), err)
			}
		}
	})
}

func TestAnUnchangedResultIsNotCopied(t *testing.T) {
	enc := newEncoder(ServerInfo("", ""), noCallRecorder{}, slog.New(slog.DiscardHandler))
	for _, s := range []string{`{"content":[]}`, `{"content":[{"_meta":{"io.switchboard/inner":1}}],"_meta":{"vendor":1}}`, `{"a":"\u00e9"}`} {
		got, err := enc.encodeForEra(switchboard.Result{JSON: []byte(s)}, false)
		if err != nil || string(got.result) != s || got.rest != nil {
			t.Errorf("%s became %s, %v", s, got.message(nil), err)
		}
	}
}

func TestTheEndOfAnAnswerIsWrittenOnlyIntoSpareMemory(t *testing.T) {
	enc := newEncoder(ServerInfo("", ""), noCallRecorder{}, slog.New(slog.DiscardHandler))
	for _, s := range []string{`{}`, `{ }`, `{"content":[]}`, `{"resultType":"complete","content":[] }`, `{"a":1,"_meta":{"x":1}}`} {
		for _, modern := range []bool{false, true} {
			memory := []byte(s + strings.Repeat(".", 300))
			parts := func(spare int) [][]byte {
				a, err := enc.encodeForEra(switchboard.Result{JSON: memory[:len(s)], Spare: spare}, modern)
				if err != nil {
					t.Fatal(err)
				}
				_ = a.parts([]byte("1"))
				return a.parts([]byte("1")) // the same again
			}
			want := string(bytes.Join(parts(0), nil))
			if string(memory) != s+strings.Repeat(".", 300) {
				t.Errorf("modern %v: written to: %s", modern, memory)
			}
			got := parts(300)
			if string(bytes.Join(got, nil)) != want {
				t.Errorf("modern %v: %q instead of %s", modern, got, want)
			}
			if edited := strings.Contains(s, "_meta") || !modern && strings.Contains(s, "resultType"); len(got) != 2 && !edited {
				t.Errorf("modern %v: in %d parts: %q", modern, len(got), got)
			}
		}
	}
}

func TestALargeResultIsNotCopiedWhateverChangesAroundIt(t *testing.T) {
	enc := newEncoder(ServerInfo("", ""), noCallRecorder{}, slog.New(slog.DiscardHandler))
	content := `"content":["` + strings.Repeat("x", 1<<20) + `"]`
	for _, s := range []string{
		`{` + content + `}`,
		`{"resultType":"complete",` + content + `,"_meta":{"io.switchboard/x":1}}`,
		`{` + content + `,"ttlMs":1,"cacheScope":"public","resultType":"complete","isError":false,"_meta":{"vendor":1}}`,
	} {
		m, err := wire.ParseEnvelope([]byte(`{"jsonrpc":"2.0","id":1,"result":` + s + `}`))
		if err != nil {
			t.Fatal(err)
		}
		at := &m.Result[bytes.IndexByte(m.Result, '[')]
		for _, modern := range []bool{false, true} {
			a, err := enc.encodeForEra(switchboard.Result{JSON: m.Result, Outline: m.Outline}, modern)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(a.parts([]byte("1")), func(part []byte) bool {
				i := bytes.IndexByte(part, '[')
				return i >= 0 && &part[i] == at
			}) {
				t.Errorf("modern %v: %.40s: the content was copied", modern, s)
			}
		}
	}
}

func TestTheRelatedTaskOfAResultIsShownInTheSameEraOnly(t *testing.T) {
	enc := newEncoder(ServerInfo("", ""), noCallRecorder{}, slog.New(slog.DiscardHandler))
	for _, tt := range []struct {
		server string // the era of the server's answer
		modern bool   // the client
		passes bool
	}{
		{``, false, true},
		{`"resultType":"complete",`, true, true},
		{``, true, false},
		{`"resultType":"complete",`, false, false},
	} {
		const task = `"io.modelcontextprotocol/related-task":{"taskId":"\u0074-1","n":1.0}`
		result := `{` + tt.server + `"content":[],"_meta":{` + task + `,"vendor/x":1,"io.modelcontextprotocol/serverInfo":{"name":"liar"}}}`
		a, err := enc.encodeForEra(switchboard.Result{JSON: []byte(result)}, tt.modern)
		if err != nil {
			t.Fatal(err)
		}
		got := string(a.message([]byte("1")))
		if strings.Contains(got, task) != tt.passes || strings.Contains(got, "liar") || !strings.Contains(got, `"vendor/x":1`) {
			t.Errorf("modern client %v: %s became %s", tt.modern, result, got)
		}
	}
}

// appendMoved encodes as encoding/json does.
func TestAMoveIsEncodedAsEncodingJSONDoes(t *testing.T) {
	odd := "naïve \"<\\\u2028"
	for _, m := range []switchboard.Moved{
		{},
		{To: switchboard.ToolID{Server: "b", Name: odd}, Tried: []switchboard.Attempt{{Tool: switchboard.ToolID{Server: "a", Name: "x"}}}},
		{To: switchboard.ToolID{Server: "c", Name: "x"}, Tried: []switchboard.Attempt{
			{Tool: switchboard.ToolID{Server: "a", Name: odd}, Code: switchboard.CodeOutcomeUnknown, Sent: true},
			{Tool: switchboard.ToolID{Server: "b", Name: "x"}, Code: switchboard.CodeNoneHealthy},
		}},
	} {
		want, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var was, is any
		if err := json.Unmarshal(want, &was); err != nil {
			t.Fatal(err)
		}
		if len(m.Tried) == 0 {
			was.(map[string]any)["tried"] = []any{}
		}
		got := appendMoved(nil, &m)
		if err := json.Unmarshal(got, &is); err != nil || !reflect.DeepEqual(is, was) {
			t.Errorf("%s, want %s (%v)", got, want, err)
		}
	}
}
