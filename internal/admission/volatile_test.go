package admission

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// built is the offer of a server that writes the number of its build into each definition.
func built(number, description string) switchboard.Offer {
	meta := `,"_meta":{"note":"n","build":` + number + `}}`
	o := switchboard.Offer{Server: "s", Tools: [][]byte{[]byte(`{"name":"look","description":"` + description + `"` + meta)}}
	o.Prompts = [][]byte{[]byte(`{"name":"review"` + meta)}
	o.Templates = [][]byte{[]byte(`{"uriTemplate":"x://{a}","name":"x"` + meta)}
	return o
}

// volatile says that keys of _meta change all the time.
func volatile(keys ...string) OfferTerms {
	return OfferTerms{Rules: switchboard.AdmissionRules{Volatile: keys}}
}

// passed returns all that is passed on of the three definitions.
func passed(o switchboard.Offer) string {
	var all []string
	for _, list := range [][][]byte{o.Tools, o.Prompts, o.Templates} {
		for _, object := range list {
			all = append(all, string(object))
		}
	}
	return strings.Join(all, " ")
}

func TestWhatChangesAllTheTimeDoesNotFreezeWhereTheOperatorSaysSo(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after OfferTerms // the first sight; the second offer
		next          switchboard.Offer
		passed        string // of the _meta
		state         string
	}{
		{"nothing is said", OfferTerms{}, OfferTerms{}, built("2", "looks"), `"_meta":{"note":"n","build":1}`, "frozen words: _meta.build"},
		{"it is said from the beginning", volatile("build"), volatile("build"), built("2", "looks"), `"_meta":{"note":"n"}`, ""},
		{"it is said later", OfferTerms{}, volatile("build"), built("2", "looks"), `"_meta":{"note":"n","build":1}`, ""},
		{"it is not said any more", volatile("build"), OfferTerms{}, built("2", "looks"), `"_meta":{"note":"n"}`, ""},
		{"another key is said", volatile("build"), volatile("note"), built("2", "looks"), `"_meta":{"note":"n"}`, ""},
		{"the wrong key is said", volatile("note"), volatile("note"), built("2", "looks"), `"_meta":{"build":1}`, "frozen words: _meta.build"},
		{"more changes", volatile("build"), volatile("build"), built("2", "peeks"), `"_meta":{"note":"n"}`, "frozen words: description"},
		{"nothing changes", volatile("build"), volatile("build"), built("1", "looks"), `"_meta":{"note":"n"}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen := Judge(built("1", "looks"), &ServerPins{}, Reports{}, tt.before, day, nil)
			j := Judge(tt.next, seen.Pins, Reports{}, tt.after, day, nil)
			if was, is := passed(seen.Offer), passed(j.Offer); was != is {
				t.Errorf("at first %s is passed on, and then %s", was, is)
			}
			if n := strings.Count(passed(j.Offer), tt.passed); n != 3 {
				t.Errorf("%s is passed on; want %s in each of three", passed(j.Offer), tt.passed)
			}
			_, a := look(t, j)
			if got := strings.TrimPrefix(strings.TrimSuffix(a.Why, "); the admitted one stays in use"), "its server offers another definition ("); a.State != switchboard.LifeActive || a.Frozen && "frozen "+got != tt.state || a.Frozen != (tt.state != "") {
				t.Errorf("the tool is %+v, want %q", a, tt.state)
			}
			for k, p := range j.Pins.Pins {
				if digest, err := DigestOf([]byte(p.Definition)); err != nil || digest[3:] != p.Digest[len(p.Digest)-64:] {
					t.Errorf("the digest %s of %v is not of %s", p.Digest, k, p.Definition)
				}
			}
		})
	}
}

// The file has digests alone. Under strict trust a fresh store knows no other bytes.
func TestAFileLetsInWhatItsDigestIsOf(t *testing.T) {
	offered := built("7", "looks")
	without, err := DigestOf(built("1", "looks").Tools[0], "build")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := DigestOf(built("7", "looks").Tools[0])
	if err != nil {
		t.Fatal(err)
	}
	old, err := DigestOf(built("6", "looks").Tools[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, digest string
		keys         []string
		state        switchboard.LifeState
		passed       string
	}{
		{"a digest without the key", without, []string{"build"}, switchboard.LifeActive, `{"note":"n"}`},
		{"a digest without the key, which counts again", without, nil, switchboard.LifeActive, `{"note":"n"}`},
		{"a digest of the whole", whole, nil, switchboard.LifeActive, `{"note":"n","build":7}`},
		{"a digest of the whole, before the key was named", whole, []string{"build"}, switchboard.LifeActive, `{"note":"n","build":7}`},
		{"a digest of another whole", old, []string{"build"}, switchboard.LifeSuspended, `"note":"n"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			terms := volatile(tt.keys...)
			terms.Rules.Trust = switchboard.TrustStrict
			terms.Entries = map[PinKey]switchboard.AdmittedPin{tool("look"): {Digest: tt.digest, State: switchboard.LifeActive, By: "ann", At: day}}
			j := Judge(offered, &ServerPins{}, Reports{}, terms, day, nil)
			if definition, a := look(t, j); a.State != tt.state || !strings.Contains(definition, tt.passed) {
				t.Errorf("it is %+v, and %s is passed on", a, definition)
			}
			if tt.state != switchboard.LifeActive {
				return
			}
			// A definition that was seen first counts as far as the file has let it in.
			seen := Judge(offered, &ServerPins{}, Reports{}, OfferTerms{}, day, nil)
			if definition, a := look(t, Judge(offered, seen.Pins, Reports{}, terms, day, nil)); a.State != tt.state || !strings.Contains(definition, tt.passed) {
				t.Errorf("after the first sight it is %+v, and %s is passed on", a, definition)
			}
		})
	}
}

func TestAPersonAcceptsWithoutWhatIsLeftOut(t *testing.T) {
	seen := Judge(built("1", "looks"), &ServerPins{}, Reports{}, OfferTerms{}, day, nil)
	terms := volatile("build", "time")
	var digests []string
	var reports Reports
	for _, number := range []string{"2", "3"} {
		j := Judge(built(number, "peeks"), seen.Pins, reports, terms, day, nil)
		other := j.Others[tool("look")]
		if strings.Contains(other.Definition, "build") || !strings.Contains(other.Definition, "peeks") {
			t.Errorf("what can be accepted is %s", other.Definition)
		}
		digests, reports.Own = append(digests, other.Digest), j.Others
	}
	if digests[0] != digests[1] || !strings.HasPrefix(digests[0], "d2:build:") {
		t.Errorf("the digests are %s, want equal ones without the build", digests)
	}
}

func TestLeftOutKeysDoNotHideWhatCannotBeRead(t *testing.T) {
	for _, definition := range []string{`{"name":"a","_meta":{"build":1,"build":2}}`, `{"name":"a","_meta":{"build":"\ud800"}}`} {
		if d, err := DigestOf([]byte(definition), "build"); err == nil {
			t.Errorf("%s has the digest %s", definition, d)
		}
	}
	for _, definition := range []string{`{"name":"a"}`, `{"name":"a","_meta":[]}`, `{"name":"a","_meta":{"other":1}}`, `"text"`} {
		whole, err := DigestOf([]byte(definition))
		if d, failed := DigestOf([]byte(definition), "build"); err != nil || failed != nil || d != whole {
			t.Errorf("%s has the digests %s and %s", definition, whole, d)
		}
	}
}

func TestClientsGetTheRestOfADefinitionAsItsServerWritesIt(t *testing.T) {
	const rest = `{"name":"look", "inputSchema":{"type":"object"}, "description":"1 < 2 & 3\u00e9"`
	for meta, want := range map[string]string{
		`,"_meta":{"time":1,"note" : "<n>","build":2}}`: `,"_meta":{"note" : "<n>"}}`,
		`,"_meta":{"build":2}}`:                         `}`,
		`,"_meta":{"build":2}, "a":1}`:                  `, "a":1}`,
		`,"_meta":{"note":2, "a":1}}`:                   `,"_meta":{"note":2, "a":1}}`,
	} {
		o := switchboard.Offer{Server: "s", Tools: [][]byte{[]byte(rest + meta)}}
		seen := Judge(o, &ServerPins{}, Reports{}, volatile("build", "time"), day, nil)
		again := Judge(o, seen.Pins, Reports{}, volatile("build", "time"), day, nil)
		for _, j := range []JudgedOffer{seen, again} {
			if definition := string(j.Offer.Tools[0]); definition != rest+want {
				t.Errorf("of %s, %s is passed on want %s", o.Tools[0], definition, rest+want)
			}
		}
	}
}
