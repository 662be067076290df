package preview_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/preview"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/token"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

var (
	alice = switchboard.Principal{Tenant: "acme", ID: "alice"}
	bob   = switchboard.Principal{Tenant: "acme", ID: "bob"}
	tool  = &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "t"}}
)

// A bench is a Keeper with a limit, over a store in memory, and one tool behind it.
type bench struct {
	*preview.Keeper
	t        *testing.T
	result   string
	released int
	denied   error // policy's answer
	calls    switchboard.Caller
}

func newBench(t *testing.T, s preview.Store, bound int) *bench {
	t.Helper()
	counter, err := token.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t}
	b.Keeper = preview.New(preview.Options{
		Store: s, Count: counter.Count, Log: slog.New(slog.DiscardHandler),
		LimitFor: func(*switchboard.Call) int { return bound },
		Guard: func(next switchboard.Caller) switchboard.Caller {
			return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
				if b.denied != nil {
					return switchboard.Result{}, b.denied
				}
				return next.Call(ctx, c)
			})
		},
	})
	b.calls = b.ShowPreviews(b.AnswerStored(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{JSON: []byte(b.result), Release: func() { b.released++ }}, nil
	})))
	return b
}

func call(who switchboard.Principal) *switchboard.Call {
	return &switchboard.Call{Principal: who, Run: "run", Tool: tool, Params: []byte(`{"name":"t", "arguments":{"q":1}}`)}
}

// get makes the call, which has that result.
func (b *bench) get(c *switchboard.Call, result string) switchboard.Result {
	b.t.Helper()
	b.result = result
	r, err := b.calls.Call(b.t.Context(), c)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// read reads the rest of a result, as the gateway does.
func (b *bench) read(who switchboard.Principal, run switchboard.RunID, args string) (string, error) {
	b.t.Helper()
	ask, err := preview.ParseReadRequest([]byte(args))
	if err != nil {
		return "", err
	}
	kept, err := b.Open(b.t.Context(), who, run, "", ask.Handle)
	if err != nil {
		return "", err
	}
	c := call(who)
	c.Stored, c.Params = kept, kept.Params
	r, err := b.calls.Call(b.t.Context(), c)
	if err != nil {
		return "", err
	}
	return b.ReadPart(&ask, c, r.JSON)
}

func text(s string) string {
	return string(wire.AppendString([]byte(`{"type":"text","text":`), s)) + "}"
}

var handles = regexp.MustCompile(`res_[a-z0-9]+`)

// long returns a text of n bytes in different lines.
func long(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "line %d: the härbour master signs the log\n", i)
	}
	return b.String()[:n]
}

func TestALongResultBecomesAPreviewAndAllOfItCanBeRead(t *testing.T) {
	whole := long(1 << 20)
	b := newBench(t, store.NewMemory(), 64<<10)
	r := b.get(call(alice), `{"content":[`+text(whole)+`],"isError":true,"_meta":{"x":1}}`)
	counter, err := token.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	if n := counter.Count(r.JSON); n > preview.Tokens || n < preview.Tokens/2 {
		t.Errorf("the preview has %d tokens", n)
	}
	if b.released != 1 || r.Preview == nil || r.Preview.Bytes != len(whole) || !strings.Contains(string(r.JSON), `"isError":true`) {
		t.Errorf("released %d times, %+v, %.200s", b.released, r.Preview, r.JSON)
	}
	handle := r.Preview.Handle
	if handles.FindString(string(r.JSON)) != handle {
		t.Errorf("the preview does not name %s", handle)
	}
	var got strings.Builder
	for got.Len() < len(whole) {
		piece, err := b.read(alice, "run", fmt.Sprintf(`{"handle":%q,"range":"%d-%d"}`, handle, got.Len(), got.Len()+1<<20))
		if err != nil {
			t.Fatal(err)
		}
		if len(piece) > 64<<10 {
			t.Fatalf("a piece of %d bytes", len(piece))
		}
		_, body, _ := strings.Cut(piece, "\n")
		got.WriteString(body)
	}
	if got.String() != whole {
		t.Error("what was read is not the result")
	}
}

func TestWhichResultsAreGivenWhole(t *testing.T) {
	many := long(100_000)
	image := `{"type":"image","data":"` + base64.StdEncoding.EncodeToString([]byte(many)) + `","mimeType":"image/png"}`
	for name, tt := range map[string]struct {
		result string
		change func(*switchboard.Call)
		bound  int
	}{
		"no bound":                         {result: `{"content":[` + text(many) + `]}`, bound: 0},
		"a short result":                   {result: `{"content":[` + text("short") + `]}`, bound: 4096},
		"images alone":                     {result: `{"content":[` + image + `]}`, bound: 4096},
		"a program that wants all":         {result: `{"content":[` + text(many) + `]}`, bound: 4096, change: func(c *switchboard.Call) { c.AnyLength = true }},
		"what an output schema promises":   {result: `{"content":[],"structuredContent":{"a":` + string(wire.AppendString(nil, many)) + `}}`, bound: 4096, change: func(c *switchboard.Call) { c.Tool = &switchboard.Tool{ID: tool.ID, Structured: true} }},
		"a question":                       {result: `{"resultType":"input_required","content":[` + text(many) + `]}`, bound: 4096},
		"what is larger than may be kept":  {result: `{"content":[` + text(strings.Repeat("x", store.MaxValue)) + `]}`, bound: 4096},
		"another request than a tool call": {result: `{"contents":[` + text(many) + `]}`, bound: 4096, change: func(c *switchboard.Call) { c.Tool = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, store.NewMemory(), tt.bound)
			c := call(alice)
			if tt.change != nil {
				tt.change(c)
			}
			if r := b.get(c, tt.result); string(r.JSON) != tt.result || r.Preview != nil || b.released != 0 {
				t.Errorf("%.300s", r.JSON)
			}
		})
	}
	b := newBench(t, failing{}, 4096)
	if r := b.get(call(alice), `{"content":[`+text(many)+`]}`); r.Preview != nil || len(r.JSON) < len(many) {
		t.Error("a result that cannot be stored is cut")
	}
}

// failing is a store that always fails.
type failing struct{ preview.Store }

func (failing) Value(context.Context, store.Key) (store.Value, error) {
	return store.Value{}, store.ErrUnavailable
}

func TestItemsOtherThanTextPassBesideThePreview(t *testing.T) {
	image := `{"type":"image","data":"` + strings.Repeat("A", 9000) + `","mimeType":"image/png"}`
	link := `{"type":"resource_link","uri":"a://b","name":"b"}`
	blob := `{"type":"resource","resource":{"uri":"a://c","blob":"AAAA"}}`
	b := newBench(t, store.NewMemory(), 4096)
	r := b.get(call(alice), `{"content":[`+image+`,`+text(long(5000))+`,`+link+`,{"type":"resource","resource":{"uri":"a://d","text":"inner"}},`+blob+`],"structuredContent":{"x":[1,2]}}`)
	var got struct {
		Content           []json.RawMessage
		StructuredContent json.RawMessage
	}
	if err := json.Unmarshal(r.JSON, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Content) != 4 || string(got.Content[1]) != image || string(got.Content[2]) != link || string(got.Content[3]) != blob || got.StructuredContent != nil {
		t.Errorf("%.200s", r.JSON)
	}
	if first := string(got.Content[0]); !strings.Contains(first, `Shape: 3 parts: 0: text, text of 5000 bytes in`) || !strings.Contains(first, `1: resource a://d, text of 5 bytes in 1 line; 2: structuredContent, JSON: {x: [2 × number]}`) {
		t.Errorf("%s", first)
	}
	for args, want := range map[string]string{`"path":"/1"`: "inner", `"path":"/2/x/1"`: "2", `"path":"/0","search":"LINE 7:"`: "at 294: "} {
		if piece, err := b.read(alice, "run", `{"handle":"`+r.Preview.Handle+`",`+args+`}`); err != nil || !strings.Contains(piece, want) {
			t.Errorf("%s: %s %v", args, piece, err)
		}
	}
}

func TestStructuredContentThatRepeatsTheTextIsStoredOnce(t *testing.T) {
	data := `{"items":["` + strings.Repeat("x", 5000) + `"]}`
	b := newBench(t, store.NewMemory(), 4096)
	r := b.get(call(alice), `{"content":[`+text(strings.ReplaceAll(data, ":", ": "))+`],"structuredContent":`+data+`}`)
	if r.Preview == nil || r.Preview.Bytes != len(data)+1 || strings.Contains(string(r.JSON), "structuredContent") {
		t.Errorf("%+v %.300s", r.Preview, r.JSON)
	}
}

func TestAModelReadsTheRestWithoutKnowingTheTool(t *testing.T) {
	var items []string
	for i := range 1000 {
		items = append(items, fmt.Sprintf(`{"id":%d,"name":"Haus %d","tags":["a~/b"],"body":"%s"}`, i, i, strings.Repeat("ü", 20)))
	}
	data := `{"total":1000,"items":[` + strings.Join(items, ",") + `],"a/b":{"~":"tilde"}}`
	b := newBench(t, store.NewMemory(), 16<<10)
	r := b.get(call(alice), `{"content":[`+text(data)+`]}`)
	if !strings.Contains(string(r.JSON), `JSON: {total: number, items: [1000 × {id: number, name: string, tags: [1], body: string}], a/b: {~: string}}`) {
		t.Errorf("no shape: %.600s", r.JSON)
	}
	for _, tt := range []struct{ args, want string }{
		{`"path":"/items/999/name"`, "all 8 bytes:\nHaus 999"},
		{`"path":"$.items[999].name"`, "Haus 999"},
		{`"path":"items[999].name"`, "Haus 999"},
		{`"path":"/a~1b/~0"`, "tilde"},
		{`"path":"/total"`, "all 4 bytes:\n1000"},
		{`"path":"/items"`, `Next: "range":"80`},
		{`"path":"/items","range":"9000-"`, "bytes 9000-"},
		{`"path":"/items/0"`, `{"id":0,"name":"Haus 0"`},
		{`"range":"0-5"`, "bytes 0-5 of "},
		{`"range":"10"`, "bytes 10-80"},
		{`"range":[10,20]`, "bytes 10-20 of "},
		{`"range":10`, "bytes 10-80"},
		{`"search":"haus 999"`, `"haus 999" occurs in it 1 time, 1 shown`},
		{`"search":"ü"`, "occurs in it 20000 times, 20 shown"},
		{`"search":"Schloss"`, `"Schloss" does not occur in its`},
		{`"path":"/items/7","search":"haus"`, "occurs in it 1 time"},
		{``, "bytes 0-8000 of "},

		{`"path":"/items/1000"`, `error: there is no "1000" at "/items", which is [1000 × {4 more}]`},
		{`"path":"/itmes"`, `error: there is no "itmes" at "/", which is {total: number, items: [1000]`},
		{`"range":"x"`, `error: "range" is of bytes, such as "8000-16000"`},
		{`"range":"9-5"`, `error: "range" is of bytes`},
		{`"range":"99999999-"`, "so there is nothing at 99999999"},
		{`"lines":"1-5"`, `error: "lines" is unknown; the arguments are handle, range, path and search`},
		{`"path":7`, `error: "path" must be a string`},
	} {
		args := `{"handle":"` + r.Preview.Handle + `"`
		if tt.args != "" {
			args += "," + tt.args
		}
		piece, err := b.read(alice, "run", args+"}")
		if own, ok := errors.AsType[*switchboard.Error](err); ok {
			piece = "error: " + own.Text
		}
		if !strings.Contains(piece, tt.want) || len(piece) > 16<<10 {
			t.Errorf("%s gave %d bytes: %.300s, want %s", tt.args, len(piece), piece, tt.want)
		}
	}
}

func TestAStoredResultBelongsToOnePrincipalAndOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, store.NewMemory(), 4096)
		handle := b.get(call(alice), `{"content":[`+text(long(5000))+`]}`).Preview.Handle
		args := `{"handle":"` + handle + `"}`
		is := func(what string, err error, want string) {
			t.Helper()
			if own, ok := errors.AsType[*switchboard.Error](err); want == "" && err != nil || want != "" && (!ok || own.Text != want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		const unknown = "no result is kept under this handle"
		_, err := b.read(alice, "run", args)
		is("alice", err, "")
		_, err = b.read(bob, "run", args)
		is("bob", err, unknown)
		_, err = b.read(alice, "another", args)
		is("another run", err, unknown)
		_, err = b.read(alice, "run", `{"handle":"index"}`)
		is("the index", err, unknown)
		_, err = b.read(alice, "run", `{"handle":"res_none"}`)
		is("none", err, unknown)
		b.denied = switchboard.Refuse(switchboard.CodeDenied, "not now")
		_, err = b.read(alice, "run", args)
		is("what policy denies by now", err, "not now")
		b.denied = nil
		time.Sleep(preview.StoredFor)
		_, err = b.read(alice, "run", args)
		is("after an hour", err, unknown)
	})
}

// Whatever form a server gives its result, a model reads at most a preview of it.
func TestEveryFormOfTextIsLimited(t *testing.T) {
	whole := strings.Repeat("words and more words ", 1000)
	for name, result := range map[string]string{
		"cut in the middle of a character": `{"content":[{"type":"text","text":"` + whole + `\ud83d"}]}`,
		"a type that is escaped":           `{"content":[{"type":"te\u0078t","text":"` + whole + `"}]}`,
		"a type that nobody knows":         `{"content":[{"type":"essay","text":"` + whole + `"}]}`,
		"a text twice":                     `{"content":[{"type":"text","text":"` + whole + `","text":"short"}]}`,
		"content twice":                    `{"content":[{"type":"text","text":"` + whole + `"}],"content":[]}`,
		"content that is no list":          `{"content":{"type":"text","text":"` + whole + `"}}`,
		"structured content alone":         `{"structuredContent":{"text":"` + whole + `"}}`,
	} {
		b := newBench(t, store.NewMemory(), 4096)
		r := b.get(call(alice), result)
		if r.Preview == nil || len(r.JSON) > 5000 {
			t.Errorf("%s: %d bytes, preview %v", name, len(r.JSON), r.Preview)
		}
	}
}

// Runs of modern clients have no id. Their tasks distinguish them.
func TestAHandleOfOneTaskOpensInNoOther(t *testing.T) {
	b := newBench(t, store.NewMemory(), 4096)
	c := call(alice)
	c.Run, c.Task = "", "one"
	h := b.get(c, `{"content":[`+text(long(5000))+`]}`).Preview.Handle
	for task, want := range map[switchboard.TaskID]bool{"one": true, "two": false} {
		if _, err := b.Open(t.Context(), alice, "", task, h); (err == nil) != want {
			t.Errorf("task %s: %v", task, err)
		}
	}
}

func TestTheStoredResultsOfOnePrincipalAreLimited(t *testing.T) {
	b := newBench(t, store.NewMemory(), 4096)
	other := b.get(call(bob), `{"content":[`+text(long(5000))+`]}`).Preview.Handle
	var handles []string
	for range 7 {
		handles = append(handles, b.get(call(alice), `{"content":[`+text(strings.Repeat("x", 10<<20))+`]}`).Preview.Handle)
	}
	for i, h := range handles {
		_, err := b.Open(t.Context(), alice, "run", "", h)
		if kept := i >= 1; kept != (err == nil) { // six results of 10 MiB are stored
			t.Errorf("result %d: %v", i, err)
		}
	}
	if _, err := b.Open(t.Context(), bob, "run", "", other); err != nil {
		t.Error("the result of another principal is gone:", err)
	}
}

func FuzzARangeOrAPathNeverReadsOutside(f *testing.F) {
	f.Add(`{"handle":"h","path":"/a/0","range":"1-2"}`, `{"content":[{"type":"text","text":"{\"a\":[1]}"}]}`)
	f.Add(`{"handle":"h","search":"ü"}`, `{"content":[{"type":"text","text":"aüb"},{"type":"text","text":"[]"}],"structuredContent":{}}`)
	f.Fuzz(func(t *testing.T, args, result string) {
		if !wire.Strict([]byte(args)) || !wire.Strict([]byte(result)) || args[0] != '{' || result[0] != '{' {
			t.Skip()
		}
		ask, err := preview.ParseReadRequest([]byte(args))
		if err != nil {
			return
		}
		k := preview.New(preview.Options{LimitFor: func(*switchboard.Call) int { return 4096 }})
		if piece, err := k.ReadPart(&ask, call(alice), []byte(result)); err == nil && len(piece) > 4096+len(args) {
			t.Errorf("%d bytes", len(piece))
		}
	})
}
