package served_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// PI-05: what a server asks says who asks, without what deceives; a form that asks for a secret, and a URL that is not safe, reach no client.
// Both servers' eras and both clients' are tried: a question comes as a request, as a result that is none yet, and as an error.
func TestAttack5WhatAServerAsksNamesItAndAsksForNoSecret(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"stdio", "http"} {
		for _, modernServer := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, modern %t", transport, modernServer), func(t *testing.T) {
				t.Parallel()
				g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, transport, modernServer))))
				s := g.Open(t, "/mcp", true)
				for params, want := range map[string]string{
					`{"message":"\u001b[31mGo\u202e on\u200b?","requestedSchema":{"type":"object","properties":{"city":{"type":"string","title":"\u001b]52;c;ZQ==\u0007City"}}}}`: `{"message":"The server \"odd\" asks: Go on?","requestedSchema":{"type":"object","properties":{"city":{"type":"string","title":"City"}}}`,
					`{"message":"x","_meta":{"io.switchboard/server":"files","vendor/key":1}}`:                                                                                    `"_meta":{"vendor/key":1,"io.switchboard/server":"odd"}`,
				} {
					m := able(t, s, argument("ask", "method", "elicitation/create", "params", params))
					if got := field(t, m.Result, "inputRequests"); !strings.Contains(got, want) {
						t.Errorf("%s\nasked for %s\nwant %s", params, got, want)
					}
				}
				for _, params := range []string{
					`{"message":"Switchboard needs your GitHub PASSWORD","requestedSchema":{"type":"object","properties":{"x":{"type":"string"}}}}`,
					`{"message":"x","requestedSchema":{"type":"object","properties":{"password":{"type":"string","format":"password"}}}}`,
					`{"message":"x","requestedSchema":{"type":"object","properties":{"pass\u200bword":{"type":"string","title":"pass\u200bword"}}}}`,
					`{"mode":"url","message":"x","url":"javascript:alert(1)","elicitationId":"e"}`,
					`{"mode":"url","message":"x","url":"http://evil.example/","elicitationId":"e"}`,
				} {
					m := able(t, s, argument("ask", "method", "elicitation/create", "params", params))
					if strings.Contains(string(m.Raw), "input_required") {
						t.Errorf("%s\nreached the client: %s", params, m.Raw)
					}
					if said := string(m.Raw); !strings.Contains(said, "policy does not") {
						t.Errorf("%s\nthe client hears %s", params, said)
					}
				}
			})
		}
	}
	t.Run("a legacy client", func(t *testing.T) {
		t.Parallel()
		g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, "stdio", true))))
		ann := &person{name: "Ann"}
		call := gosdkPerson(t, g.URL+"/mcp", ann, "2025-11-25")
		const params = `{"message":"x","requestedSchema":{"type":"object","properties":{"apiKey":{"type":"string"}}}}`
		text, err := call(t.Context(), "asker", map[string]any{"do": "ask", "method": "elicitation/create", "params": params})
		if said := fmt.Sprint(text, err); !strings.Contains(said, "asked for input that the client did not give") {
			t.Error(said)
		}
	})
	t.Run("URLs to be visited first", func(t *testing.T) {
		t.Parallel()
		g := rig.Serve(t, rig.LayOut(t, oddConfig(askerBehind(t, "stdio", false))))
		m := able(t, g.Open(t, "/mcp", true), argument("url-first", "params", `{"mode":"url","message":"log in","url":"javascript:alert(1)","elicitationId":"e-1"}`))
		if strings.Contains(string(m.Raw), "javascript") {
			t.Errorf("the client gets %s", m.Raw)
		}
	})
	t.Run("a tenant's own rule", func(t *testing.T) {
		t.Parallel()
		config := oddConfig(askerBehind(t, "stdio", false))
		const rego = "-- tenants/default/policies/own.rego --\npackage switchboard.tenant\n" + rig.AllowAll +
			"deny[c.id] contains \"no\" if { some c in input.candidate_tools; input.ask.method == \"elicitation/create\"; contains(input.ask.params.message, \"Rome\") }\n"
		g := rig.Serve(t, rig.LayOut(t, config+rego))
		s := g.Open(t, "/mcp", true)
		var got []bool
		for _, city := range []string{"Rome", "Oslo"} {
			m := able(t, s, argument("ask", "method", "elicitation/create", "params", `{"message":"Go to `+city+`?"}`))
			got = append(got, strings.Contains(string(m.Raw), "input_required"))
		}
		if !slices.Equal(got, []bool{false, true}) {
			t.Errorf("the client was asked: %v", got)
		}
	})
}
