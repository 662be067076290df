package page

import (
	"net/url"
	"strings"
	"testing"
)

const tenantFile = `# Ours.
tenant: acme
ranking:
  # the best first
  classes: [local, paid] # not the free one
  prefer:
    # since May
    - {verb: search, resource: internet, servers: [nimbus, atlas]} # both
    - {verb: read, resource: files, servers: [disk]}
  adjust:
    - {server: "n*", by: -50} # slow
`

func TestAMoveChangesItsPartOfTheFileAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ move, fields, was, is string }{
		{"class/down/0", "", "[local, paid]", "[paid, local]"},
		{"class/up/1", "", "[local, paid]", "[paid, local]"},
		{"class/up/0", "", "", ""},
		{"class/down/1", "", "", ""},
		{"class/to/0/1", "", "[local, paid]", "[paid, local]"},
		{"class/to/1/0", "", "[local, paid]", "[paid, local]"},
		{"class/to/1/1", "", "", ""},
		{"class/out/0", "", "[local, paid]", "[paid]"},
		{"class/in/free", "", "[local, paid]", "[local, paid, free]"},
		{"class/in/paid", "", "", ""},
		{"server/up/0/1", "", "[nimbus, atlas]", "[atlas, nimbus]"},
		{"server/to/0/0/1", "", "[nimbus, atlas]", "[atlas, nimbus]"},
		{"server/out/0/0", "", "[nimbus, atlas]", "[atlas]"},
		{"server/in/0", "server=wiki", "[nimbus, atlas]", "[nimbus, atlas, wiki]"},
		{"server/out/1/0", "", "    - {verb: read, resource: files, servers: [disk]}\n", ""},
		{"row/out/1", "", "    - {verb: read, resource: files, servers: [disk]}\n", ""},
		{"row/in", "verb=write&resource=notes&server=wiki", "servers: [disk]}\n", "servers: [disk]}\n    - {verb: write, resource: notes, servers: [wiki]}\n"},
		{"adjust/by/0", "by=-20", "-50", "-20"},
		{"adjust/out/0", "", "  adjust:\n    - {server: \"n*\", by: -50} # slow\n", ""},
		{"adjust/in", "server=wiki&by=5", "# slow\n", "# slow\n    - {server: wiki, by: 5}\n"},
	} {
		was, err := readDraft("tenant.yaml", []byte(tenantFile))
		if err != nil {
			t.Fatal(err)
		}
		d, err := parseDraft(was.String())
		if err != nil || d.String() != was.String() {
			t.Fatalf("the draft %s comes back as %s: %v", was, d, err)
		}
		fields, _ := url.ParseQuery(tt.fields)
		if err := d.move(tt.move, fields); err != nil {
			t.Errorf("%s: %v", tt.move, err)
		}
		edits := d.editsFrom(was)
		got, err := applyDraft("tenant.yaml", []byte(tenantFile), edits)
		if want := strings.Replace(tenantFile, tt.was, tt.is, 1); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", tt.move, err, got, want)
		}
		if (len(edits) > 0) != (tt.was != "") {
			t.Errorf("%s has the edits %v", tt.move, edits)
		}
		if tt.move == "adjust/by/0" && edits[0].command("f") != "switchboard config set f ranking/adjust/0/by -- -20" {
			t.Errorf("the command is %s", edits[0].command("f"))
		}
		for _, e := range edits {
			if c := e.command("tenants/acme/tenant.yaml"); !strings.HasPrefix(c, "switchboard config set tenants/acme/tenant.yaml ranking/") {
				t.Errorf("%s: the command is %s", tt.move, c)
			}
		}
	}
}

func TestAMovedClassTakesItsCommentAlong(t *testing.T) {
	t.Parallel()
	const text = "tenant: acme\nranking:\n  classes:\n    - local # ours\n    # expensive\n    - paid\n"
	was, err := readDraft("tenant.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	d, _ := parseDraft(was.String())
	_ = d.move("class/up/1", nil)
	got, err := applyDraft("tenant.yaml", []byte(text), d.editsFrom(was))
	if want := "tenant: acme\nranking:\n  classes:\n    # expensive\n    - paid\n    - local # ours\n"; err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}

func TestClassesWithScoresOfTheirOwnExchangeThem(t *testing.T) {
	t.Parallel()
	const text = "tenant: acme\nranking:\n  classes:\n    a: 300 # ours\n    b: 20\n    c: 20\n"
	for _, tt := range []struct{ move, fields, was, is string }{
		{"class/down/0", "", "a: 300 # ours\n    b: 20", "a: 20 # ours\n    b: 300"},
		{"class/up/2", "", "c: 20", "c: 21"},
		{"class/to/2/0", "", "a: 300 # ours\n    b: 20\n    c: 20", "a: 21 # ours\n    b: 20\n    c: 300"},
		{"class/score/1", "score=400", "b: 20", "b: 400"},
		{"class/out/1", "", "    b: 20\n", ""},
		{"class/in/d", "", "c: 20\n", "c: 20\n    d: 0\n"},
	} {
		was, err := readDraft("tenant.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		d, err := parseDraft(was.String())
		if err != nil {
			t.Fatal(err)
		}
		fields, _ := url.ParseQuery(tt.fields)
		if err := d.move(tt.move, fields); err != nil {
			t.Errorf("%s: %v", tt.move, err)
		}
		got, err := applyDraft("tenant.yaml", []byte(text), d.editsFrom(was))
		if want := strings.Replace(text, tt.was, tt.is, 1); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", tt.move, err, got, want)
		}
	}
}

func TestAMoveThatLacksSomethingChangesNothingAndSaysWhat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ move, fields, want string }{
		{"adjust/by/0", "by=much", "whole number"},
		{"adjust/by/0", "by=1000001", "whole number"},
		{"adjust/in", "by=5", "name a server"},
		{"row/in", "verb=read&server=disk", "needs a verb, a resource and a server"},
		{"row/in", "verb=read&resource=files&server=wiki", "there is a row"},
		{"server/in/0", "server=atlas", "does not have yet"},
		{"nonsense", "", "none of the view"},
	} {
		d, err := readDraft("tenant.yaml", []byte(tenantFile))
		if err != nil {
			t.Fatal(err)
		}
		before := d.String()
		fields, _ := url.ParseQuery(tt.fields)
		if err := d.move(tt.move, fields); err == nil || !strings.Contains(err.Error(), tt.want) || d.String() != before {
			t.Errorf("%s %s: %v\n%s", tt.move, tt.fields, err, d)
		}
	}
	for _, at := range []string{"class/up/9", "class/up/-1", "class/up/x", "class/to/0", "class/to/0/2", "class/to/0/-1", "server/to/0/0/2", "server/to/0/0", "server/up/7/0", "server/up/0/7", "row/out/9", "adjust/out/9"} {
		d, _ := readDraft("tenant.yaml", []byte(tenantFile))
		before := d.String()
		if err := d.move(at, nil); err != nil || d.String() != before {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func TestADraftOfAnAddressIsBoundedAndStrict(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(`{"server":"a","by":1},`, 100)
	for _, text := range []string{
		"", "{", "[]", `{"other":1}`, `{"prefer":[{"verb":"read","resource":"x","servers":[]}]}`, `{} {}`,
		`{"adjust":[` + long + `{"server":"a","by":1}]}`, `{"classes":[{"class":"` + strings.Repeat("x", 16<<10) + `"}]}`,
	} {
		if d, err := parseDraft(text); err == nil {
			t.Errorf("%.80s is read as %s", text, d)
		}
	}
	d := &rankingDraft{Adjust: []draftAdjust{{Server: "a\u202eb\U0001f600"}}}
	if again, err := parseDraft(d.String()); err != nil || again.Adjust[0] != d.Adjust[0] || strings.ContainsFunc(d.String(), func(r rune) bool { return r > 0x7e }) {
		t.Errorf("%s comes back as %v: %v", d, again, err)
	}
	for text, want := range map[string]string{
		"ranking: [":                          "tenant.yaml:1",
		"ranking: {adjust: [{by: 5}]}":        "tenant.yaml:1:20: the row has no server",
		"ranking: {classes: {a: much}}":       "tenant.yaml:1:",
		"ranking:\n  prefer: [{verb: read}]":  "tenant.yaml:2:",
		"tenant: acme\nranking: {prefer: no}": "tenant.yaml:2:",
	} {
		if _, err := readDraft("tenant.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"tenant: acme\n", "tenant: acme\nranking:\n"} {
		was, err := readDraft("tenant.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		d, _ := parseDraft(was.String())
		_ = d.move("class/in/paid", nil)
		if got, err := applyDraft("tenant.yaml", []byte(text), d.editsFrom(was)); err != nil || !strings.HasPrefix(string(got), "tenant: acme\nranking:") || !strings.Contains(string(got), "classes: [paid]") {
			t.Errorf("%q becomes %q: %v", text, got, err)
		}
	}
	was, _ := readDraft("tenant.yaml", []byte("tenant: acme\nranking: {classes: [a]}\n"))
	if got, err := applyDraft("tenant.yaml", []byte("tenant: acme\nranking: {classes: [a]}\n"), (&rankingDraft{}).editsFrom(was)); err != nil || string(got) != "tenant: acme\n" {
		t.Errorf("without a ranking: %q %v", got, err)
	}
}
