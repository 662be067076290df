package past

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A tool is similar because of its contract, because an overlay declares it, because of its label, or because of its words. The strongest reason comes first.
func TestSimilarToolsAreFoundByContractEquivalentLabelAndWords(t *testing.T) {
	tax, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"internet": "", "fs": ""}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var sources []catalog.Source
	for _, tool := range []struct{ server, name, text, resource string }{
		{"web", "find_pages", "Finds pages of the world wide web.", "internet"},
		{"contracted", "lookup", "Asks an index.", "internet"},
		{"declared", "swap", "Asks a colleague.", "fs"},
		{"labelled", "query", "Asks a provider.", "internet"},
		{"worded", "find_pages_fast", "Finds pages.", ""},
		{"unlike", "paint", "Draws a horse.", "fs"},
		{"foreign", "find_pages", "Finds pages of the world wide web.", "internet"}, // of no tool of the tenant
	} {
		block := ""
		if tool.resource != "" {
			block = fmt.Sprintf(`,"_meta":{"x-summit-capabilities":[{"verb":"search","resource":%q}]}`, tool.resource)
		}
		definition := fmt.Appendf(nil, `{"name":%q,"description":%q,"inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}%s}`, tool.name, tool.text, block)
		sources = append(sources, catalog.Source{Offer: switchboard.Offer{Server: switchboard.ServerID(tool.server), Tools: [][]byte{definition}}})
	}
	all := catalog.Build(sources, nil, tax)
	of := &switchboard.Tenant{ID: "acme", Servers: []switchboard.ServerID{"web", "contracted", "declared", "labelled", "worded", "unlike"}}
	view := all.For(of)
	find := switchboard.ToolID{Server: "web", Name: "find_pages"}
	provided := func(id switchboard.ToolID, name string) *switchboard.Tool {
		tool, ok := view.Tool(id)
		if !ok {
			t.Fatalf("there is no %s", id)
		}
		copied := *tool
		copied.Provides = &switchboard.Provision{Name: name}
		return &copied
	}
	providers := contract.ProvidersOf(nil, map[string][]*switchboard.Tool{
		"web.search@1.0.0": {
			provided(find, "find"),
			provided(switchboard.ToolID{Server: "contracted", Name: "lookup"}, "find"),
			provided(switchboard.ToolID{Server: "unlike", Name: "paint"}, "draw"), // another tool of the same contract
		},
	})
	equivalents := contract.New(all, map[switchboard.ToolID]switchboard.Overlay{find: {Equivalents: []switchboard.DeclaredEquivalent{
		{Tool: switchboard.ToolID{Server: "declared", Name: "swap"}}, {Tool: switchboard.ToolID{Server: "foreign", Name: "find_pages"}},
	}}}, all.Heard, nil, nil)
	st := &bind.State{Tenants: map[switchboard.TenantID]*bind.Tenant{"acme": {Tenant: of, View: view, Providers: providers, Equivalents: equivalents}}}
	r := New(admin.NewReader(admin.ReaderOptions{Configuration: func() admin.Configuration { return admin.Configuration{State: st} }}), memory.New(memory.Options{Store: store.NewMemory(), Log: slog.New(slog.DiscardHandler)}))
	for asked, want := range map[switchboard.ToolID][]string{
		find: {
			"contracted/lookup: provides find of web.search@1.0.0, can search internet, found by its words",
			"declared/swap: equivalent",
			"labelled/query: can search internet, found by its words", // the search reads labels, too
			"worded/find_pages_fast: found by its words",
		},
		{Server: "unlike", Name: "paint"}: {"declared/swap: can search fs"},
	} {
		x, err := r.Similar(t.Context(), "acme", asked, 30)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tool := range x.Tools {
			got = append(got, tool.Tool+": "+strings.Join(tool.Why, ", "))
		}
		if !slices.Equal(got, want) {
			t.Errorf("like %s are\n%q, want\n%q", asked, got, want)
		}
		if text, err := json.Marshal(x); err != nil || strings.Contains(string(text), "foreign") {
			t.Errorf("%s, %v", text, err)
		}
	}
	if _, err := r.Similar(t.Context(), "acme", switchboard.ToolID{Server: "foreign", Name: "find_pages"}, 30); err == nil {
		t.Error("a tool that the tenant does not have is answered")
	}
}
