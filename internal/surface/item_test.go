package surface_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// members are the members that identify an item in requests.
var members = map[switchboard.Kind]string{switchboard.Resources: "uri", switchboard.Templates: "uriTemplate", switchboard.Prompts: "name"}

// offer returns the offer of a server with resources and these items of the kind.
func offer(server string, k switchboard.Kind, names ...string) switchboard.Offer {
	o := switchboard.Offer{Server: switchboard.ServerID(server), Capabilities: []byte(`{"resources":{},"prompts":{}}`)}
	var list [][]byte
	for _, name := range names {
		quoted, _ := json.Marshal(name)
		list = append(list, fmt.Appendf(nil, `{"n":1.0,%q:%s,"x":{%[1]q:"inner"}}`, members[k], quoted))
	}
	switch k {
	case switchboard.Resources:
		o.Resources = list
	case switchboard.Templates:
		o.Templates = list
	case switchboard.Prompts:
		o.Prompts = list
	}
	return o
}

func offered(prev *surface.Surface, offers ...switchboard.Offer) *surface.Surface {
	return surface.New(surface.Input{WholeServers: offers, Prev: prev})
}

// listed returns the names in the finished list, in its order.
func listed(t interface{ Fatalf(string, ...any) }, s *surface.Surface, k switchboard.Kind) (ns []string) {
	var result map[string][]map[string]any
	if err := json.Unmarshal(s.List(k, false), &result); err != nil {
		t.Fatalf("%v: %s", err, s.List(k, false))
	}
	for _, items := range result {
		for _, item := range items {
			name, _ := item[members[k]].(string)
			ns = append(ns, name)
		}
	}
	return ns
}

func TestItemsKeepTheirNamesUnlessTwoServersUseTheSameName(t *testing.T) {
	for _, tt := range []struct {
		name   string
		kind   switchboard.Kind
		offers map[string]string // of servers a and b, separated by commas
		want   string
	}{
		{"prompts of their own", switchboard.Prompts, map[string]string{"a": "greet", "b": "bye"}, "greet,bye"},
		{"the same prompt", switchboard.Prompts, map[string]string{"a": "greet,x", "b": "y,greet"}, "a__greet,x,y,b__greet"},
		{"a prompt twice", switchboard.Prompts, map[string]string{"a": "greet,greet"}, "greet"},
		{"a prompt that imitates another's qualified name", switchboard.Prompts, map[string]string{"a": "b__greet", "b": "greet"}, "a__b__greet,greet"},
		{"a prompt that imitates where two collide", switchboard.Prompts, map[string]string{"a": "greet,b__greet", "b": "greet"}, "a__greet,a__b__greet,b__greet"},
		{"a prompt that only looks a little like it", switchboard.Prompts, map[string]string{"a": "__greet,B__greet,b_greet"}, "__greet,B__greet,b_greet"},
		{"a prompt without a name", switchboard.Prompts, map[string]string{"a": ",greet"}, "greet"},
		{"names that differ in case", switchboard.Prompts, map[string]string{"a": "greet", "b": "Greet"}, "greet,Greet"},
		{"resources of their own", switchboard.Resources, map[string]string{"a": "file:///a", "b": "file:///b"}, "file:///a,file:///b"},
		{"the same resource", switchboard.Resources, map[string]string{"a": "file:///x", "b": "file:///x"}, "switchboard://a/file:///x,switchboard://b/file:///x"},
		{"a resource that imitates another's", switchboard.Resources, map[string]string{"a": "switchboard://b/file:///x", "b": "file:///x"}, "switchboard://a/switchboard://b/file:///x,file:///x"},
		{"the same template", switchboard.Templates, map[string]string{"a": "file:///{p}", "b": "file:///{p}"}, "switchboard://a/file:///{p},switchboard://b/file:///{p}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var offers []switchboard.Offer
			for _, server := range []string{"a", "b"} {
				if own, ok := tt.offers[server]; ok {
					offers = append(offers, offer(server, tt.kind, strings.Split(own, ",")...))
				}
			}
			if got := strings.Join(listed(t, offered(nil, offers...), tt.kind), ","); got != tt.want {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestItemsKeepTheirNamesWhileTheTaskIsBound(t *testing.T) {
	const k = switchboard.Prompts
	for _, tt := range []struct {
		name string
		then [][]switchboard.Offer // one after the other
		want string                // at the end
	}{
		{"a newcomer takes nobody's name", [][]switchboard.Offer{{offer("b", k, "x")}, {offer("a", k, "x"), offer("b", k, "x")}}, "a__x,x"},
		{"nor that of one who has gone", [][]switchboard.Offer{{offer("b", k, "x")}, {}, {offer("a", k, "x")}}, "a__x"},
		{"who comes back is who it was", [][]switchboard.Offer{{offer("b", k, "x")}, {offer("a", k, "x")}, {offer("a", k, "x"), offer("b", k, "x")}}, "a__x,x"},
		{"a name that was disputed stays so", [][]switchboard.Offer{{offer("a", k, "x"), offer("b", k, "x")}, {offer("a", k, "x")}}, "a__x"},
		{"for newcomers too", [][]switchboard.Offer{{offer("a", k, "x"), offer("b", k, "x")}, {}, {offer("c", k, "x")}}, "c__x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s *surface.Surface
			for _, offers := range tt.then {
				s = offered(s, offers...)
			}
			if got := strings.Join(listed(t, s, k), ","); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestRemovedNamesAreForgottenEventuallyAndShownNamesAreNot(t *testing.T) {
	s := offered(nil, offer("b", switchboard.Prompts, "kept"), offer("c", switchboard.Prompts, "kept", "own"))
	for round := range 4 {
		names := []string{"own"}
		for i := range surface.MaxRemembered / 2 {
			names = append(names, fmt.Sprintf("p%d-%d", round, i))
		}
		s = offered(s, offer("c", switchboard.Prompts, names...), offer("b", switchboard.Prompts, "kept"))
	}
	got := listed(t, offered(s, offer("a", switchboard.Prompts, "own", "p0-0"), offer("b", switchboard.Prompts, "kept"), offer("c", switchboard.Prompts, "own")), switchboard.Prompts)
	if want := []string{"a__own", "p0-0", "b__kept", "own"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAResourceBelongsToTheServerThatListsOrDescribesItOrThatItsURINames(t *testing.T) {
	res, tmpl := switchboard.Resources, switchboard.Templates
	both := func(o switchboard.Offer, templates ...string) switchboard.Offer {
		o.Templates = offer("", tmpl, templates...).Templates
		return o
	}
	bare := switchboard.Offer{Server: "none", Capabilities: []byte(`{"prompts":{}}`)}
	long := "{v" + strings.Repeat(",v", 1500) + "}" // more than regexp repeats
	for _, tt := range []struct {
		name   string
		offers []switchboard.Offer
		uri    string
		want   string // server and URI there, or "" for none
	}{
		{"listed", []switchboard.Offer{offer("a", res, "x:1"), offer("b", res)}, "x:1", "a x:1"},
		{"listed by two", []switchboard.Offer{offer("a", res, "x:1"), offer("b", res, "x:1")}, "x:1", ""},
		{"listed by two, and named", []switchboard.Offer{offer("a", res, "x:1"), offer("b", res, "x:1")}, "switchboard://b/x:1", "b x:1"},
		{"not listed, and named", []switchboard.Offer{offer("a", res), offer("b", res)}, "switchboard://b/x:1", ""},
		{"listed under its own name, and named", []switchboard.Offer{offer("a", res, "x:1"), offer("b", res)}, "switchboard://a/x:1", "a x:1"},
		{"described, and another is named", []switchboard.Offer{offer("a", tmpl, "x:{n}"), offer("b", res, "x:1")}, "switchboard://b/x:2", ""},
		{"of a server that is not there", []switchboard.Offer{offer("a", res)}, "switchboard://b/x:1", ""},
		{"of a server without resources", []switchboard.Offer{offer("a", res), bare}, "switchboard://none/x:1", ""},
		{"of no name", []switchboard.Offer{offer("a", res)}, "switchboard://a/", ""},
		{"described", []switchboard.Offer{offer("a", tmpl, "x:{n}"), offer("b", res)}, "x:1", "a x:1"},
		{"described twice by one", []switchboard.Offer{offer("a", tmpl, "x:{n}", "{+all}"), offer("b", res)}, "x:1", "a x:1"},
		{"described by two", []switchboard.Offer{offer("a", tmpl, "x:{n}"), offer("b", tmpl, "{+all}")}, "x:1", ""},
		{"described by two in the same words", []switchboard.Offer{offer("a", tmpl, "x:{n}"), offer("b", tmpl, "x:{n}")}, "x:1", ""},
		{"by two in the same words and a third", []switchboard.Offer{offer("a", tmpl, "x:{n}"), offer("b", tmpl, "x:{n}"), offer("c", tmpl, "{+all}")}, "x:1", ""},
		{"by two in the same words, and named", []switchboard.Offer{offer("a", tmpl, "x:{n}"), offer("b", tmpl, "x:{n}")}, "switchboard://a/x:1", "a x:1"},
		{"listed by one, described by another", []switchboard.Offer{offer("a", tmpl, "x:{n}"), offer("b", res, "x:1")}, "x:1", "b x:1"},
		{"described by no regular expression", []switchboard.Offer{offer("a", tmpl, long), offer("b", tmpl, "x:{n}", "{")}, "x:1", "b x:1"},
		{"too long to be matched", []switchboard.Offer{offer("a", tmpl, "{+all}"), offer("b", res)}, strings.Repeat("x", 5000), ""},
		{"mentioned, with one server that has resources", []switchboard.Offer{both(offer("a", res, "x:1"), "y:{n}"), bare}, "z:1", ""},
		{"mentioned, with two", []switchboard.Offer{offer("a", res), offer("b", res)}, "z:1", ""},
		{"nobody has any", []switchboard.Offer{bare}, "z:1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slices.Reverse(tt.offers)
			for range 2 {
				slices.Reverse(tt.offers) // the order is nothing
				it, ok := offered(nil, tt.offers...).Resource(tt.uri)
				got := ""
				if ok {
					got = string(it.Server) + " " + it.Own
				}
				if got != tt.want || ok && it.Name != tt.uri {
					t.Errorf("got %q as %q, want %q", got, it.Name, tt.want)
				}
			}
		})
	}
}

func TestAResourceKeepsItsOwner(t *testing.T) {
	a, b := offer("a", switchboard.Resources, "x:1"), offer("b", switchboard.Resources, "x:1")
	gone := offer("a", switchboard.Resources)
	s := offered(offered(nil, a), b)
	if it, ok := s.Resource("x:1"); ok {
		t.Errorf("a's resource belongs to %s after a has gone", it.Server)
	}
	if it, ok := offered(offered(nil, a), gone, b).Resource("x:1"); ok {
		t.Errorf("a no longer lists the resource, and it belongs to %q", it.Server)
	}
	if it, ok := offered(offered(nil, a, b), a).Resource("x:1"); ok {
		t.Errorf("a resource that two servers could own belongs to %s", it.Server)
	}
	tmpl := func(server string) switchboard.Offer { return offer(server, switchboard.Templates, "x:{n}") }
	if it, ok := offered(offered(nil, tmpl("a")), tmpl("b")).Resource("x:1"); ok {
		t.Errorf("the resource that a described belongs to %s", it.Server)
	}
	if it, ok := offered(offered(nil, tmpl("a")), tmpl("a"), tmpl("b")).Resource("x:1"); !ok || it.Server != "a" {
		t.Errorf("a new server with a's template owns the resource: %q", it.Server)
	}
}

func TestListsOfOtherKinds(t *testing.T) {
	a := switchboard.Offer{
		Server: "a", Capabilities: []byte(`{"resources":{}}`),
		Resources: [][]byte{[]byte(`{ "uri" : "file:///x", "size": 12345678901234567890, "annotations": {"uri": 1.0} }`), []byte(`{"uri":"\u0066ile:///only-a"}`), []byte(`[]`), []byte(`{"uri":7}`)},
		Templates: [][]byte{[]byte(`{"uriTemplate":"file:///{path}","name":"f"}`)},
		Prompts:   [][]byte{[]byte("{\"arguments\":[{\"name\":\"greet\"}],\n\"name\":\"greet\"}")},
	}
	b := a
	b.Server = "b"
	s := surface.New(surface.Input{WholeServers: []switchboard.Offer{a, b}, ServerInfo: []byte(`{"name":"switchboard","version":"1.2.3"}`)})
	var all bytes.Buffer
	for k := switchboard.Resources; k < switchboard.NKinds; k++ {
		for _, modern := range []bool{false, true} {
			list := s.List(k, modern)
			if !json.Valid(list) {
				t.Errorf("the list is no JSON: %s", list)
			}
			all.Write(append(list, '\n'))
		}
	}
	golden(t, "testdata/list-others.json", all.Bytes())
}

// TestNamesOfItemsAreOneToOne checks this for all names that servers use, and for servers that come
// at any time and in any order.
func TestNamesOfItemsAreOneToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom([]switchboard.Kind{switchboard.Resources, switchboard.Templates, switchboard.Prompts}).Draw(t, "kind")
		own := rapid.SampledFrom([]string{"x", "y", "a__x", "b__x", "a__a__x", "__x", "switchboard://a/x", "switchboard://b/x", "switchboard://a/switchboard://a/x", "switchboard://x", "x{n}"})
		draw := func(label string) (offers []switchboard.Offer) {
			for _, server := range []string{"a", "b", "c"} {
				if names := rapid.SliceOfNDistinct(own, 0, 5, rapid.ID).Draw(t, label+server); len(names) > 0 {
					offers = append(offers, offer(server, k, names...))
				}
			}
			return offers
		}
		type thing struct{ server, own string }
		ever := map[string]thing{} // by name: its item
		is := map[thing]string{}   // by item: its name
		var s *surface.Surface
		for round := range rapid.IntRange(1, 4).Draw(t, "rounds") {
			offers := draw(fmt.Sprint(round))
			prev := s
			s = offered(prev, offers...)
			shown, things := listed(t, s, k), 0
			for _, o := range offers {
				for range o.List(k) {
					things++
				}
			}
			if len(shown) != things {
				t.Fatalf("%d things are shown as %q", things, shown)
			}
			for _, name := range shown {
				look := s.Resource
				switch k {
				case switchboard.Prompts:
					look = s.Prompt
				case switchboard.Templates:
					look = s.Template
				}
				it, ok := look(name)
				if !ok || it.Name != name {
					t.Fatalf("%q is listed, but not there: %+v", name, it)
				}
				th := thing{string(it.Server), it.Own}
				if was, ok := ever[name]; ok && was != th {
					t.Fatalf("%q was %v, and is %v", name, was, th)
				}
				if was, ok := is[th]; ok && was != name {
					t.Fatalf("%v was %q, and is %q", th, was, name)
				}
				ever[name], is[th] = th, name
			}
			slices.Reverse(offers)
			other := listed(t, offered(prev, offers...), k)
			slices.Sort(other)
			slices.Sort(shown)
			if !slices.Equal(shown, other) {
				t.Fatalf("in another order: %q, not %q", other, shown)
			}
		}
	})
}

func FuzzResource(f *testing.F) {
	s := offered(nil,
		offer("a", switchboard.Resources, "file:///x", "switchboard://b/y"),
		func() switchboard.Offer {
			o := offer("b", switchboard.Templates, "file:///{path}", "{+all}/{?q*}", "db://{a,b,c}/x{/y*}")
			o.Resources = offer("", switchboard.Resources, "file:///x").Resources
			return o
		}())
	for _, uri := range []string{"", "file:///x", "file:///y", "switchboard://a/file:///x", "switchboard://", "switchboard:///x", "switchboard://a", "db://1,2/x/y/z", "\xff", "a/?q=%zz"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		it, ok := s.Resource(uri)
		if !ok {
			return
		}
		if it.Server != "a" && it.Server != "b" || it.Own == "" && uri != "" {
			t.Errorf("%q is %+v", uri, it)
		}
		if it.Name != uri || !strings.HasSuffix(it.Name, it.Own) {
			t.Errorf("%q is called %+v", uri, it)
		}
		if named, ok := s.Resource(surface.Qualify(switchboard.Resources, it.Server, it.Own)); it.Own != "" && (!ok || named.Server != it.Server || named.Own != it.Own) {
			t.Errorf("%+v, but %+v by its qualified name", it, named)
		}
	})
}

func TestAnExtensionBelongsToTheOnlyServerThatDeclaresIt(t *testing.T) {
	declares := func(server, capabilities string, modern bool) switchboard.Offer {
		return switchboard.Offer{Server: switchboard.ServerID(server), Capabilities: []byte(capabilities), Modern: modern}
	}
	a := `{"tools":{},"tasks":{"list":{}},"experimental":{"lab":{},"tools":{}},"extensions":{"com.example/ui":{"v":1.0}}}`
	for _, tt := range []struct {
		name   string
		offers []switchboard.Offer
		want   string // method → server, for a legacy client
		not    string // methods without a server
	}{
		{"one", []switchboard.Offer{declares("a", a, false)}, "tasks/get lab/x ui/open ui/", "tools/x Tasks/get tasks tasksx/get example/ui other/x resources/x"},
		{"another era", []switchboard.Offer{declares("a", a, true)}, "", "tasks/get lab/x ui/open"},
		{"the other is of another era", []switchboard.Offer{declares("a", a, false), declares("b", a, true)}, "tasks/get lab/x ui/open", ""},
		{"two", []switchboard.Offer{declares("a", a, false), declares("b", `{"tasks":{},"extensions":{"com.example/ui":{}}}`, false)}, "lab/x", "tasks/get ui/open"},
		{"two by another name", []switchboard.Offer{declares("a", a, false), declares("b", `{"extensions":{"org.example/ui":{}}}`, false)}, "tasks/get lab/x", "ui/open"},
		{"two of the same name, and a third", []switchboard.Offer{declares("a", a, false), declares("b", a, false), declares("c", `{"experimental":{"ui":{}}}`, false)}, "", "ui/open"},
		{"not the whole server", []switchboard.Offer{surface.WithoutExtensions(declares("a", a, false))}, "", "tasks/get lab/x ui/open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := offered(nil, tt.offers...)
			for method := range strings.FieldsSeq(tt.want) {
				if by, ok := s.ExtensionServer(method, false); !ok || by != "a" {
					t.Errorf("%s is %q's", method, by)
				}
			}
			for method := range strings.FieldsSeq(tt.not) {
				if by, ok := s.ExtensionServer(method, false); ok {
					t.Errorf("%s is %q's", method, by)
				}
			}
			var got map[string]map[string]any
			if err := json.Unmarshal(s.Capabilities([]byte(`{"tools":{}}`), false), &got); err != nil {
				t.Fatal(err)
			}
			_, tasks := got["tasks"]
			if want := strings.Contains(tt.want, "tasks/get"); tasks != want {
				t.Errorf("tasks declared: %v, want %v", tasks, want)
			}
			if _, lab := got["experimental"]["lab"]; lab != strings.Contains(tt.want, "lab/x") {
				t.Errorf("lab declared: %v", lab)
			}
		})
	}
}

func TestAServerThatDeclaresTooManyCapabilitiesCostsLittle(t *testing.T) {
	var many strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&many, `,"x%d":{}`, i)
	}
	for _, capabilities := range []string{`{"tools":{}` + many.String() + `}`, `{"experimental":{"y":{}` + many.String() + `}}`} {
		s := offered(nil, switchboard.Offer{Server: "a", Capabilities: []byte(capabilities)})
		if got := s.Capabilities([]byte(`{}`), false); !json.Valid(got) || len(got) > 4<<10 {
			t.Errorf("%d bytes", len(got))
		}
	}
}
