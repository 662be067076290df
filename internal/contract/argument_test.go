package contract_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const issue = `{"type":"object","properties":{
	"title":{"type":"string","description":"what is wrong"},
	"labels":{"type":"array","items":{"$ref":"#/$defs/label"}},
	"limit":{"type":"integer"},
	"level":{"type":"string","default":"info"}},
	"required":["title","level"],"additionalProperties":false,
	"$defs":{"label":{"type":"object","properties":{"name":{"type":"string"},"parent":{"$ref":"#/$defs/label"}},"required":["name"],"additionalProperties":false}}}`

// calling calls a tool with this schema, and returns the outcome.
func calling(check switchboard.InputCheck, schema, args string, next switchboard.Caller) (switchboard.Result, error) {
	tool := &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "t"}, Definition: []byte(`{"name":"t","inputSchema":` + schema + `}`)}
	params := `{"name":"t"}`
	if args != "" {
		params = `{"name":"t","arguments":` + args + `}`
	}
	c := contract.Arguments(func(switchboard.ServerID) switchboard.InputCheck { return check }, next)
	return c.Call(context.Background(), &switchboard.Call{Server: "a", Tool: tool, Params: []byte(params)})
}

func TestArgumentsThatPlainlyDoNotFitNeverReachAServer(t *testing.T) {
	for name, tt := range map[string]struct {
		schema, args string
		check        switchboard.InputCheck
		want         string // the text for the caller; "" if the call is made
		part         string // the part of the schema in the answer
	}{
		"what fits":                          {schema: issue, args: `{"title":"x","level":"info"}`},
		"a missing member with a default":    {schema: issue, args: `{"title":"x"}`},
		"a number as text":                   {schema: issue, args: `{"title":"x","limit":"5"}`},
		"a missing member":                   {schema: issue, args: `{"limit":1}`, want: `"title" is missing`, part: `"title":{"description":"what is wrong","type":"string"}`},
		"no arguments at all":                {schema: issue, want: `"title" is missing`, part: `"required":["title","level"]`},
		"a mistyped member":                  {schema: issue, args: `{"titel":"x"}`, want: `"title" is missing, "titel" is unknown (did you mean "title"?)`},
		"an unknown member":                  {schema: issue, args: `{"title":"x","colour":"red"}`, want: `"colour" is unknown`, part: `"additionalProperties":false`},
		"a missing member of an element":     {schema: issue, args: `{"title":"x","labels":[{"name":"a"},{}]}`, want: `"name" is missing`, part: `"required":["name"]`},
		"an unknown one, in itself":          {schema: issue, args: `{"title":"x","labels":[{"name":"a","parent":{"name":"b","namen":1}}]}`, want: `"namen" is unknown (did you mean "name"?)`},
		"an open object":                     {schema: `{"type":"object","properties":{"a":{}}}`, args: `{"b":1}`},
		"names by pattern":                   {schema: `{"type":"object","patternProperties":{"^x-":{}},"additionalProperties":false}`, args: `{"x-a":1}`},
		"a tool without arguments":           {schema: `{"type":"object","additionalProperties":false}`, args: `{"random":""}`, want: `"random" is unknown`},
		"one of several alternatives":        {schema: `{"type":"object","anyOf":[{"required":["a"]},{"required":["b"]}]}`, args: `{}`},
		"a reference to elsewhere":           {schema: `{"$ref":"https://example.com/s.json"}`, args: `{"a":1}`},
		"a reference in a circle":            {schema: `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`, args: `{"a":1}`},
		"a required name that is said twice": {schema: `{"type":"object","required":["a","a"]}`, args: `{"a":1}`},
		"a list that begins with others":     {schema: `{"type":"object","properties":{"l":{"type":"array","prefixItems":[{"type":"object"}],"items":{"type":"object","required":["x"]}}}}`, args: `{"l":[{}]}`},
		"a tuple":                            {schema: `{"type":"object","properties":{"l":{"type":"array","items":[{"type":"object","required":["x"]}]}}}`, args: `{"l":[{"x":1},{}]}`},
		"a name in escapes":                  {schema: issue, args: `{"tit\u006ce":"x"}`},
		"a schema that is none":              {schema: `7`, args: `{"a":1}`},
		"off":                                {schema: issue, args: `{}`, check: switchboard.CheckOff},
		"strict: what fits":                  {schema: issue, args: `{"title":"x","level":"info"}`, check: switchboard.CheckStrict},
		"strict: a number as text":           {schema: issue, args: `{"title":"x","level":"info","limit":"5"}`, check: switchboard.CheckStrict, want: `at "/limit": want integer, not string`, part: `{"type":"integer"}`},
		"strict: a default is not required":  {schema: issue, args: `{"title":"x"}`, check: switchboard.CheckStrict, want: `"level" is missing`},
		"strict: a schema that is none":      {schema: `{"type":"nonsense"}`, args: `{"a":1}`, check: switchboard.CheckStrict, want: "the tool's schema cannot be read"},
		"the value is not repeated":          {schema: issue, args: `{"title":"x","level":"info","limit":"s3cret"}`, check: switchboard.CheckStrict, want: `want integer, not string`},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			_, err := calling(tt.check, tt.schema, tt.args, switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
				calls++
				return switchboard.Result{JSON: []byte(`{"content":[]}`)}, nil
			}))
			if tt.want == "" {
				if err != nil || calls != 1 {
					t.Fatalf("%d calls, %v", calls, err)
				}
				return
			}
			own, ok := errors.AsType[*switchboard.Error](err)
			if !ok || calls != 0 || own.Code != switchboard.CodeBadArguments || !own.Unsent || !strings.Contains(own.Text, tt.want) || !strings.Contains(own.Hint, tt.part) {
				t.Fatalf("%d calls, %#v", calls, err)
			}
			if strings.Contains(own.Text+own.Hint, "s3cret") {
				t.Error("a value is repeated:", own.Text, own.Hint)
			}
		})
	}
}

func TestAnErrorAnswerHasThePartOfTheSchemaThatTheArgumentsDoNotFit(t *testing.T) {
	const wrong = `{"title":"x","level":"info","limit":"s3cret"}`
	const advice = `Switchboard adds: the arguments do not fit the tool's schema, at "/limit": want integer, not string. The schema says: {"type":"integer"}`
	answer := func(result string, released *int) switchboard.Caller { return answering(result, released) }
	for name, tt := range map[string]struct{ args, result, want string }{
		"an error":                 {wrong, `{"isError":true,"content":[{"type":"text","text":"no"}]}`, advice},
		"an error of no words":     {wrong, `{"isError":true,"content":[ ]}`, advice},
		"an error without content": {wrong, `{"isError":true}`, ""},
		"an answer":                {wrong, `{"content":[]}`, ""},
		"arguments that fit":       {`{"title":"x","level":"info"}`, `{"isError":true,"content":[]}`, ""},
	} {
		released := 0
		r, err := calling("", issue, tt.args, answer(tt.result, &released))
		if err != nil {
			t.Fatal(name, err)
		}
		got := string(r.JSON)
		if tt.want == "" && (got != tt.result || released != 0) || tt.want != "" && (!strings.Contains(strings.ReplaceAll(got, `\"`, `"`), tt.want) || released != 1) {
			t.Errorf("%s: %s, released %d times", name, got, released)
		}
	}
	for code, advised := range map[string]bool{"-32602": true, "-32603": false} {
		object := []byte(`{"code":` + code + `,"message":"Invalid params","data":1}`)
		_, err := calling("", issue, wrong, switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			return switchboard.Result{}, &switchboard.ServerError{Server: "a", Object: object}
		}))
		server, ok := errors.AsType[*switchboard.ServerError](err)
		if !ok || strings.Contains(strings.ReplaceAll(string(server.Object), `\"`, `"`), `"message":"Invalid params. `+advice) != advised || !strings.Contains(string(server.Object), `"data":1`) {
			t.Errorf("error %s of the protocol: %v", code, err)
		}
	}
}

func TestThePartOfALargeSchemaStaysShort(t *testing.T) {
	var properties []string
	for i := range 200 {
		properties = append(properties, `"member`+strings.Repeat("x", i%40)+string(rune('a'+i%26))+`":{"type":"string","description":"`+strings.Repeat("long ", 50)+`"}`)
	}
	_, err := calling("", `{"type":"object","properties":{`+strings.Join(properties, ",")+`},"additionalProperties":false}`, `{"other":1}`, answering(`{}`, new(int)))
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok || len(own.Hint) > 1300 || !strings.Contains(own.Hint, " more") {
		t.Errorf("%v", err)
	}
}

func BenchmarkArgumentsOfAFlatSchema(b *testing.B) {
	const flat = `{"type":"object","properties":{"owner":{"type":"string"},"repo":{"type":"string"},"path":{"type":"string"},"branch":{"type":"string"},"page":{"type":"integer"},"full":{"type":"boolean"}},"required":["owner","repo","path"],"additionalProperties":false}`
	tool := &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "t"}, Digest: "sha256:flat", Definition: []byte(`{"name":"t","inputSchema":` + flat + `}`)}
	call := &switchboard.Call{Server: "a", Tool: tool, Params: []byte(`{"name":"t","arguments":{"owner":"acme","repo":"website","path":"src/main.go","branch":"main","page":3,"full":true}}`)}
	result := switchboard.Result{JSON: []byte(`{"content":[{"type":"text","text":"x"}]}`)}
	next := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) { return result, nil })
	for name, check := range map[string]switchboard.InputCheck{"off": switchboard.CheckOff, "default": switchboard.CheckDefault, "strict": switchboard.CheckStrict} {
		c := contract.Arguments(func(switchboard.ServerID) switchboard.InputCheck { return check }, next)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Call(context.Background(), call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
