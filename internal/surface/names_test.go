package surface_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var shown = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// drawTools draws tools with names that are easy to confuse: long names of other tools, and
// names that our own rules would produce.
func drawTools(t *rapid.T) []*switchboard.Tool {
	servers := []switchboard.ServerID{"a", "a-b", "b", "switchboard", switchboard.ServerID(strings.Repeat("l", switchboard.MaxIDBytes))}
	pool := []string{"x", "_x", "__x", "x.y", "読", "", "switchboard_x", "Switchboard_Status", "SWITCHBOARD-x", "switchboard", "switchboard.", strings.Repeat("n", 64), strings.Repeat("n", 65)}
	all := map[switchboard.ToolID]bool{}
	for range rapid.IntRange(0, 12).Draw(t, "tools") {
		id := switchboard.ToolID{Server: rapid.SampledFrom(servers).Draw(t, "server"), Name: rapid.SampledFrom(pool).Draw(t, "name")}
		all[id] = true
		other := rapid.SampledFrom(servers).Draw(t, "imitates")
		pool = append(pool, surface.Shorten(id.Name), string(other)+"__"+id.Name, surface.Shorten(string(other)+"__"+id.Name),
			strings.TrimPrefix(surface.Shorten(string(other)+"__"+id.Name), string(other)+"__"))
	}
	var tools []*switchboard.Tool
	for _, id := range slices.SortedFunc(maps.Keys(all), switchboard.ToolID.Compare) {
		name, err := json.Marshal(id.Name)
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, &switchboard.Tool{ID: id, Definition: slices.Concat([]byte(`{"name":`), name, []byte(`}`))})
	}
	return tools
}

func present(tools []*switchboard.Tool, prev *surface.Surface) *surface.Surface {
	task := &switchboard.Task{Requirements: make([]switchboard.Requirement, 1)}
	selected := make([]decide.Selected, len(tools))
	for i, tool := range tools {
		selected[i] = decide.Selected{Tool: tool, Requirements: []int{0}}
	}
	return surface.New(surface.Input{Task: task, Selected: selected, Prev: prev})
}

func mapping(s *surface.Surface) map[switchboard.ToolID]string {
	m := map[switchboard.ToolID]string{}
	for _, e := range s.Entries() {
		m[e.Tool.ID] = e.Name
	}
	return m
}

func TestEveryToolHasANameOfItsOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tools := drawTools(t)
		s := present(tools, nil)
		if len(s.Entries()) != len(tools) {
			t.Fatalf("%d of %d tools are shown", len(s.Entries()), len(tools))
		}
		own := map[string]int{}
		for _, tool := range tools {
			own[tool.ID.Name]++
		}
		seen := map[string]bool{}
		for i, e := range s.Entries() {
			if e.Tool != tools[i] {
				t.Fatalf("%s stands where %s should", e.Tool.ID, tools[i].ID)
			}
			if !shown.MatchString(e.Name) || strings.HasPrefix(strings.ReplaceAll(strings.ToLower(e.Name), "-", "_"), surface.Reserved) {
				t.Fatalf("%s is shown as %q", e.Tool.ID, e.Name)
			}
			if seen[e.Name] {
				t.Fatalf("%q is there twice", e.Name)
			}
			seen[e.Name] = true
			if back, ok := s.Lookup(e.Name); !ok || back.Tool != e.Tool {
				t.Fatalf("%q leads to %v", e.Name, back.Tool)
			}
			if name, ok := s.Name(e.Tool.ID); !ok || name != e.Name {
				t.Fatalf("%s is %q, and %q in the list", e.Tool.ID, name, e.Name)
			}
			if own[e.Tool.ID.Name] > 1 && !strings.HasPrefix(e.Name, string(e.Tool.ID.Server)+"__") && e.Tool.ID.Server != "switchboard" {
				t.Fatalf("%s shares its name, and is shown as %q", e.Tool.ID, e.Name)
			}
			var def struct{ Name string }
			if err := json.Unmarshal(e.Append(nil), &def); err != nil || def.Name != e.Name {
				t.Fatalf("%q is defined as %s", e.Name, e.Append(nil))
			}
		}
		if other := present(rapid.Permutation(tools).Draw(t, "shuffled"), nil); !maps.Equal(mapping(s), mapping(other)) {
			t.Fatalf("in another order the names are %v, not %v", mapping(other), mapping(s))
		}
	})
}

func FuzzShorten(f *testing.F) {
	for _, s := range []string{"", "search", "files.read", "switchboard_x", "switchboard", "switchboard.", "switchboard-", "読む", "\xff\xfe", strings.Repeat("x", 65), "a\u200bb", "\u202e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := surface.Shorten(name)
		if !shown.MatchString(got) || strings.HasPrefix(strings.ReplaceAll(strings.ToLower(got), "-", "_"), surface.Reserved) {
			t.Fatalf("%q becomes %q", name, got)
		}
		if surface.Shorten(got) != got {
			t.Fatalf("%q becomes %q, and that %q", name, got, surface.Shorten(got))
		}
		looksOurs := strings.HasPrefix(strings.ReplaceAll(strings.ToLower(name), "-", "_"), surface.Reserved)
		if shown.MatchString(name) && !looksOurs && got != name {
			t.Fatalf("%q needs no change, and becomes %q", name, got)
		}
	})
}
