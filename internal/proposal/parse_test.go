package proposal

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

const goodDraft = `note: searches go to b
files:
  - path: tenants/acme/tenant.yaml
    text: |
      tenant: acme
      ranking: {prefer: [{verb: search, resource: internet, servers: [b]}]}
  - {path: tenants/acme/tasks/old.yaml, delete: true}
claims:
  - {tenant: acme, task: browse, meets: "search:internet", by: b/search}
  - {tenant: acme, task: browse, lists: b/search}
  - {tenant: acme, task: browse, hides: a/search}
  - {tenant: acme, unchanged: true}
  - {tenant: acme, decisions: 7, changes: [{change: moved, task: browse, tool: b/search}]}
`

func TestADraftIsReadFromYAMLAndJSONAlike(t *testing.T) {
	d, err := Parse("p.yaml", []byte(goodDraft))
	if err != nil || len(d.Files) != 2 || !strings.HasPrefix(*d.Files[0].Text, "tenant: acme\nranking:") || !d.Files[1].Delete || len(d.Claims) != 5 || d.Claims[4].Changes[0].Tool != "b/search" {
		t.Fatalf("%+v, %v", d, err)
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	same, err := Parse("p.json", text)
	if err != nil || !reflect.DeepEqual(same, d) {
		t.Errorf("%+v, %v", same, err)
	}
}

func TestADraftWithAFaultIsRefusedWithItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "p.yaml",
		"note: x\n":                    `"files" is missing`,
		"note: x\nfile: []\n":          `did you mean "files"?`,
		"note: x\nfiles: [{pth: y}]\n": `did you mean "path"?`,
		"note: x\nfiles: [{path: y, text: a}]\nclaims: [{tenant: acme}]\n":                "p.yaml:3:10: claims: make one statement",
		"note: x\nfiles: [{path: y, text: a}]\nclaims: [{tenant: acme, list: a/b}]\n":     `did you mean "lists"?`,
		"note: x\nfiles: [{path: y, text: a}]\nclaims: [{tenant: acme, decisions: 99}]\n": "99",
		"note: yes\nfiles: [{path: y, text: a}]\n":                                        "quotes",
		"note: x\nnote: y\nfiles: [{path: y, text: a}]\n":                                 "twice",
		"note: x\nfiles: [{path: y, text: a, delete: true}]\n":                            "give its text, or delete",
		"{\"note\": \"x\", \"files\": 1}":                                                 "want a list",
		strings.Repeat("#", maxDraftBytes+1):                                              "at most",
	} {
		if _, err := Parse("p.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
}

// A draft that is read is a good one, and is read again from its JSON.
func FuzzParse(f *testing.F) {
	f.Add([]byte(goodDraft))
	f.Add([]byte(`{"note":"x","files":[{"path":"a","text":""}],"claims":[{"tenant":"acme","unchanged":true}]}`))
	f.Add([]byte("note: x\nfiles: [{path: y, text: a}]\nclaims: [{tenant: acme, decisions: 1, changes: []}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse("p", data)
		if err != nil {
			return
		}
		if err := d.check(); err != nil {
			t.Fatalf("it is read, and refused: %v", err)
		}
		for i := range d.Claims {
			if d.Claims[i].String() == "" {
				t.Fatal("a claim says nothing")
			}
		}
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Parse("p", text); err != nil || again.digest() != d.digest() {
			t.Fatalf("%s is read as another one: %v", text, err)
		}
	})
}
