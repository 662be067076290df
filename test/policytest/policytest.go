// Package policytest holds the tools, layers and questions that the tests of policy and of policy/author share.
package policytest

import (
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Engine compiles and evaluates the policies of these tests.
var Engine = policy.NewEngine(0, 0)

// Monday is an ordinary instant.
var Monday = time.Date(2026, 11, 23, 10, 30, 0, 0, time.UTC)

// Tool returns a tool of the server and the name in id, server/name.
func Tool(id string, caps ...switchboard.Capability) *switchboard.Tool {
	server, name, _ := strings.Cut(id, "/")
	return &switchboard.Tool{
		ID:           switchboard.ToolID{Server: switchboard.ServerID(server), Name: name},
		Definition:   []byte(`{"name":"` + name + `","annotations":{"readOnlyHint":true,"x":1.0}}`),
		Capabilities: caps, Class: "of-" + server, Version: "1.2.3",
	}
}

// The capabilities and the tools of these tests.
var (
	SearchCapability = switchboard.Capability{Verb: switchboard.Search, Resource: "internet", Constraints: []switchboard.Constraint{switchboard.ReadOnly}, Source: switchboard.FromOverlay}
	WriteCapability  = switchboard.Capability{Verb: switchboard.Write, Resource: "internet", Source: switchboard.FromTool}

	Brave  = Tool("brave/search", SearchCapability)
	Google = Tool("google/search", SearchCapability)
	Poster = Tool("poster/post", WriteCapability)
	Three  = []*switchboard.Tool{Brave, Google, Poster}
)

// Source returns the file of a layer, with the package line added unless rules begin with one.
func Source(kind policy.LayerKind, text string) switchboard.PolicyFile {
	if !strings.Contains(text, "package ") {
		pkg := "package switchboard\n"
		if kind == policy.Tenant {
			pkg = "package switchboard.tenant\n"
		}
		text = pkg + text
	}
	return switchboard.PolicyFile{Name: "policies/test.rego", Path: "test.rego", Data: []byte(text)}
}

// CompileLayer compiles the rules as a layer of the kind.
func CompileLayer(t testing.TB, kind policy.LayerKind, text string) *policy.Layer {
	t.Helper()
	l, err := policy.Compile(kind, []switchboard.PolicyFile{Source(kind, text)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// AllowAll is a rule that allows every candidate.
const AllowAll = "allowed_tools contains c.id if some c in input.candidate_tools\n"

// NewPolicy returns a policy of two layers; an empty text means no layer. settings is the tenant's policy:, as JSON.
func NewPolicy(t testing.TB, settings, operator, tenant string) *policy.Policy {
	t.Helper()
	var layers [2]*policy.Layer
	for i, text := range []string{operator, tenant} {
		if text != "" {
			layers[i] = CompileLayer(t, []policy.LayerKind{policy.Operator, policy.Tenant}[i], text)
		}
	}
	who := &switchboard.Tenant{ID: "acme", Recipients: []string{"oncall"}}
	if settings != "" {
		who.Policy = []byte(settings)
	}
	p, err := Engine.NewPolicy(who, layers[0], layers[1])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// NewQuestion returns a question of the phase about the candidates, with the arguments of a call.
func NewQuestion(phase policy.Phase, args string, candidates ...*switchboard.Tool) *policy.CandidateQuestion {
	return &policy.CandidateQuestion{
		Phase:       phase,
		Principal:   switchboard.Principal{Tenant: "acme", ID: "ann", Auth: switchboard.AuthAPIKey, Tier: "pro", Roles: []string{"analyst"}},
		Task:        &switchboard.Task{ID: "browse"},
		Requirement: &switchboard.Requirement{Verb: switchboard.Search, Resource: "internet"},
		Candidates:  candidates,
		Now:         Monday,
		Arguments:   []byte(args),
	}
}

// Poster has a contract, so that tests see it in the input of policies.
func init() {
	Poster.Contract = switchboard.Contract{
		ReadOnly: switchboard.Fact{Holds: true, Source: switchboard.FromHint},
		Stateful: switchboard.Fact{Holds: true, Source: switchboard.FromOverlay, Trusted: true},
		Timeout:  2500 * time.Millisecond,
	}
}
