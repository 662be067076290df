package author_test

import (
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var engine = policy.NewEngine(0, 0)

// monday is an ordinary instant.
var monday = time.Date(2026, 11, 23, 10, 30, 0, 0, time.UTC)

func tool(id string, caps ...switchboard.Capability) *switchboard.Tool {
	server, name, _ := strings.Cut(id, "/")
	return &switchboard.Tool{
		ID:           switchboard.ToolID{Server: switchboard.ServerID(server), Name: name},
		Definition:   []byte(`{"name":"` + name + `","annotations":{"readOnlyHint":true,"x":1.0}}`),
		Capabilities: caps, Class: "of-" + server, Version: "1.2.3",
	}
}

var (
	searchCap = switchboard.Capability{Verb: switchboard.Search, Resource: "internet", Constraints: []switchboard.Constraint{switchboard.ReadOnly}, Source: switchboard.FromOverlay}
	write     = switchboard.Capability{Verb: switchboard.Write, Resource: "internet", Source: switchboard.FromTool}

	brave  = tool("brave/search", searchCap)
	google = tool("google/search", searchCap)
	poster = tool("poster/post", write)
	three  = []*switchboard.Tool{brave, google, poster}
)

func init() {
	poster.Contract = switchboard.Contract{
		ReadOnly: switchboard.Fact{Holds: true, Source: switchboard.FromHint},
		Stateful: switchboard.Fact{Holds: true, Source: switchboard.FromOverlay, Trusted: true},
		Timeout:  2500 * time.Millisecond,
	}
}

// source returns the file of a layer, with the package line added unless rules begin with one.
func source(kind policy.LayerKind, text string) switchboard.PolicyFile {
	if !strings.Contains(text, "package ") {
		pkg := "package switchboard\n"
		if kind == policy.Tenant {
			pkg = "package switchboard.tenant\n"
		}
		text = pkg + text
	}
	return switchboard.PolicyFile{Name: "policies/test.rego", Path: "test.rego", Data: []byte(text)}
}

func layer(t testing.TB, kind policy.LayerKind, text string) *policy.Layer {
	t.Helper()
	l, err := policy.Compile(kind, []switchboard.PolicyFile{source(kind, text)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const allowAll = "allowed_tools contains c.id if some c in input.candidate_tools\n"

// of returns a policy; an empty text means no layer.
func of(t testing.TB, word, operator, tenant string) *policy.Policy {
	t.Helper()
	var layers [2]*policy.Layer
	for i, text := range []string{operator, tenant} {
		if text != "" {
			layers[i] = layer(t, []policy.LayerKind{policy.Operator, policy.Tenant}[i], text)
		}
	}
	who := &switchboard.Tenant{ID: "acme"}
	if word != "" {
		who.Policy = []byte(word)
	}
	p, err := engine.NewPolicy(who, layers[0], layers[1])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ask(phase policy.Phase, args string, candidates ...*switchboard.Tool) *policy.CandidateQuestion {
	return &policy.CandidateQuestion{
		Phase:       phase,
		Principal:   switchboard.Principal{Tenant: "acme", ID: "ann", Auth: switchboard.AuthAPIKey, Tier: "pro", Roles: []string{"analyst"}},
		Task:        &switchboard.Task{ID: "browse"},
		Requirement: &switchboard.Requirement{Verb: switchboard.Search, Resource: "internet"},
		Candidates:  candidates,
		Now:         monday,
		Arguments:   []byte(args),
	}
}
