package annotate_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/summit-switchboard/switchboard/internal/annotate"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A labelWorld is a configuration with some servers, and what they offer.
type labelWorld struct {
	servers []annotate.ToolServer // by the name, which is the id
	files   fstest.MapFS
	sources []catalog.Source
}

// newLabelWorld returns a configuration of the servers without any overlay.
func newLabelWorld(t *testing.T, servers []annotate.ToolServer) *labelWorld {
	terms := "resources:\n"
	for _, r := range taxonomyOfLabels(t).Resources() {
		if !slices.Contains(switchboard.BuiltinResources, r) {
			terms += "  " + string(r) + ":\n"
		}
	}
	w := &labelWorld{files: fstest.MapFS{"taxonomy.yaml": {Data: []byte(terms)}}}
	main := "servers:\n"
	for i, s := range servers {
		s.Name = fmt.Sprintf("s%d", i)
		main += fmt.Sprintf("  %s: {transport: stdio, command: [x]}\n", s.Name)
		o := switchboard.Offer{Server: switchboard.ServerID(s.Name), Tools: [][]byte{}}
		for _, one := range s.Tools {
			o.Tools = append(o.Tools, one.Definition)
		}
		w.servers, w.sources = append(w.servers, s), append(w.sources, catalog.Source{Offer: o})
	}
	w.files["switchboard.yaml"] = &fstest.MapFile{Data: []byte(main)}
	return w
}

// build returns the catalog that the files make: the input of each decision.
func (w *labelWorld) build(t *testing.T) *catalog.Snapshot {
	t.Helper()
	cfg, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: w.files})
	if err == nil {
		err = cfg.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	return catalog.Build(w.sources, cfg.Overlays, cfg.Taxonomy)
}

// A decision is a function of its inputs. So files of suggestions change none if the catalog has the same digest with them, and accepted rows change none but through the tools
// that they name.
func TestAcceptedLabelsAndNoOthersChangeADecision(t *testing.T) {
	all := realServers(t)
	r := rand.New(rand.NewPCG(28, 1))
	for round := range 8 {
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		w := newLabelWorld(t, all[:30])
		bare := w.build(t)
		suggested := map[string][]annotate.ToolSuggestion{}
		taxonomy := taxonomyOfLabels(t)
		for _, s := range w.servers {
			for _, tool := range s.Tools { // as the catalog has them
				if known, ok := bare.Tool(switchboard.ToolID{Server: switchboard.ServerID(s.Name), Name: tool.Name}); ok {
					tool.Digest = known.Digest
					suggested[s.Name] = append(suggested[s.Name], annotate.Suggest(annotate.ToolServer{Name: s.Name, Tools: []annotate.DefinedTool{tool}}, taxonomy)...)
				}
			}
			if text := annotate.WriteProposal(switchboard.ServerID(s.Name), suggested[s.Name], nil, nil); text != nil {
				w.files["overlays/"+s.Name+config.SuggestedSuffix] = &fstest.MapFile{Data: text}
			}
		}
		if with := w.build(t); with.Digest() != bare.Digest() || len(w.files) < 10 {
			t.Fatalf("round %d: %d files of suggestions change the catalog", round, len(w.files))
		}
		accepted := map[switchboard.ToolID]*annotate.ToolSuggestion{}
		for _, s := range w.servers {
			id := switchboard.ServerID(s.Name)
			var rows []annotate.ProposedRow
			for i := range suggested[s.Name] {
				g := &suggested[s.Name][i]
				if row, ok := g.Row(); ok && r.IntN(3) == 0 && accepted[switchboard.ToolID{Server: id, Name: g.Tool}] == nil {
					rows, accepted[switchboard.ToolID{Server: id, Name: g.Tool}] = append(rows, row), g
				}
			}
			if len(rows) == 0 {
				continue
			}
			text, err := annotate.AcceptRows("overlay", nil, id, rows)
			if err != nil {
				t.Fatal(err)
			}
			w.files["overlays/"+s.Name+".yaml"] = &fstest.MapFile{Data: text}
		}
		after := w.build(t)
		if len(after.Tools()) != len(bare.Tools()) || len(accepted) < 10 {
			t.Fatalf("round %d: %d tools of %d, %d accepted", round, len(after.Tools()), len(bare.Tools()), len(accepted))
		}
		for _, tool := range after.Tools() {
			was, _ := bare.Tool(tool.ID)
			g := accepted[tool.ID]
			switch {
			case g == nil:
				if !reflect.DeepEqual(tool, was) {
					t.Errorf("%s changes, and nothing was accepted for it", tool.ID)
				}
			case len(tool.Capabilities) != 1 || tool.Capabilities[0].String() != g.Capability.String():
				t.Errorf("%s has %v, and %s was accepted", tool.ID, tool.Capabilities, g.Capability)
			}
		}
	}
}

// An officer writes the row, and anybody may have written the overlay.
func FuzzAcceptRows(f *testing.F) {
	f.Add("server: s\ntools:\n  a: {capabilities: [{verb: read, resource: fs}], for: x, side_effects: [deletes]}\n  b: {timeout: 5s}\n", "a", `{"capabilities": [{"verb": "write", "resource": "fs"}], "side_effects": ["writes-local"]}`)
	f.Add("server: s\ntools: {a: {}, b: {timeout: 5s}} # end\n", "c", "{capabilities: [], stateful: true}")
	f.Add("", "a", "{}")
	f.Add("server: s\ntools: {a: [], b: {}}", "a", "{for: 1}")
	f.Fuzz(func(t *testing.T, overlay, tool, own string) {
		row, err := annotate.NewRow(tool, "sha256:1", []byte(own))
		if err != nil {
			return
		}
		_, before, err := annotate.ReadProposal("overlay", []byte(overlay))
		if err != nil {
			before = nil
		}
		text, err := annotate.AcceptRows("overlay", []byte(overlay), "s", []annotate.ProposedRow{row})
		if err != nil {
			return
		}
		_, after, err := annotate.ReadProposal("overlay", text)
		if err != nil {
			return // so was the overlay; the check of the configuration refuses it
		}
		find := func(rows []annotate.ProposedRow, name string) string {
			for _, r := range rows {
				if r.Tool == name {
					return edit.Format(r.Value)
				}
			}
			return ""
		}
		for _, b := range before {
			if b.Tool != tool && find(after, b.Tool) != edit.Format(b.Value) {
				t.Errorf("the row of %s changes:\n%s\n%s", b.Tool, overlay, text)
			}
		}
		i := slices.IndexFunc(after, func(r annotate.ProposedRow) bool { return r.Tool == tool })
		if i < 0 || after[i].Digest != "sha256:1" {
			t.Errorf("the row is not there for its definition:\n%s\n%s", overlay, text)
		}
	})
}
