package catalog_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// facts writes a contract as "readonly(overlay, trusted) not stateful(overlay)".
func facts(c switchboard.Contract) string {
	var out []string
	for _, f := range []struct {
		name string
		switchboard.Fact
	}{{"readonly", c.ReadOnly}, {"idempotent", c.Idempotent}, {"stateful", c.Stateful}, {"deterministic", c.Deterministic}} {
		if !f.Stated() {
			if f.Holds || f.Trusted {
				out = append(out, f.name+" by nobody")
			}
			continue
		}
		s := f.name + "(" + string(f.Source)
		if f.Trusted {
			s += ", trusted"
		}
		if !f.Holds {
			s = "not " + s
		}
		out = append(out, s+")")
	}
	if c.Timeout > 0 {
		out = append(out, c.Timeout.String())
	}
	if c.Repeatable() {
		out = append(out, "repeatable")
	}
	return strings.Join(out, " ")
}

func annotated(members string) string { return `,"annotations":{` + members + `}` }

// saying returns an overlay with these facts, each as "stateful" or "not stateful".
func saying(source switchboard.Source, timeout time.Duration, said ...string) *switchboard.Overlay {
	o := &switchboard.Overlay{Contract: switchboard.Contract{Timeout: timeout}}
	for _, s := range said {
		name, not := strings.CutPrefix(s, "not ")
		f := switchboard.Fact{Holds: !not, Source: source, Trusted: source == switchboard.FromOverlay}
		switch name {
		case "stateful":
			o.Contract.Stateful = f
		case "idempotent":
			o.Contract.Idempotent = f
		case "deterministic":
			o.Contract.Deterministic = f
		default:
			panic(s)
		}
	}
	return o
}

func operator(said ...string) *switchboard.Overlay {
	return saying(switchboard.FromOverlay, 0, said...)
}

func and(o *switchboard.Overlay, caps ...string) *switchboard.Overlay {
	o.Capabilities = parse(caps...)
	return o
}

func TestTheStrongestSourceDecidesTheContract(t *testing.T) {
	const vouched = switchboard.TrustOperator
	for name, tt := range map[string]struct {
		in     world
		tenant *switchboard.Overlay
		want   string
	}{
		"nobody says anything":                            {world{}, nil, ""},
		"a server says that its tool reads":               {world{tool: annotated(`"readOnlyHint":true`)}, nil, "readonly(hint)"},
		"and the operator vouches for it":                 {world{tool: annotated(`"readOnlyHint":true`), trust: vouched}, nil, "readonly(hint, trusted) repeatable"},
		"it says that it can be repeated":                 {world{tool: annotated(`"idempotentHint":true`)}, nil, "idempotent(hint)"},
		"and the operator vouches for that":               {world{tool: annotated(`"idempotentHint":true`), trust: vouched}, nil, "idempotent(hint, trusted) repeatable"},
		"that it destroys counts whoever says it":         {world{tool: annotated(`"destructiveHint":true,"idempotentHint":true`), trust: vouched}, nil, "idempotent(hint, trusted) stateful(hint, trusted)"},
		"what is said not to be says nothing":             {world{tool: annotated(`"readOnlyHint":false,"idempotentHint":false,"destructiveHint":false`), trust: vouched}, nil, ""},
		"nor does null":                                   {world{tool: annotated(`"readOnlyHint":null,"idempotentHint":null,"destructiveHint":null`), trust: vouched}, nil, ""},
		"nor annotations that are null":                   {world{tool: `,"annotations":null`, trust: vouched}, nil, ""},
		"nor hints beside the annotations":                {world{tool: `,"readOnlyHint":true`, trust: vouched}, nil, ""},
		"reading and destroying is destroying":            {world{tool: annotated(`"readOnlyHint":true,"destructiveHint":true`), trust: vouched}, nil, "stateful(hint, trusted)"},
		"all its capabilities are readonly":               {world{overlay: overlay("read fs readonly", "search internet readonly")}, nil, "readonly(overlay, trusted) repeatable"},
		"one is not":                                      {world{overlay: overlay("read fs readonly", "search internet")}, nil, ""},
		"only the server says that they are":              {world{tool: own("read fs readonly")}, nil, "readonly(tool)"},
		"only its manifest does":                          {world{manifest: manifest("read fs readonly")}, nil, "readonly(manifest)"},
		"and the operator vouches for the server's":       {world{tool: own("read fs readonly"), trust: vouched}, nil, "readonly(tool, trusted) repeatable"},
		"the overlay's, and one more of the server's":     {world{overlay: overlay("read fs readonly"), tool: own("search internet readonly")}, nil, "readonly(tool)"},
		"one more that is not readonly":                   {world{overlay: overlay("read fs readonly"), tool: own("write fs")}, nil, ""},
		"one more that the overlay replaces":              {world{overlay: replacing("read fs readonly"), tool: own("write fs")}, nil, "readonly(overlay, trusted) repeatable"},
		"a restriction of the same is no further one":     {world{overlay: overlay("read fs readonly"), tool: own("read fs rate_limited")}, nil, "readonly(overlay, trusted) repeatable"},
		"capabilities come before hints":                  {world{overlay: overlay("read fs readonly"), tool: annotated(`"readOnlyHint":true`)}, nil, "readonly(overlay, trusted) repeatable"},
		"a hint that is trusted beats a word that is not": {world{overlay: overlay("read fs"), tool: annotated(`"readOnlyHint":true`), trust: vouched}, nil, "readonly(hint, trusted) repeatable"},
		"its capabilities are its better word":            {world{tool: own("read fs readonly") + annotated(`"readOnlyHint":true`)}, nil, "readonly(tool)"},
		"AZ-12: a hint does not make writing reading":     {world{overlay: overlay("write fs"), tool: annotated(`"readOnlyHint":true`), trust: vouched}, nil, ""},
		"nor what weaker sources add":                     {world{overlay: overlay("read fs"), tool: own("execute aws") + annotated(`"readOnlyHint":true`), trust: vouched}, nil, ""},
		"the operator says that it is stateful":           {world{overlay: operator("stateful"), tool: annotated(`"readOnlyHint":true`), trust: vouched}, nil, "readonly(hint, trusted) stateful(overlay, trusted)"},
		"the operator says that it is not":                {world{overlay: operator("not stateful"), tool: annotated(`"destructiveHint":true`)}, nil, "not stateful(overlay, trusted)"},
		"and that a repeat is harmless":                   {world{overlay: operator("not stateful", "idempotent"), tool: annotated(`"destructiveHint":true`)}, nil, "idempotent(overlay, trusted) not stateful(overlay, trusted) repeatable"},
		"that it is harmless does not make it keep":       {world{overlay: operator("idempotent"), tool: annotated(`"destructiveHint":true`)}, nil, "idempotent(overlay, trusted) stateful(hint)"},
		"a repeat may cost something":                     {world{overlay: and(operator("not idempotent"), "search internet readonly")}, nil, "readonly(overlay, trusted) not idempotent(overlay, trusted)"},
		"the operator knows it better than the server":    {world{overlay: operator("not idempotent"), tool: annotated(`"idempotentHint":true`), trust: vouched}, nil, "not idempotent(overlay, trusted)"},
		"facts alone leave capabilities to others":        {world{overlay: operator("deterministic"), tool: own("read fs readonly"), trust: vouched}, nil, "readonly(tool, trusted) deterministic(overlay, trusted) repeatable"},
		"time for a call":                                 {world{overlay: saying(switchboard.FromOverlay, 5*time.Second)}, nil, "5s"},

		"a tenant's label is not trusted": {world{trust: vouched}, overlay("read fs readonly"), "readonly(tenant_overlay)"},
		"a tenant's label beside a hint":  {world{tool: annotated(`"readOnlyHint":true`), trust: vouched}, overlay("read fs readonly"), "readonly(hint, trusted) repeatable"},
		"a tenant finds that it writes":   {world{overlay: overlay("read fs readonly")}, overlay("write fs"), ""},
		"a tenant finds it stateful":      {world{overlay: and(operator("not stateful"), "read fs readonly")}, saying(switchboard.FromTenantOverlay, 0, "stateful"), "readonly(overlay, trusted) stateful(tenant_overlay)"},
		"a tenant sees a repeat do harm":  {world{overlay: operator("idempotent")}, saying(switchboard.FromTenantOverlay, 0, "not idempotent"), "not idempotent(tenant_overlay)"},
		"a tenant frees nothing": {
			world{overlay: operator("stateful", "not idempotent", "not deterministic")},
			saying(switchboard.FromTenantOverlay, 0, "not stateful", "idempotent", "deterministic"),
			"not idempotent(overlay, trusted) stateful(overlay, trusted) not deterministic(overlay, trusted)",
		},
		"a tenant has less patience":   {world{overlay: saying(switchboard.FromOverlay, 5*time.Second)}, saying(switchboard.FromTenantOverlay, time.Second), "1s"},
		"a tenant has no more of it":   {world{overlay: saying(switchboard.FromOverlay, 5*time.Second)}, saying(switchboard.FromTenantOverlay, time.Minute), "5s"},
		"a tenant is the first to say": {world{}, saying(switchboard.FromTenantOverlay, time.Second), "1s"},
	} {
		t.Run(name, func(t *testing.T) {
			s := tt.in.build(t)
			tenant := &switchboard.Tenant{Servers: []switchboard.ServerID{"s"}}
			if tt.tenant != nil {
				tenant.Overlays = map[switchboard.ToolID]switchboard.Overlay{{Server: "s", Name: "t"}: *tt.tenant}
			}
			tool, ok := s.For(tenant).Tool(switchboard.ToolID{Server: "s", Name: "t"})
			if !ok {
				t.Fatalf("the tool is refused: %v", s.Faults())
			}
			if got := facts(tool.Contract); got != tt.want {
				t.Errorf("%s; want %s", got, tt.want)
			}
		})
	}
}

func TestContractsAreInTheDigests(t *testing.T) {
	seen := map[switchboard.Digest]string{}
	for _, tenant := range []bool{false, true} {
		for i, o := range []*switchboard.Overlay{
			nil, operator("stateful"), operator("not stateful"), operator("idempotent"), operator("deterministic"),
			saying(switchboard.FromOverlay, time.Second), saying(switchboard.FromOverlay, 2*time.Second), saying(switchboard.FromTenantOverlay, 0, "stateful"),
		} {
			w, n := world{}, &switchboard.Tenant{Servers: []switchboard.ServerID{"s"}}
			switch {
			case o == nil:
			case tenant:
				n.Overlays = map[switchboard.ToolID]switchboard.Overlay{{Server: "s", Name: "t"}: *o}
			default:
				w.overlay = o
			}
			v := w.build(t).For(n)
			tool, _ := v.Tool(switchboard.ToolID{Server: "s", Name: "t"})
			want := fmt.Sprintf("%+v", tool.Contract)
			if was, ok := seen[v.Digest()]; ok && was != want {
				t.Errorf("row %d: %s has the digest of %s", i, want, was)
			}
			seen[v.Digest()] = want
		}
	}
	if len(seen) < 8 {
		t.Errorf("%d digests", len(seen))
	}
}

// A change of the redaction changes the tool for decisions and for their replay.
func TestNames16WhatIsRedactedIsInTheDigest(t *testing.T) {
	seen := map[switchboard.Digest]int{}
	for i, redact := range [][]switchboard.Detector{nil, {switchboard.DetectEmail}, {switchboard.DetectPhone}, {switchboard.DetectEmail, switchboard.DetectPhone}} {
		v := world{overlay: &switchboard.Overlay{Redact: redact}}.build(t).For(&switchboard.Tenant{Servers: []switchboard.ServerID{"s"}})
		tool, _ := v.Tool(switchboard.ToolID{Server: "s", Name: "t"})
		if !slices.Equal(tool.Redact, redact) {
			t.Errorf("the overlay has %v, and the tool %v", redact, tool.Redact)
		}
		if was, ok := seen[v.Digest()]; ok {
			t.Errorf("rows %d and %d have one digest", was, i)
		}
		seen[v.Digest()] = i
	}
}

func TestATenantOnlyRaisesPrices(t *testing.T) {
	each := func(pointer string, m switchboard.Micros) switchboard.ElementPrice {
		return switchboard.ElementPrice{Pointer: pointer, Micros: m}
	}
	for name, tt := range map[string]struct{ operator, tenant, want *switchboard.Price }{
		"no source":            {nil, nil, nil},
		"the operator":         {&switchboard.Price{Call: 5}, nil, &switchboard.Price{Call: 5}},
		"the tenant":           {nil, &switchboard.Price{Call: 5}, &switchboard.Price{Call: 5}},
		"the tenant, higher":   {&switchboard.Price{Call: 5}, &switchboard.Price{Call: 6}, &switchboard.Price{Call: 6}},
		"the tenant, lower":    {&switchboard.Price{Call: 5, Most: 9, Reported: true}, &switchboard.Price{Call: 4, Most: 8}, &switchboard.Price{Call: 5, Most: 9, Reported: true}},
		"each part for itself": {&switchboard.Price{Each: []switchboard.ElementPrice{each("/b", 5), each("/c", 5)}}, &switchboard.Price{Call: 1, Each: []switchboard.ElementPrice{each("/a", 1), each("/b", 4), each("/c", 6)}}, &switchboard.Price{Call: 1, Each: []switchboard.ElementPrice{each("/a", 1), each("/b", 5), each("/c", 6)}}},
	} {
		for class, of := range map[switchboard.CostClass][2]switchboard.CostClass{
			"": {}, switchboard.CostPaid: {switchboard.CostPaid, switchboard.CostFree}, switchboard.CostMetered: {switchboard.CostFree, switchboard.CostMetered},
		} {
			w := world{overlay: &switchboard.Overlay{Price: tt.operator, Contract: switchboard.Contract{CostClass: of[0]}}}
			v := w.build(t).For(&switchboard.Tenant{Servers: []switchboard.ServerID{"s"}, Overlays: map[switchboard.ToolID]switchboard.Overlay{
				{Server: "s", Name: "t"}: {Price: tt.tenant, Contract: switchboard.Contract{CostClass: of[1]}},
			}})
			tool, _ := v.Tool(switchboard.ToolID{Server: "s", Name: "t"})
			if !reflect.DeepEqual(tool.Price, tt.want) || tool.Contract.CostClass != class {
				t.Errorf("%s: the price is %+v, want %+v; the class is %q, want %q", name, tool.Price, tt.want, tool.Contract.CostClass, class)
			}
		}
	}
}

func TestATenantOnlyAddsToWhatBoundariesRead(t *testing.T) {
	type contract = switchboard.Contract
	for name, tt := range map[string]struct{ operator, tenant, want contract }{
		"the operator": {contract{RiskLevel: "low", SideEffects: []string{"x"}, ApprovalRequired: []string{"a"}}, contract{}, contract{RiskLevel: "low", SideEffects: []string{"x"}, ApprovalRequired: []string{"a"}}},
		"the tenant":   {contract{}, contract{RiskLevel: "low", SideEffects: []string{"x"}, ApprovalRequired: []string{"a"}}, contract{RiskLevel: "low", SideEffects: []string{"x"}, ApprovalRequired: []string{"a"}}},
		"less risk":    {contract{RiskLevel: "high"}, contract{RiskLevel: "medium"}, contract{RiskLevel: "high"}},
		"more risk":    {contract{RiskLevel: "high"}, contract{RiskLevel: "critical"}, contract{RiskLevel: "critical"}},
		"more effects": {contract{SideEffects: []string{"x"}}, contract{SideEffects: []string{"a", "x"}}, contract{SideEffects: []string{"a", "x"}}},
		"some of them": {contract{ApprovalRequired: []string{"a", "b"}}, contract{ApprovalRequired: []string{"b", "c"}}, contract{ApprovalRequired: []string{"b"}}},
		"nobody":       {contract{ApprovalRequired: []string{"a"}}, contract{ApprovalRequired: []string{"b"}}, contract{ApprovalRequired: []string{""}}},
		"any, and one": {contract{ApprovalRequired: []string{"approver"}}, contract{ApprovalRequired: []string{"b"}}, contract{ApprovalRequired: []string{"b"}}},
		"one, and any": {contract{ApprovalRequired: []string{"b"}}, contract{ApprovalRequired: []string{"approver"}}, contract{ApprovalRequired: []string{"b"}}},
		"no statement": {contract{}, contract{}, contract{}},
	} {
		w := world{overlay: &switchboard.Overlay{Contract: tt.operator}}
		v := w.build(t).For(&switchboard.Tenant{Servers: []switchboard.ServerID{"s"}, Overlays: map[switchboard.ToolID]switchboard.Overlay{{Server: "s", Name: "t"}: {Contract: tt.tenant}}})
		tool, _ := v.Tool(switchboard.ToolID{Server: "s", Name: "t"})
		tt.want.ReadOnly, tt.want.Idempotent, tt.want.Stateful = tool.Contract.ReadOnly, tool.Contract.Idempotent, tool.Contract.Stateful
		tt.want.Flow, tt.want.Risk = tool.Contract.Flow, tool.Contract.Risk
		if !tool.Contract.Equal(&tt.want) {
			t.Errorf("%s: %+v, want %+v", name, tool.Contract, tt.want)
		}
	}
}

func TestPricesAndBoundaryFactsAreInTheDigest(t *testing.T) {
	seen := map[switchboard.Digest]int{}
	for i, o := range []switchboard.Overlay{
		{},
		{Price: &switchboard.Price{}},
		{Price: &switchboard.Price{Call: 1}},
		{Price: &switchboard.Price{Most: 1}},
		{Price: &switchboard.Price{Most: 1, Reported: true}},
		{Price: &switchboard.Price{Each: []switchboard.ElementPrice{{Pointer: "/a", Micros: 1}}}},
		{Price: &switchboard.Price{Each: []switchboard.ElementPrice{{Pointer: "/a", Micros: 2}}}},
		{Contract: switchboard.Contract{CostClass: switchboard.CostPaid}},
		{Contract: switchboard.Contract{CostClass: switchboard.CostFree}},
		{Contract: switchboard.Contract{RiskLevel: "high"}},
		{Contract: switchboard.Contract{SideEffects: []string{"high"}}},
		{Contract: switchboard.Contract{SideEffects: []string{"a", "b"}}},
		{Contract: switchboard.Contract{ApprovalRequired: []string{"a", "b"}}},
	} {
		v := world{overlay: &o}.build(t).For(&switchboard.Tenant{Servers: []switchboard.ServerID{"s"}})
		if was, ok := seen[v.Digest()]; ok {
			t.Errorf("rows %d and %d have one digest", was, i)
		}
		seen[v.Digest()] = i
	}
	budget := world{overlay: &switchboard.Overlay{Budget: &switchboard.Budget{ID: "own", Limit: 1}}}.build(t).For(&switchboard.Tenant{Servers: []switchboard.ServerID{"s"}})
	if tool, _ := budget.Tool(switchboard.ToolID{Server: "s", Name: "t"}); tool.Budget == nil || seen[budget.Digest()] != 0 {
		t.Errorf("no decision reads the budget %+v, and it is in the digest", tool.Budget)
	}
}
