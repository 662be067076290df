package wire_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// results are objects with recorded members in many positions.
var results = []string{
	`{}`, `{ }`, `{"content":[]}`, `{ "content" : [ ] }`,
	`{"_meta":{}}`, `{ "_meta" : {"a":1} }`, `{"_meta":1,"content":[]}`, ` {"a":1}`,
	`{"resultType":"complete","ttlMs":1,"cacheScope":"public","content":[{"_meta":{"a":"}"}}]}`,
	`{"content":[],"resultType":"complete","x":1,"ttlMs":1, "cacheScope":"public" ,"y":2 }`,
	"{\n  \"ttlMs\": 1,\n  \"resultType\": \"complete\",\n  \"content\": [],\n  \"_meta\": {\"a\":1}\n}",
	`{"_meta":1,"_meta":2,"_Meta":3,"\u005fmeta":4,"resultType":5,"resultType":6}`,
	`{"isError":true,"isError":false,"a\"_meta":1,"_meta":[]}`,
	`{"resultType":{"resultType":1},"content":"resultType"}`,
	`{ "ttlMs":1 , "ttlMs":2 , "ttlMs":3 }`, `{"ttlMs":1,"cacheScope":2}`, `{"a":1,"ttlMs":1,"cacheScope":2}`,
}

func TestTheOutlineOfAResultHasThePositionsOfItsMembers(t *testing.T) {
	const result = `{"content":[{"_meta":{}}], "isError" : true,"\u005fMETA":{"a":1},"x":2 }`
	m, err := wire.ParseEnvelope([]byte(`{ "jsonrpc":"2.0","result": ` + result + ` ,"id":7}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range m.Outline.Members {
		got = append(got, fmt.Sprint(n.Name, " ", result[n.After:n.Quote], "|", result[n.Quote:n.Value], "|", result[n.Value:n.End]))
	}
	want := []string{`isError , |"isError" : |true`, `_META ,|"\u005fMETA":|{"a":1}`}
	if !reflect.DeepEqual(got, want) || m.Outline.Truncated || result[m.Outline.End:] != " }" {
		t.Errorf("%q, end %d, want %q", got, m.Outline.End, want)
	}
}

func TestRepeatedMembersAreRecordedUpToALimit(t *testing.T) {
	const result = `{"x":0` // the rest follows
	o := wire.OutlineOf([]byte(result + strings.Repeat(`,"ttlMs":1`, 100_000) + "}"))
	if !o.Truncated || len(o.Members) > 100 {
		t.Errorf("crowded %v, %d members", o.Truncated, len(o.Members))
	}
	if o := wire.OutlineOf([]byte(result + strings.Repeat(`,"other":1`, 1000) + `,"ttlMs":1}`)); o.Truncated || len(o.Members) != 1 {
		t.Errorf("crowded %v, %d members", o.Truncated, len(o.Members))
	}
}

// FuzzSplice compares Splice with Rewrite, and the outline of ParseEnvelope with that of OutlineOf.
func FuzzSplice(f *testing.F) {
	for _, s := range results {
		for edits := range 1 << 6 {
			f.Add([]byte(s), uint8(edits))
		}
	}
	names := [...]string{wire.MemberMeta, wire.MemberResultType, wire.MemberTTL}
	values := [...][]byte{nil, []byte(`{"new":1}`)}
	f.Fuzz(func(t *testing.T, result []byte, which uint8) {
		m, err := wire.ParseEnvelope([]byte(`{"jsonrpc":"2.0","id":1,"result":` + string(result) + `}`))
		if err != nil || len(m.Result) == 0 || m.Result[0] != '{' {
			return
		}
		o := wire.OutlineOf(m.Result)
		if !reflect.DeepEqual(o, m.Outline) {
			t.Fatalf("%s: ParseEnvelope recorded %v, OutlineOf %v", m.Result, m.Outline, o)
		}
		if o.Truncated {
			return
		}
		var edits []wire.Edit
		for i, name := range names {
			if which>>(2*i)&1 == 1 {
				edits = append(edits, wire.Edit{Name: name, Value: values[which>>(2*i+1)&1]})
			}
		}
		want := wire.Rewrite(nil, m.Result, edits...)
		if got := bytes.Join(wire.Splice(m.Result, o, edits...), nil); !bytes.Equal(got, want) {
			t.Fatalf("%s with %s became %s, want %s", m.Result, edits, got, want)
		}
	})
}

// BenchmarkSplice edits the members around a MiB of text.
func BenchmarkSplice(b *testing.B) {
	m, err := wire.ParseEnvelope(textResult())
	if err != nil {
		b.Fatal(err)
	}
	edits := []wire.Edit{{Name: wire.MemberResultType, Value: []byte(`"complete"`)}, {Name: wire.MemberMeta, Value: []byte("{}")}}
	var parts [][]byte
	b.ReportAllocs()
	for b.Loop() {
		parts = wire.Splice(m.Result, m.Outline, edits...)
	}
	if len(parts) == 0 {
		b.Fatal("no parts")
	}
}
