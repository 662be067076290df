package link

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// TestCallParamsChangeNothingElse holds for any arguments, members and _meta: everything arrives
// unchanged, except what is ours or the protocol's.
func TestCallParamsChangeNothingElse(t *testing.T) {
	l := &Link{clientInfo: NewClientInfo("n", "v")}
	key := rapid.SampledFrom([]string{"traceparent", "progressToken", "com.example/x", "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/new", "io.switchboard/run", "a b"})
	value := rapid.SampledFrom([]string{`1`, `1.0`, `"s"`, `{"a":[1e400,{}]}`, `null`, `12345678901234567890`})
	rapid.Check(t, func(t *rapid.T) {
		object := func(keys *rapid.Generator[string], label string) string {
			var b strings.Builder
			seen := map[string]bool{}
			for _, k := range rapid.SliceOfN(keys, 0, 5).Draw(t, label) {
				if seen[k] {
					continue
				}
				if seen[k] = true; len(seen) > 1 {
					b.WriteString(", ")
				}
				fmt.Fprintf(&b, "%q: %s", k, value.Draw(t, "value"))
			}
			return "{" + b.String() + "}"
		}
		meta := object(key, "meta")
		if rapid.Bool().Draw(t, "no meta") {
			meta = "null"
		}
		params := fmt.Sprintf(`{"x":1.0,"name":"shown","_meta":%s, "arguments":%s }`, meta, object(rapid.String(), "arguments"))
		if !json.Valid([]byte(params)) {
			t.Skip("names that Go quotes as JSON does not")
		}
		level := rapid.SampledFrom([]string{"", "debug"}).Draw(t, "level")
		version := rapid.SampledFrom([]string{wire.LatestLegacy, wire.Latest}).Draw(t, "version")
		l.greeting.Store(&Hello{Version: version})
		c := &switchboard.Call{Params: []byte(params), LogLevel: level, Method: wire.MethodToolsCall, Target: rapid.SampledFrom([]string{`own "name"`, "shown"}).Draw(t, "target")}
		const before = `{"params":`
		got, token := l.clientInfo.appendCallParams([]byte(before), l.Hello(), c, c.Params, []byte("42"))
		if !strings.HasPrefix(string(got), before) {
			t.Fatalf("it changed what precedes the params: %s", got)
		}
		got = got[len(before):]

		was, is := map[string]string{}, map[string]string{}
		members := func(into map[string]string, obj []byte) {
			for k, v := range wire.Members(obj) {
				into[k] = string(v)
			}
		}
		members(was, []byte(params))
		members(is, got)
		if is["name"] != string(wire.AppendString(nil, c.Target)) {
			t.Fatalf("name %s", is["name"])
		}
		for k, v := range was {
			if k != "name" && k != "_meta" && is[k] != v {
				t.Fatalf("%s is %s, was %s", k, is[k], v)
			}
		}
		wasMeta, isMeta := map[string]string{}, map[string]string{}
		members(wasMeta, []byte(was["_meta"]))
		members(isMeta, []byte(is["_meta"]))
		if string(token) != wasMeta["progressToken"] {
			t.Fatalf("token %s, was %s", token, wasMeta["progressToken"])
		}
		want := map[string]string{}
		for k, v := range wasMeta {
			switch {
			case k == "progressToken":
				want[k] = "42"
			case !strings.HasPrefix(k, "io."):
				want[k] = v
			}
		}
		if wire.Modern(version) {
			want[wire.MetaProtocolVersion], want[wire.MetaClientCapabilities] = `"2026-07-28"`, `{}`
			want[wire.MetaClientInfo] = `{"name":"n","version":"v"}`
			if level != "" {
				want[wire.MetaLogLevel] = `"debug"`
			}
		}
		if fmt.Sprint(isMeta) != fmt.Sprint(want) {
			t.Fatalf("_meta %v, want %v", isMeta, want)
		}
	})
}

func TestAnEmptyMetaIsPassedOnAndAMetaOfOnlyOurMembersIsNot(t *testing.T) {
	l := &Link{}
	l.SetHello(Hello{Version: wire.LatestLegacy})
	for in, want := range map[string]string{
		`{"_meta":{}}`: `{"_meta":{},"name":"n"}`,
		`{"_meta":{"io.modelcontextprotocol/logLevel":"debug"}}`: `{"name":"n"}`,
		`{"name":"x"}`: `{"name":"n"}`,
	} {
		c := &switchboard.Call{Params: []byte(in), Method: wire.MethodToolsCall, Target: "n"}
		if got, _ := l.clientInfo.appendCallParams(nil, l.Hello(), c, c.Params, nil); string(got) != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// BenchmarkCallRequest builds the request of a call, as a legacy and a modern client send it.
func BenchmarkCallRequest(b *testing.B) {
	for version, params := range map[string]string{
		wire.LatestLegacy: `{"name":"echo","arguments":{"nonce":"0123456789abcdef","size":1024}}`,
		wire.Latest:       `{"name":"echo","arguments":{"nonce":"0123456789abcdef","size":1024},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}`,
	} {
		b.Run(version, func(b *testing.B) {
			l := New(nil, nil, NewClientInfo("switchboard", "1.0"), "", nil)
			l.SetHello(Hello{Version: version})
			given := []byte(params)
			a := Attempt{Call: &switchboard.Call{Method: wire.MethodToolsCall, Target: "echo", Params: given}, Params: &given}
			b.ReportAllocs()
			for b.Loop() {
				a.newRequest(l, 0)
			}
		})
	}
}
