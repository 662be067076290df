package contract_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// promised is the schema of the arguments and of the results of the contract in the tests below.
const promised = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","additionalProperties":false,"required":["path"],"dependentRequired":{"ratio":["size"]},
"properties":{
	"path":{"type":"string","pattern":"^/","minLength":2,"maxLength":16},
	"day":{"type":"string","format":"date","pattern":"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
	"size":{"type":"integer","minimum":0,"maximum":9007199254740993},
	"exact":{"const":9007199254740993},
	"ratio":{"type":"number","exclusiveMinimum":0,"multipleOf":0.01},
	"kind":{"enum":["file","folder"]},
	"who":{"oneOf":[{"type":"string"},{"type":"object","required":["id"]},{"type":"object","required":["name"]}]},
	"when":{"anyOf":[{"type":"integer"},{"type":"null"}]},
	"tree":{"$ref":"#/$defs/node"},
	"list":{"type":"array","minItems":1,"maxItems":3,"uniqueItems":true,"items":{"type":"object","properties":{"a":{"type":"array","items":{"type":"object","properties":{"b":{"type":"boolean"}},"additionalProperties":false}}}}},
	"pair":{"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":false},
	"map":{"type":"object","propertyNames":{"pattern":"^[a-z]+$"},"additionalProperties":{"type":"integer"},"maxProperties":2},
	"some":{"not":{"type":"null"}},
	"rule":{"if":{"type":"string"},"then":{"minLength":2},"else":{"type":"integer"}},
	"has":{"type":"array","contains":{"const":1}},
	"none":false},
"$defs":{"node":{"type":"object","properties":{"name":{"type":"string"},"kids":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["name"],"additionalProperties":false}}}`

// deep returns a tree of n nodes within each other, of which the innermost is bad.
func deep(n int) string {
	return strings.Repeat(`{"name":"x","kids":[`, n) + `{"name":s3cret}` + strings.Repeat(`]}`, n)
}

// Each value breaks the contract at one place. As arguments it is refused, and the server gets nothing; as a result it does not
// reach the client. Both times the error names the place, and repeats no value.
func TestWhatBreaksTheContractIsRefusedWithItsPlace(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	definition, err := capability.NewTool("read_file", "Reads.", []byte(promised), []byte(promised), capability.Hints{})
	if err != nil {
		t.Fatal(err)
	}
	v := readVersion(t, "", capability.Facts{})
	v.Tools = []capability.ContractTool{definition}
	own := &switchboard.Tool{
		ID: switchboard.ToolID{Server: "a", Name: "cat"}, Structured: true,
		Definition: []byte(`{"name":"cat","inputSchema":{"type":"object","properties":{"path":{},"day":{},"size":{},"exact":{},"ratio":{},"kind":{},"who":{},"when":{},"tree":{},"list":{},"pair":{},"map":{},"some":{},"rule":{},"has":{},"none":{}}},"outputSchema":` + promised + `}`),
	}
	row := catRow()
	row.Tools["read_file"].Map = nil
	p := provideBy(t, v, own, row)
	if len(p.Faults()) > 0 {
		t.Fatal(p.Faults())
	}
	tool := p.Provided("io.fs.read")[0]

	var sent []string
	var answer string
	released := 0
	server := switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		sent = append(sent, string(c.Params))
		return switchboard.Result{JSON: []byte(answer), Release: func() { released++ }}, nil
	})
	chain := contract.Translate(contract.Results(server))
	call := func(arguments, result string) (switchboard.Result, error) {
		sent, released = nil, 0
		answer = `{"content":[],"structuredContent":` + result + `}`
		return chain.Call(t.Context(), &switchboard.Call{Server: "a", Method: "tools/call", Tool: tool, Params: fmt.Appendf(nil, `{"name":"read_file","arguments":%s}`, arguments)})
	}
	const good = `{"path":"/x","size":9007199254740993,"exact":9007199254740993,"ratio":0.29,"who":{"id":1},"when":null,"tree":{"name":"x","kids":[{"name":"y"}]},"list":[{"a":[{"b":true}]}],"pair":["x",1],"map":{"a":1},"some":1,"rule":7,"has":[2,1]}`
	if r, err := call(good, good); err != nil || len(sent) != 1 || string(r.JSON) != answer {
		t.Fatalf("what fits is refused: %v", err)
	}
	for _, tt := range breaks {
		t.Run(tt.name, func(t *testing.T) {
			value := strings.ReplaceAll(tt.value, "s3cret", `73318`)
			_, err := call(value, good)
			e, ok := errors.AsType[*switchboard.Error](err)
			if !ok || e.Code != switchboard.CodeBadArguments || !e.Unsent || len(sent) > 0 || !strings.Contains(e.Text, tt.want) {
				t.Errorf("arguments: %v; the server got %q; want %s", err, sent, tt.want)
			}
			_, err = call(good, value)
			of, ok := errors.AsType[*switchboard.Error](err)
			if !ok || of.Code != switchboard.CodeResultInvalid || released != 1 || !strings.Contains(of.Text, tt.want) {
				t.Errorf("result: %v; released %d times; want %s", err, released, tt.want)
			}
			if e != nil && of != nil && strings.Contains(e.Text+of.Text+of.Hint, "73318") {
				t.Errorf("an error repeats the value: %v; %v", e, of)
			}
		})
	}
}

// breaks are the places.
var breaks = []struct{ name, value, want string }{
	{"a list in place of an object", `[]`, `at "": want object, not array`},
	{"a member that is missing", `{}`, `at "": "path" is missing`},
	{"an extra member", `{"path":"/x","s3":1}`, `at "": "s3" is not allowed here`},
	{"an extra member far inside", `{"path":"/x","list":[{},{"a":[{"b":true},{"c":s3cret}]}]}`, `at "/list/1/a/1": "c" is not allowed here`},
	{"null", `{"path":null}`, `at "/path": want string, not null`},
	{"another type", `{"path":s3cret}`, `at "/path": want string, not number`},
	{"a pattern", `{"path":"s3cret"}`, `at "/path": does not fit "pattern"`},
	{"a text that is too short", `{"path":"/"}`, `at "/path": does not fit "minLength"`},
	{"a text that is too long", `{"path":"/s3crets3crets3crets3cret"}`, `at "/path": does not fit "maxLength"`},
	{"a format, which its pattern states", `{"path":"/x","day":"2026-1-1"}`, `at "/day": does not fit "pattern"`},
	{"a number below zero", `{"path":"/x","size":-1}`, `at "/size": does not fit "minimum"`},
	{"a fraction", `{"path":"/x","size":1.5}`, `at "/size": want integer, not number`},
	{"one more than 2^53+1", `{"path":"/x","size":9007199254740994}`, `at "/size": does not fit "maximum"`},
	{"2^53, which is not 2^53+1", `{"path":"/x","exact":9007199254740992}`, `at "/exact": does not fit "const"`},
	{"a number that cannot be held exactly", `{"path":"/x","size":1e999999999}`, `at "/size": `},
	{"no multiple", `{"path":"/x","size":1,"ratio":0.295}`, `at "/ratio": does not fit "multipleOf"`},
	{"an exclusive bound", `{"path":"/x","size":1,"ratio":0}`, `at "/ratio": does not fit "exclusiveMinimum"`},
	{"a member that another one needs", `{"path":"/x","ratio":0.29}`, `at "": does not fit "dependentRequired`},
	{"a value that is not enumerated", `{"path":"/x","kind":"s3cret"}`, `at "/kind": does not fit "enum"`},
	{"no alternative of oneOf", `{"path":"/x","who":s3cret}`, `at "/who": does not fit "oneOf"`},
	{"two alternatives of oneOf", `{"path":"/x","who":{"id":1,"name":"s3cret"}}`, `at "/who": does not fit "oneOf"`},
	{"no alternative of anyOf", `{"path":"/x","when":"s3cret"}`, `at "/when": does not fit "anyOf"`},
	{"behind a $ref", `{"path":"/x","tree":{"name":s3cret}}`, `at "/tree/name": want string, not number`},
	{"missing behind two $refs", `{"path":"/x","tree":{"name":"x","kids":[{}]}}`, `at "/tree/kids/0": "name" is missing`},
	{"behind a $ref, forty levels deep", `{"path":"/x","tree":` + deep(20) + `}`, `/kids/0/name": want string, not number`},
	{"deeper than any message may be", `{"path":"/x","tree":` + deep(400) + `}`, `within each other`},
	{"a list without elements", `{"path":"/x","list":[]}`, `at "/list": does not fit "minItems"`},
	{"a list with too many", `{"path":"/x","list":[{},{"a":[]},{"a":[{}]},{"z":s3cret}]}`, `at "/list": does not fit "maxItems"`},
	{"an element twice", `{"path":"/x","list":[{"z":s3cret},{"z":s3cret}]}`, `at "/list": does not fit "uniqueItems"`},
	{"the second of a pair", `{"path":"/x","pair":["x","s3cret"]}`, `at "/pair/1": want integer, not string`},
	{"a third of a pair", `{"path":"/x","pair":["x",1,s3cret]}`, `at "/pair`},
	{"a name that is not allowed", `{"path":"/x","map":{"A":1}}`, `at "/map": does not fit "propertyNames"`},
	{"a value of a map", `{"path":"/x","map":{"a":"s3cret"}}`, `at "/map/a": want integer, not string`},
	{"too many members", `{"path":"/x","map":{"a":1,"b":2,"c":3}}`, `at "/map": does not fit "maxProperties"`},
	{"what not excludes", `{"path":"/x","some":null}`, `at "/some": does not fit "not"`},
	{"then", `{"path":"/x","rule":"s"}`, `at "/rule": does not fit "minLength"`},
	{"else", `{"path":"/x","rule":[]}`, `at "/rule": want integer, not array`},
	{"no element that a list must contain", `{"path":"/x","has":[s3cret]}`, `at "/has": does not fit "contains"`},
	{"a member that may not be there", `{"path":"/x","none":s3cret}`, `at "/none": nothing is allowed here`},
	{"a name twice", `{"path":"/x","path":"/y"}`, `cannot be read`},
}
