package contract_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// answering returns the same result for every call, and counts the released ones.
func answering(result string, released *int) switchboard.Caller {
	text := []byte(result)
	return switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{JSON: text, Release: func() { *released++ }}, nil
	})
}

const weather = `{"type":"object","properties":{"city":{"type":"string","maxLength":8},"days":{"type":"array","items":{"$ref":"#/$defs/day"}}},"required":["city"],"$defs":{"day":{"type":"object","properties":{"t":{"type":"number","minimum":-90}},"additionalProperties":false}}}`

func TestAResultOfTheWrongShapeIsTheServersFailure(t *testing.T) {
	for name, tt := range map[string]struct {
		output, result string
		params         string
		want           string // "" if the result passes
	}{
		"no output schema":                 {result: `{"content":[]}`},
		"what fits":                        {output: weather, result: `{"content":[],"structuredContent":{"city":"Rome","days":[{"t":1.5},{"t":-3}],"more":1}}`},
		"what is missing":                  {output: weather, result: `{"content":[]}`, want: "structuredContent is missing, though the tool has an output schema"},
		"PI-02: another type":              {output: weather, result: `{"structuredContent":{"city":"Rome","days":[{"t":1},{"t":"s3cret"}]}}`, want: `structuredContent: at "/days/1/t": want number, not string`},
		"a number that is too small":       {output: weather, result: `{"structuredContent":{"city":"Rome","days":[{"t":-91}]}}`, want: `structuredContent: at "/days/0/t": does not fit "minimum"`},
		"a text that is too long":          {output: weather, result: `{"structuredContent":{"city":"s3cret s3cret"}}`, want: `structuredContent: at "/city": does not fit "maxLength"`},
		"a member that is missing":         {output: weather, result: `{"structuredContent":{}}`, want: `structuredContent: at "": "city" is missing`},
		"a member too many":                {output: weather, result: `{"structuredContent":{"city":"Rome","days":[{"a/b":1,"t~":1}]}}`, want: `structuredContent: at "/days/0": "a/b" is not allowed here`},
		"the first of what is wrong":       {output: weather, result: `{"structuredContent":{"days":[{"t":"x"},{"t":"y"}],"city":1}}`, want: `structuredContent: at "/city": want string, not number`},
		"null":                             {output: weather, result: `{"structuredContent":null}`, want: `structuredContent: at "": want object, not null`},
		"two of them":                      {output: weather, result: `{"structuredContent":{"city":"Rome"},"structuredContent":{"city":"Rome"}}`, want: "structuredContent is there twice"},
		"a name twice in it":               {output: weather, result: `{"structuredContent":{"city":"Rome","city":"Oslo"}}`, want: "structuredContent: cannot be read: "},
		"an answer that is an error":       {output: weather, result: `{"isError":true,"content":[]}`},
		"one that is then none":            {output: weather, result: `{"isError":true,"isError":false}`, want: "structuredContent is missing"},
		"isError that is no boolean":       {output: weather, result: `{"isError":"true"}`, want: "structuredContent is missing"},
		"a question":                       {output: weather, result: `{"resultType":"input_required","inputRequests":{}}`},
		"a complete answer":                {output: weather, result: `{"resultType":"complete"}`, want: "structuredContent is missing"},
		"a task that was asked for":        {output: weather, result: `{"task":{"taskId":"1"}}`, params: `{"task":{}}`},
		"a task that was not":              {output: weather, result: `{"task":{"taskId":"1"}}`, params: `{}`, want: "structuredContent is missing"},
		"a schema that nobody can compile": {output: `{"type":"nonsense"}`, result: `{"content":[]}`},
		"a schema of anything":             {output: `{}`, result: `{"structuredContent":[1]}`},
		"no alternative fits":              {output: `{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, result: `{"structuredContent":{"a":1}}`, want: `structuredContent: at "/a": does not fit "anyOf"`},
		"a format is a remark":             {output: `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"format":"date-time"}}}`, result: `{"structuredContent":{"a":"yesterday"}}`},
		"a pattern that we cannot say":     {output: `{"properties":{"a":{"pattern":"^(?!x)"}}}`, result: `{"structuredContent":{"a":"x"}}`},
		"a pattern that we can":            {output: `{"properties":{"a":{"pattern":"^x"}}}`, result: `{"structuredContent":{"a":"s3cret"}}`, want: `structuredContent: at "/a": does not fit "pattern"`},
		"a value that is enumerated":       {output: `{"properties":{"a":{"enum":["x",1]}}}`, result: `{"structuredContent":{"a":"s3cret"}}`, want: `structuredContent: at "/a": does not fit "enum"`},
	} {
		t.Run(name, func(t *testing.T) {
			released := 0
			c := contract.Results(answering(tt.result, &released))
			r, err := c.Call(t.Context(), &switchboard.Call{Tool: tool(t, "a/weather", schema(""), tt.output), Params: []byte(tt.params)})
			if tt.want == "" {
				if err != nil || string(r.JSON) != tt.result || released != 0 {
					t.Fatalf("%s, %v, released %d times", r.JSON, err, released)
				}
				return
			}
			e, ok := errors.AsType[*switchboard.Error](err)
			if !ok {
				t.Fatalf("%s, %v", r.JSON, err)
			}
			if e.Code != switchboard.CodeResultInvalid || !e.ServerFailed || e.Unsent || !strings.Contains(e.Text, tt.want) {
				t.Errorf("%+v", e)
			}
			if strings.Contains(e.Error(), "s3cret") {
				t.Errorf("it repeats the value: %v", e)
			}
			if strings.Contains(e.Text, "a/weather") {
				t.Errorf("it names the tool's server to the caller: %s", e.Text)
			}
			if released != 1 || r.JSON != nil {
				t.Errorf("its memory was released %d times", released)
			}
		})
	}
}

func TestFailedCallsAreNotChecked(t *testing.T) {
	failed := errors.New("failed")
	c := contract.Results(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{}, failed
	}))
	if _, err := c.Call(t.Context(), &switchboard.Call{Tool: tool(t, "a/x", schema(""), weather)}); !errors.Is(err, failed) {
		t.Error(err)
	}
	released := 0
	c = contract.Results(answering(`{"contents":[]}`, &released))
	if _, err := c.Call(t.Context(), &switchboard.Call{Method: "resources/read"}); err != nil {
		t.Error(err)
	}
}

func BenchmarkResults(b *testing.B) {
	const day = `{"date":"2026-11-21","low":-3.5,"high":4,"sky":"cloudy","wind":{"from":"NW","speed":12}}`
	const output = `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"array","items":{"type":"object",
		"properties":{"date":{"type":"string"},"low":{"type":"number"},"high":{"type":"number"},"sky":{"enum":["clear","cloudy","rain"]},
		"wind":{"type":"object","properties":{"from":{"type":"string"},"speed":{"type":"integer"}}}},"required":["date","low","high"]}}},"required":["city"]}`
	for _, size := range []int{1 << 10, 64 << 10} {
		days := strings.Repeat(day+",", size/(len(day)+1)-1) + day
		result := fmt.Sprintf(`{"content":[{"type":"text","text":"ok"}],"structuredContent":{"city":"Rome","days":[%s]}}`, days)
		for _, with := range []string{"", output} {
			b.Run(fmt.Sprintf("size=%d/schema=%v", size, with != ""), func(b *testing.B) {
				released := 0
				c := contract.Results(answering(result, &released))
				call := &switchboard.Call{Tool: tool(b, "a/weather", schema(""), with)}
				if _, err := c.Call(b.Context(), call); err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				b.SetBytes(int64(len(result)))
				for b.Loop() {
					_, _ = c.Call(b.Context(), call)
				}
			})
		}
	}
}
