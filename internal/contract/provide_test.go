package contract_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// readVersion is a version with one tool, read_file(path, head).
func readVersion(t testing.TB, output string, facts capability.Facts) *capability.ContractVersion {
	t.Helper()
	var out []byte
	if output != "" {
		out = []byte(output)
	}
	tool, err := capability.NewTool("read_file", "Reads.", []byte(`{"type":"object","properties":{"path":{"type":"string"},"head":{"type":"integer","minimum":1}},"required":["path"],"additionalProperties":false}`), out, capability.Hints{})
	if err != nil {
		t.Fatal(err)
	}
	return &capability.ContractVersion{
		ID: "io.fs.read", Number: semver.MustParse("1.2.0"), Status: capability.Active, Verb: "read", Resource: "fs", Constraints: []switchboard.Constraint{switchboard.ReadOnly},
		Tools: []capability.ContractTool{tool}, Facts: facts,
	}
}

// provideBy returns what one row makes of the own tool "a/cat".
func provideBy(t testing.TB, v *capability.ContractVersion, own *switchboard.Tool, rows ...capability.ProviderRow) *contract.ProviderSet {
	t.Helper()
	r, err := capability.New([]*capability.ContractVersion{v}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return contract.Provide(r, rows, func(*capability.ContractVersion) bool { return true }, shelf{own.ID: own}, heard{}, nil)
}

// heard are offers of servers that have all listed their tools. The labels of the named ones have ended.
type heard map[switchboard.ToolID]string

func (heard) Heard(switchboard.ServerID) bool { return true }

func (h heard) LabelEnd(id switchboard.ToolID) (why string, ended bool) {
	why, ended = h[id]
	return why, ended
}

// A row was written for the tool with the meaning that it had. Another meaning is looked at first, also where it makes the tool no less fit for the contract.
func TestAToolWhoseLabelsHaveEndedProvidesNothing(t *testing.T) {
	t.Parallel()
	v, own := readVersion(t, "", capability.Facts{}), catTool()
	r, err := capability.New([]*capability.ContractVersion{v}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := func(*capability.ContractVersion) bool { return true }
	before := contract.Provide(r, []capability.ProviderRow{catRow()}, all, shelf{own.ID: own}, heard{}, nil)
	after := contract.Provide(r, []capability.ProviderRow{catRow()}, all, shelf{own.ID: own}, heard{own.ID: "its labels have ended"}, before)
	if len(before.Provided("io.fs.read")) != 1 || len(after.Provided("io.fs.read")) != 0 {
		t.Errorf("%d tools provide it before, and %d after", len(before.Provided("io.fs.read")), len(after.Provided("io.fs.read")))
	}
	if want := `read_file by its tool "cat": its labels have ended`; len(after.Faults()) != 1 || !strings.Contains(after.Faults()[0].Error(), want) {
		t.Errorf("faults: %v, want %q", after.Faults(), want)
	}
}

func catTool() *switchboard.Tool {
	return &switchboard.Tool{
		ID:         switchboard.ToolID{Server: "a", Name: "cat"},
		Definition: []byte(`{"name":"cat","inputSchema":{"type":"object","properties":{"file":{"type":"string"},"lines":{"type":"integer"}},"required":["file"]}}`),
	}
}

func catRow() capability.ProviderRow {
	return capability.ProviderRow{Server: "a", Ref: capability.Ref{ID: "io.fs.read", Range: "^1"}, Position: "overlays/a.yaml:3:5", Tools: map[string]*switchboard.DeclaredEquivalent{
		"read_file": {Tool: switchboard.ToolID{Server: "a", Name: "cat"}, Map: map[string]string{"path": "file", "head": "lines"}},
	}}
}

func TestAProvidedToolIsTheContractsAndItsCallIsTheServers(t *testing.T) {
	t.Parallel()
	p := provideBy(t, readVersion(t, "", capability.Facts{}), catTool(), catRow())
	tools := p.Provided("io.fs.read@^1")
	if len(tools) != 1 || len(p.Faults()) > 0 {
		t.Fatalf("%v, faults %v", tools, p.Faults())
	}
	c := &switchboard.Call{Tool: tools[0], Target: "cat", Params: []byte(`{"name":"read_file","arguments":{"path":"x","head":2}}`)}
	own, err := contract.Translated(c)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"name":"read_file","arguments":{"file":"x","lines":2}}`; string(own.Params) != want || own.Tool.ID.Name != "cat" || own.Tool.Provides != nil {
		t.Errorf("the call is %s of %v, want %s", own.Params, own.Tool.ID, want)
	}
	if c.Tool.Name() != "read_file" || c.Tool.Key() == c.Tool.ID {
		t.Errorf("the name is %s, the key %v", c.Tool.Name(), c.Tool.Key())
	}
	c.Params = []byte(`{"name":"read_file","arguments":{"path":"x","head":0}}`)
	if _, err := contract.Translated(c); err == nil || !strings.Contains(err.Error(), string(switchboard.CodeBadArguments)) {
		t.Errorf("arguments that the contract forbids: %v", err)
	}
}

func TestWhatRestrictsAToolStillCountsUnderAContract(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	own := catTool()
	own.Capabilities = []switchboard.Capability{{Verb: "write", Resource: "fs", Source: switchboard.FromOverlay}, {Verb: "read", Resource: "fs", Constraints: []switchboard.Constraint{switchboard.HumanInTheLoop}, Source: switchboard.FromTool}}
	own.Price = &switchboard.Price{Call: 1}
	own.Contract.Stateful = switchboard.Fact{Holds: true, Source: switchboard.FromOverlay}
	own.Contract.Idempotent = switchboard.Fact{Source: switchboard.FromHint}
	p := provideBy(t, readVersion(t, "", capability.Facts{Price: &switchboard.Price{Call: 5}, Stateful: &no, Idempotent: &yes}), own, catRow())
	tool := p.Provided("io.fs.read")[0].Called()
	if !slices.ContainsFunc(tool.Kept, func(c switchboard.Capability) bool { return c.Verb == "write" }) || !tool.Demands(switchboard.HumanInTheLoop) {
		t.Errorf("kept: %v", tool.Kept)
	}
	if tool.Price.Call != 5 {
		t.Errorf("the price is %v", tool.Price)
	}
	if tool.Contract.Repeatable() || !tool.Contract.Stateful.Holds {
		t.Errorf("the contract makes it more free: %+v", tool.Contract)
	}
}

func TestWhyAServerIsNoProvider(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, output string
		facts        capability.Facts
		own          func(*switchboard.Tool)
		rows         func(row capability.ProviderRow) []capability.ProviderRow
		want         string
	}{
		{name: "a missing argument", own: func(o *switchboard.Tool) {
			o.Definition = []byte(`{"name":"cat","inputSchema":{"type":"object","properties":{"file":{},"lines":{},"key":{}},"required":["file","key"]}}`)
		}, want: `nothing becomes its argument "key"`},
		{name: "results of another form", output: `{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}`, own: func(o *switchboard.Tool) {
			o.Definition = append(o.Definition[:len(o.Definition)-1], `,"outputSchema":{"type":"object"}}`...)
		}, want: "nothing proves that its results fit"},
		{name: "results without a schema", output: `{"type":"object"}`, want: "its results have no structured content"},
		{name: "an output schema that cannot be read", output: `{"type":"object"}`, own: func(o *switchboard.Tool) {
			o.Definition = append(o.Definition[:len(o.Definition)-1], `,"outputSchema":{"type":17}}`...)
		}, want: "nothing proves that its results fit"},
		{name: "two budgets", facts: capability.Facts{Budget: &switchboard.Budget{}}, own: func(o *switchboard.Tool) { o.Budget = &switchboard.Budget{} }, want: "only one of them can count"},
		{name: "two rows", rows: func(row capability.ProviderRow) []capability.ProviderRow { return []capability.ProviderRow{row, row} }, want: "the row at overlays/a.yaml:3:5 says so too, so neither counts"},
		{name: "no such tool", rows: func(row capability.ProviderRow) []capability.ProviderRow {
			row.Tools = map[string]*switchboard.DeclaredEquivalent{"read_file": {Tool: switchboard.ToolID{Server: "a", Name: "dog"}}}
			return []capability.ProviderRow{row}
		}, want: `the server has no tool "dog"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			own := catTool()
			if tt.own != nil {
				tt.own(own)
			}
			rows := []capability.ProviderRow{catRow()}
			if tt.rows != nil {
				rows = tt.rows(catRow())
			}
			p := provideBy(t, readVersion(t, tt.output, tt.facts), own, rows...)
			if len(p.Faults()) == 0 || !strings.Contains(p.Faults()[0].Error(), tt.want) || !strings.Contains(p.Faults()[0].Error(), "overlays/a.yaml:3:5") {
				t.Fatalf("faults: %v, want %q", p.Faults(), tt.want)
			}
			if provided := len(p.Provided("io.fs.read")); provided > 0 {
				t.Errorf("it provides %d tools", provided)
			}
		})
	}
}
