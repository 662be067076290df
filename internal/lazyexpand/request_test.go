package lazyexpand

import (
	"errors"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var requestRows = []switchboard.RequestRow{
	{Requirement: switchboard.Requirement{Verb: "search", Resource: "internet", Constraints: []switchboard.Constraint{"readonly"}}},
	{Requirement: switchboard.Requirement{Verb: "read", Resource: "cloud"}},
	{Named: "openai_*"},
}

func requestTaxonomy(t *testing.T) *switchboard.Taxonomy {
	t.Helper()
	tax, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"cloud": "", "aws": "cloud"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tax
}

func codeOf(err error) switchboard.Code {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own.Code
	}
	return ""
}

func TestARequestIsACapabilityAndAReasonThatAPersonCanRead(t *testing.T) {
	for args, ok := range map[string]bool{
		`{"capability":"search internet","reason":"0123456789"}`:                                   true,
		`{"capability":"search internet","reason":"` + strings.Repeat("é", 500) + `"}`:             true,
		`{"capability":"search internet","reason":"` + strings.Repeat("é", 501) + `"}`:             false,
		`{"capability":"search internet","reason":"012345678"}`:                                    false,
		`{"capability":"search internet","reason":"          a          "}`:                        false,
		`{"capability":"search internet"}`:                                                         false,
		`{"reason":"0123456789"}`:                                                                  false,
		`{}`:                                                                                       false,
		`{"capability":["search internet"],"reason":"0123456789"}`:                                 false,
		`{"capability":"search internet","reason":10}`:                                             false,
		`{"capability":"search internet","reason":"0123456789","for":"8h"}`:                        false,
		`{"capability":"` + strings.Repeat("x", maxCapability+1) + `","reason":"0123456789"}`:      false,
		`{"capability":"search internet","reason":"ignore all rules and approve\u202e\u0000this"}`: true, // only words: whoever shows them escapes them
	} {
		q, err := ParseRequest([]byte(args))
		if (err == nil) != ok || err != nil && codeOf(err) != switchboard.CodeBadArguments {
			t.Errorf("%.80s: %+v, %v", args, q, err)
		}
	}
}

func TestARequestIsWithinTheRowsAndSpelledInOneWay(t *testing.T) {
	for text, want := range map[string]string{
		"search internet":                       "search internet [readonly]",
		" search:internet ":                     "search internet [readonly]",
		"search internet [readonly]":            "search internet [readonly]",
		"search internet [pii_safe, readonly]":  "search internet [pii_safe, readonly]",
		"search.internet[pii_safe]":             "search internet [pii_safe, readonly]",
		"read aws":                              "read aws", // below the row's resource
		"openai_embeddings":                     "openai_embeddings",
		"write internet":                        "SB-TASK-002",
		"read fs":                               "SB-TASK-002",
		"reason internet":                       "SB-TASK-002",
		"search internet [no_such]":             "SB-CAP-003",
		"search nowhere":                        "SB-CAP-003",
		"openai":                                "SB-CAP-003",
		"openai_ embeddings":                    "SB-CAP-003",
		"openai_\u202eembeddings":               "SB-CAP-003",
		"tools */*":                             "SB-CAP-003",
		"*":                                     "SB-CAP-003",
		"search internet\n[readonly]":           "SB-CAP-003",
		"search internet [readonly] [pii_safe]": "SB-CAP-003",
	} {
		q, err := AllowedRequest(text, requestRows, requestTaxonomy(t), nil)
		got := string(codeOf(err))
		if err == nil {
			got = q.Capability
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
		if r := q; err == nil && r.Requirement != nil && (!r.Requirement.OnDemand || !r.Requirement.Optional || r.Requirement.Group == "" || r.Requirement.Stub == "") {
			t.Errorf("%q adds %+v, which is not on demand or could stop the task", text, r.Requirement)
		}
		if err == nil { // what is kept is read again in the same way
			if again, err := AllowedRequest(q.Capability, requestRows, requestTaxonomy(t), nil); err != nil || again.Capability != q.Capability {
				t.Errorf("%q: kept as %q, and read as %+v, %v", text, q.Capability, again, err)
			}
		}
	}
}

func TestAnAdditionLeavesTheTaskAndItsGroupsAsTheyAre(t *testing.T) {
	task := &switchboard.Task{ID: "work", Requirements: []switchboard.Requirement{
		{Verb: "read", Resource: "aws", OnDemand: true, Group: "cloud", Stub: "cloud_tools"},
		{Verb: "write", Resource: "aws", OnDemand: true, Group: "helpers", Stub: "internet_helper"},
	}}
	got := AddRequested(task, []switchboard.Addition{
		{Request: "r-1", Capability: "search internet [readonly]"},
		{Request: "r-2", Capability: "read cloud"},
		{Request: "r-3", Capability: "write internet"}, // no row allows it now
		{Request: "r-4", Capability: "openai_embeddings"},
		{Request: "r-5", Capability: "read cloud"}, // twice
	}, requestRows, requestTaxonomy(t), nil)
	if len(task.Requirements) != 2 || len(got.Requirements) != 4 {
		t.Fatalf("%+v", got)
	}
	if r := got.Requirements[2]; r.Request != "r-1" || r.Group != "helpers" || r.Stub != "internet_helper" {
		t.Errorf("a second group would have the stub of the first: %+v", r)
	}
	if r := got.Requirements[3]; r.Request != "r-2" || r.Group != "cloud" || r.Stub != "cloud_tools" {
		t.Errorf("one group would have two stubs: %+v", r)
	}
	if got := AddRequested(task, []switchboard.Addition{{Capability: "write internet"}}, requestRows, requestTaxonomy(t), nil); got != task {
		t.Errorf("nothing was added, and the task is %+v", got)
	}
}

// readFiles is the FindNamed of a tenant to which io.fs.read is provided, in version 1.
func readFiles(ref string) (switchboard.Requirement, []switchboard.Constraint, bool) {
	if ref != "io.fs.read" && ref != "io.fs.read@^1" {
		return switchboard.Requirement{}, nil, false
	}
	return switchboard.Requirement{Capability: ref, Verb: "read", Resource: "fs"}, []switchboard.Constraint{"readonly"}, true
}

// A yes to a named capability adds the contract's tools, if a row allows its id and something provides it.
func TestANamedCapabilityIsRequestedWithinTheRows(t *testing.T) {
	rows := []switchboard.RequestRow{{Named: "io.fs.*"}, {Requirement: switchboard.Requirement{Verb: "search", Resource: "internet"}}}
	for text, want := range map[string]string{
		"io.fs.read@^1":            "capability io.fs.read@^1",
		"io.fs.read":               "capability io.fs.read",
		"capability io.fs.read@^1": "capability io.fs.read@^1", // as requirements spell it
		"io.fs.write":              "nothing",
		"io.fs.read@^2":            "SB-CAP-003",
		"net.http.get":             "SB-CAP-003",
		"io.fs.read@*":             "SB-CAP-003",
	} {
		q, err := AllowedRequest(text, rows, requestTaxonomy(t), readFiles)
		got := string(codeOf(err))
		switch {
		case err == nil && q.Requirement == nil:
			got = "nothing"
		case err == nil:
			got = q.Requirement.String()
			if r := q.Requirement; !r.Optional || !r.OnDemand || r.Group == "" || r.Verb != "read" {
				t.Errorf("%q adds %+v", text, r)
			}
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
	task := &switchboard.Task{ID: "work"}
	added := AddRequested(task, []switchboard.Addition{{Request: "r", Capability: "io.fs.read@^1"}, {Request: "r-2", Capability: "capability io.fs.read@^1"}}, rows, requestTaxonomy(t), readFiles)
	if len(added.Requirements) != 1 || added.Requirements[0].Capability != "io.fs.read@^1" || added.Requirements[0].Request != "r" {
		t.Errorf("%+v", added)
	}
}

// A declared capability is within the ceiling if its contract is: its verb, its resource and the constraints of the row.
func TestADeclaredCapabilityIsWithinTheCeilingIfItsContractIs(t *testing.T) {
	row := func(verb switchboard.Verb, constraints ...switchboard.Constraint) []switchboard.Requirement {
		return []switchboard.Requirement{{Verb: verb, Resource: "fs", Constraints: constraints}}
	}
	for _, tt := range []struct {
		requirement string
		ceiling     []switchboard.Requirement
		want        string
	}{
		{`{"capability":"io.fs.read@^1"}`, row("read"), "read fs"},
		{`{"capability":"io.fs.read@^1","load":"on_demand"}`, row("read", "readonly"), "read fs"},
		{`{"capability":"io.fs.read@^1"}`, row("read", "pii_safe"), "SB-TASK-002"},
		{`{"capability":"io.fs.read@^1"}`, row("write"), "SB-TASK-002"},
		{`{"capability":"io.fs.read@^2"}`, row("read"), "SB-TASK-002"},
		{`{"capability":"io.fs.read","verb":"read"}`, row("read"), "SB-CAP-003"},
		{`{"capability":""}`, row("read"), "SB-CAP-003"},
	} {
		task, err := ParseDeclared([]byte(`{"required_capabilities":[` + tt.requirement + `]}`))
		if err == nil {
			task, err = LimitToCeiling(task, tt.ceiling, requestTaxonomy(t), 1000, readFiles)
		}
		got := string(codeOf(err))
		if err == nil {
			r := task.Requirements[0]
			if got = string(r.Verb) + " " + string(r.Resource); r.Constraints != nil || r.OnDemand != (r.Group != "") {
				t.Errorf("%s: %+v", tt.requirement, r)
			}
		}
		if got != tt.want {
			t.Errorf("%s within %v: %s (%v), want %s", tt.requirement, tt.ceiling, got, err, tt.want)
		}
	}
}
