package capability

import (
	"testing"

	"github.com/Masterminds/semver/v3"
)

func TestARefMeansTheNewestActiveVersionInItsRange(t *testing.T) {
	t.Parallel()
	version := func(number string, s Status) *Version {
		return &Version{ID: "io.fs.read", Number: semver.MustParse(number), Status: s}
	}
	r, err := New([]*Version{version("1.2.0", Active), version("1.10.1", Active), version("1.11.0", Testing), version("2.0.0", Deprecated), version("0.9.0", Retired), version("3.0.0", Researching)}, nil, nil, nil)
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
