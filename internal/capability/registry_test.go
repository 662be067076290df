package capability

import (
	"testing"

	"github.com/Masterminds/semver/v3"
)

func TestARefMeansTheNewestActiveVersionInItsRange(t *testing.T) {
	t.Parallel()
	version := func(number string, s Status) *ContractVersion {
		return &ContractVersion{ID: "io.fs.read", Number: semver.MustParse(number), Status: s}
	}
	r, err := New([]*ContractVersion{version("1.2.0", Active), version("1.10.1", Active), version("1.11.0", Testing), version("2.0.0", Deprecated), version("0.9.0", Retired), version("3.0.0", Researching)}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ ref, want string }{
		{"io.fs.read", "1.10.1"},
		{"io.fs.read@^1", "1.10.1"},
		{"io.fs.read@^1.2", "1.10.1"},
		{"io.fs.read@~1.2.0", "1.2.0"},
		{"io.fs.read@1.2.0", "1.2.0"},
		{"io.fs.read@^2", "2.0.0"}, // deprecated, since no active one fits
		{"io.fs.read@1.11.0", ""},  // not active yet
		{"io.fs.read@0.9.0", ""},   // retired
		{"io.fs.read@^3", ""},
		{"io.fs.write", ""},
	} {
		ref, err := ParseRef(c.ref)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if v := r.Find(ref, nil); v != nil {
			got = v.Number.String()
		}
		if got != c.want {
			t.Errorf("%s means %q, want %q", c.ref, got, c.want)
		}
		if ref.String() != c.ref {
			t.Errorf("%s is written %s", c.ref, ref)
		}
	}
	for _, s := range []string{"", "IO.fs", "io..fs", "io.fs@", "io.fs@1", "io.fs@1.2", "io.fs@latest", "io.fs@>=1.0.0", "io.fs@^1.2.3.4", "io.fs@^1 || ^2", "io fs", "io.fs@^99999999999999999999"} {
		if ref, err := ParseRef(s); err == nil {
			t.Errorf("%q is read as %v", s, ref)
		}
	}
}

func TestAVersionExistsOnlyWithAllItsPermissionsAndOneOfItsModels(t *testing.T) {
	t.Parallel()
	v := &ContractVersion{Permissions: []string{"fs:read", "net:outbound"}, Models: []string{"haiku", "sonnet"}}
	for _, c := range []struct {
		permissions, models []string
		want                bool
	}{
		{[]string{"fs:read", "net:outbound"}, []string{"sonnet"}, true},
		{[]string{"fs:read", "fs:write", "net:outbound"}, []string{"haiku", "opus"}, true},
		{[]string{"fs:read"}, []string{"sonnet"}, false},
		{[]string{"fs:read", "net:outbound"}, []string{"opus"}, false},
		{[]string{"fs:read", "net:outbound"}, nil, false},
		{nil, nil, false},
	} {
		if got := v.GrantedTo(c.permissions, c.models); got != c.want {
			t.Errorf("with %s and %s: %t, want %t", c.permissions, c.models, got, c.want)
		}
	}
	if !(&ContractVersion{}).GrantedTo(nil, nil) {
		t.Error("a version that needs nothing does not exist")
	}
}

func TestAnActiveVersionWithToolsThatNothingProvidesIsFound(t *testing.T) {
	t.Parallel()
	version := func(id, number string, s Status, tools ...ContractTool) *ContractVersion {
		return &ContractVersion{ID: id, Number: semver.MustParse(number), Status: s, Tools: tools}
	}
	tool := ContractTool{Name: "x"}
	r, err := New([]*ContractVersion{version("a", "1.0.0", Active, tool), version("a", "2.0.0", Active, tool), version("b", "1.0.0", Active), version("c", "1.0.0", Deprecated, tool), version("d", "1.0.0", Active, tool)}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, v := range r.Unprovided([]ProviderRow{{Ref: Ref{ID: "a", Range: "^1"}}, {Ref: Ref{ID: "b"}}}) {
		got += v.Name() + " "
	}
	if got != "a@2.0.0 d@1.0.0 " {
		t.Errorf("nothing provides %s", got)
	}
}
