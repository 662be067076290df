package link

import "testing"

func TestAClientIsAskedOnlyWhatItHasDeclared(t *testing.T) {
	for _, tt := range []struct {
		capabilities, method, params string
		want                         bool
	}{
		{`{"elicitation":{}}`, "elicitation/create", `{}`, true},
		{`{"elicitation":{}}`, "elicitation/create", `{"mode":"form"}`, true},
		{`{"elicitation":{}}`, "elicitation/create", `{"mode":"url"}`, false},
		{`{"elicitation":{"form":{}}}`, "elicitation/create", `{"mode":"url"}`, false},
		{`{"elicitation":{"url":{}}}`, "elicitation/create", `{"mode":"\u0075rl"}`, true},
		{`{"elicitation":{"url":{}}}`, "elicitation/create", `{}`, false},
		{`{"elicitation":{"form":{},"url":{}}}`, "elicitation/create", `{}`, true},
		{`{"elicitation":true}`, "elicitation/create", `{}`, false},
		{`{"elicitation":{}}`, "sampling/createMessage", `{}`, false},
		{`{"elicitation":{}}`, "roots/list", ``, false},
		{`{"roots":{}}`, "roots/list", ``, true},
		{`{"sampling":{"tools":{}}}`, "sampling/createMessage", `{}`, true},
		{`{"roots":{}}`, "tools/list", ``, false},
		{``, "roots/list", ``, false},
	} {
		if got := clientOffers([]byte(tt.capabilities), tt.method, []byte(tt.params)); got != tt.want {
			t.Errorf("%s of a client with %s: %v, want %v", tt.method+tt.params, tt.capabilities, got, tt.want)
		}
	}
}
