package surface_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s (-update writes it again): got\n%s", file, got)
	}
}

// bind returns a task and its selection from "server/tool" or "server/tool as NAME",
// each selected by its own requirement.
func bind(t testing.TB, lines ...string) (*switchboard.Task, []decide.Selected) {
	t.Helper()
	task := &switchboard.Task{ID: "t"}
	var selected []decide.Selected
	for i, line := range lines {
		line, as, _ := strings.Cut(line, " as ")
		id, err := switchboard.ParseToolID(line)
		if err != nil {
			t.Fatal(err)
		}
		name, err := json.Marshal(id.Name)
		if err != nil {
			t.Fatal(err)
		}
		task.Requirements = append(task.Requirements, switchboard.Requirement{As: as})
		selected = append(selected, decide.Selected{
			Tool:         &switchboard.Tool{ID: id, Definition: fmt.Appendf(nil, `{"name":%s,"inputSchema":{"type":"object"}}`, name)},
			Requirements: []int{i},
		})
	}
	return task, selected
}

func show(t testing.TB, prev *surface.Surface, lines ...string) *surface.Surface {
	t.Helper()
	task, selected := bind(t, lines...)
	return surface.New(surface.Input{Task: task, Selected: selected, Prev: prev})
}

func names(s *surface.Surface) (ns []string) {
	for _, e := range s.Entries() {
		ns = append(ns, e.Name)
	}
	return ns
}

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, tt := range []struct {
		name  string
		tools []string
		want  []string
	}{
		{"nothing", nil, nil},
		{"its own", []string{"brave/search"}, []string{"brave/search → search"}},
		{"as the requirement says", []string{"brave/search as web"}, []string{"brave/search → web"}},
		{"two share one", []string{"brave/search", "files/read", "google/search"}, []string{
			"brave/search → brave__search", "files/read → read", "google/search → google__search",
		}},
		{"by what a requirement says", []string{"brave/web as search", "google/search"}, []string{
			"brave/web → brave__web", "google/search → google__search",
		}},
		{"a long name is in somebody's way", []string{"a/x", "b/x", "c/a__x"}, []string{
			"a/x → a__x", "b/x → b__x", "c/a__x → c__a__x",
		}},
		{"what could be of two servers is not", []string{"a/b__c", "a-b/c", "x/b__c", "x/c"}, []string{
			"a/b__c → a__b__c", "a-b/c → a-b__c", "x/b__c → x__b__c", "x/c → x__c",
		}},
		{"64 characters", []string{"a/" + long}, []string{"a/" + long + " → " + long}},
		{"65 characters", []string{"a/" + long + "x"}, []string{"a/" + long + "x → " + strings.Repeat("x", 53) + "_9537c5fdf1"}},
		{"long only by the server's id", []string{"a/" + long, "b/" + long}, []string{
			"a/" + long + " → a__" + strings.Repeat("x", 50) + "_3e4c81e27b", "b/" + long + " → b__" + strings.Repeat("x", 50) + "_cab6100b85",
		}},
		{"odd characters", []string{"a/files.read", "a/ls -l", "a/読む", "a/x/y"}, []string{
			"a/files.read → files_read_601e4eb608", "a/ls -l → ls_-l_f0f40cf78d", "a/読む → ___818417a139", "a/x/y → x_y_bd3c9047d6",
		}},
		{"two share an odd one", []string{"a/x.y", "b/x.y"}, []string{
			"a/x.y → a__x_y_5c08674e41", "b/x.y → b__x_y_a9312adbc8",
		}},
		{"our own names are ours", []string{"a/switchboard_status", "a/switchboard", "a/switchboard.x", "switchboard/x", "switchboard/switchboard_y", "b/x"}, []string{
			"a/switchboard_status → a__switchboard_status", "a/switchboard → switchboard", "a/switchboard.x → tool-switchboard_x_8961a661b9",
			"switchboard/x → tool-switchboard__x_82e9f8727c", "switchboard/switchboard_y → tool-switchboard__switchboard_y_8da5ade383", "b/x → b__x",
		}},
		{"what looks like ours is not", []string{"a/Switchboard_Status", "a/SWITCHBOARD-READ", "a/switchboard-status", "a/my_switchboard_x"}, []string{
			"a/Switchboard_Status → a__Switchboard_Status", "a/SWITCHBOARD-READ → a__SWITCHBOARD-READ", "a/switchboard-status → a__switchboard-status", "a/my_switchboard_x → my_switchboard_x",
		}},
		{"one imitates what another is shortened to", []string{"a/x.y", "evil/x_y_b24ca9b75e"}, []string{
			"a/x.y → a__x_y_5c08674e41", "evil/x_y_b24ca9b75e → evil__x_y_b24ca9b75e",
		}},
		{"a server imitates itself", []string{"a/p.q", "a/p_q_5ee5c5784d", "b/p.q", "b/p_q_5ee5c5784d"}, []string{
			"a/p.q → a__5d09544332e7402277b7931f84bc36", "a/p_q_5ee5c5784d → a__8b563d3293fb7698876caab80484f6", "b/p.q → b__p_q_9037004596", "b/p_q_5ee5c5784d → b__p_q_5ee5c5784d",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, e := range show(t, nil, tt.tools...).Entries() {
				got = append(got, e.Tool.ID.String()+" → "+e.Name)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n %s, want\n %s", strings.Join(got, "\n "), strings.Join(tt.want, "\n "))
			}
		})
	}
}

func TestNamesFollowFromTheSelectionAndNotFromEarlierSurfaces(t *testing.T) {
	for _, binds := range [][][]string{
		{{"b/x"}, {"a/x", "b/x"}},
		{{"a/x", "b/x"}, {"a/x"}},
		{{"a/x"}, nil, {"b/x"}},
		{{"a/x as y"}, {"a/x as z"}},
	} {
		var s *surface.Surface
		for _, lines := range binds {
			s = show(t, s, lines...)
			if got, want := names(s), names(show(t, nil, lines...)); !slices.Equal(got, want) {
				t.Errorf("after %v, %v is %q, and at first %q", binds, lines, got, want)
			}
		}
	}
}

// TestAServerCannotMakeNamingSlow has a server where each tool conflicts with the
// next one.
func TestAServerCannotMakeNamingSlow(t *testing.T) {
	lines, name := []string{"b/x"}, "x"
	for range 10_000 {
		lines = append(lines, "e/"+name)
		name = surface.Shorten("e__" + name)
	}
	s := show(t, nil, lines...)
	if n := len(s.Entries()); n != len(lines) {
		t.Errorf("%d of %d tools are shown", n, len(lines))
	}
	seen := map[string]bool{}
	for _, name := range names(s) {
		if seen[name] {
			t.Fatalf("%s is there twice", name)
		}
		seen[name] = true
	}
}

func TestOnlyTheExactNameFindsATool(t *testing.T) {
	s := show(t, nil, "a/search_web", "b/x", "c/x")
	if e, ok := s.Lookup("search_web"); !ok || e.Tool.ID.String() != "a/search_web" {
		t.Errorf("search_web is %v, %v", e.Tool, ok)
	}
	if n, ok := s.Name(switchboard.ToolID{Server: "b", Name: "x"}); n != "b__x" || !ok {
		t.Errorf("b/x is %q, %v", n, ok)
	}
	for _, name := range []string{"", "Search_web", "search-web", "search.web", "search_web ", " search_web", "ｓearch_web", "ſearch_web", "search%5Fweb", "a__search_web", "a/search_web", "search_web\x00", "x", "c/x"} {
		if e, ok := s.Lookup(name); ok {
			t.Errorf("%q finds %s", name, e.Tool.ID)
		}
	}
	gone := show(t, s, "a/search_web")
	if _, ok := gone.Lookup("b__x"); ok {
		t.Error("a tool that has gone is found")
	}
	if n, ok := gone.Name(switchboard.ToolID{Server: "b", Name: "x"}); ok {
		t.Errorf("a tool that has gone is shown as %s", n)
	}
}

func TestDiffersComparesEverythingThatAClientSees(t *testing.T) {
	one, two := show(t, nil, "a/x", "a/y"), show(t, nil, "a/x", "a/y")
	if one.Differs(two, false) != 0 {
		t.Error("the same tools are not equal")
	}
	task, selected := bind(t, "a/x", "a/y")
	selected[0].Tool.Definition = bytes.Replace(selected[0].Tool.Definition, []byte("object"), []byte("objects"), 1)
	for name, other := range map[string]*surface.Surface{
		"order": show(t, nil, "a/y", "a/x"), "fewer": show(t, nil, "a/x"), "name": show(t, nil, "a/x as z", "a/y"),
		"definition": surface.New(surface.Input{Task: task, Selected: selected}),
	} {
		if one.Differs(other, false) == 0 || other.Differs(one, false) == 0 {
			t.Errorf("another %s is equal", name)
		}
	}
}

func TestTheList(t *testing.T) {
	task, selected := bind(t, "files/read_file", "brave/search as web", "a/x.y", "google/search")
	selected[0].Tool.Definition = []byte(`{"name": "read_file", "$schema": "s", "inputSchema": {"type": "object", "required": ["path"], "properties": {"name": {"default": 12345678901234567890, "minimum": 1.0}}}, "x-summit-capabilities": [], "unknown": {"b": 1, "a": null}}`)
	selected[1].Tool.Definition = []byte("{\"title\":\"S\\u00fcche\",\"name\" :\t\"search\",\"name2\":\"search\",\"inputSchema\":{\"name\":\"search\"}}")
	selected[2].Tool.Definition = []byte(`{"n\u0061me":"x\u002ey","_meta":{"name":"x.y"}}`)
	selected[3].Tool.Definition = []byte(`{"name":"se\u0061rch"}`)
	s := surface.New(surface.Input{Task: task, Selected: selected, ServerInfo: []byte(`{"name":"switchboard","version":"1.2.3"}`)})
	golden(t, "testdata/list-legacy.json", s.List(switchboard.Tools, false))
	golden(t, "testdata/list-modern.json", s.List(switchboard.Tools, true))
	golden(t, "testdata/list-none.json", surface.New(surface.Input{}).List(switchboard.Tools, true))
	for _, modern := range []bool{false, true} {
		list := s.List(switchboard.Tools, modern)
		if !json.Valid(list) {
			t.Errorf("the list is no JSON: %s", list)
		}
		if again := s.List(switchboard.Tools, modern); &list[0] != &again[0] {
			t.Error("the list is made twice")
		}
	}
}
