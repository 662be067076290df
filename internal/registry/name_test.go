package registry

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
)

func entry(name, pkg string) Entry {
	e := Entry{Registry: "corp", Name: name, Version: "1.0.0"}
	if pkg != "" {
		e.Package = packagelock.Spec{Name: pkg, Version: "1.0.0"}
	}
	return e
}

func TestNamesThatDeceiveGetRemarks(t *testing.T) {
	for name, c := range map[string]struct {
		entries    []Entry
		configured []string
		want       []string // ENTRY RULE OTHER
	}{
		"honest names": {
			entries: []Entry{
				entry("io.github.alice/weather", "@alice/weather"), entry("io.github.alice/weather-2", "@alice/weather-2"), entry("io.github.bob/mail-reader", "mail-reader"),
				entry("com.acme/files", "@acme/files"), entry("IO.GitHub.Carol/tools", "@carol/tools"), entry("io.github.alice/hosted", ""),
			},
			configured: []string{"weather", "@alice/weather", "files"},
		},
		"a namespace that does not own the scope": {
			entries: []Entry{entry("io.github.alice/thing", "@bob/thing"), entry("com.example.acme/thing", "@acme/other"), entry("io.github/thing", "@alice/third"), entry("io.github.alice/fourth", "@github/fourth"), entry("app.vercel.mallory/fifth", "@vercel/fifth")},
			want: []string{
				"io.github.alice/thing namespace ", "com.example.acme/thing namespace ", "io.github/thing namespace ", "io.github.alice/fourth namespace ", "app.vercel.mallory/fifth namespace ",
			},
		},
		"one letter off a configured package": {
			entries:    []Entry{entry("io.github.mallory/pay", "@acme/paiments"), entry("com.acme/payments", "@acme/payments")},
			configured: []string{"@acme/payments"},
			want:       []string{"io.github.mallory/pay namespace ", "io.github.mallory/pay imitates @acme/payments", "com.acme/payments alike @acme/paiments"},
		},
		"one letter off a configured server": {
			entries:    []Entry{entry("io.github.mallory/githbu-server", "thing")},
			configured: []string{"other", "github-server"},
			want:       []string{"io.github.mallory/githbu-server imitates github-server"},
		},
		"one letter off another entry, and nothing says which is the original": {
			entries: []Entry{entry("io.github.alice/a", "weather"), entry("io.github.mallory/b", "weahter")},
			want:    []string{"io.github.alice/a alike weahter", "io.github.mallory/b alike weather"},
		},
		"one letter off an entry whose namespace owns its package": {
			entries: []Entry{entry("io.github.mallory/thing", "@acmecrop/thing"), entry("io.github.acmecorp/thing", "@acmecorp/thing")},
			want:    []string{"io.github.mallory/thing namespace ", "io.github.mallory/thing imitates @acmecorp/thing", "io.github.acmecorp/thing alike @acmecrop/thing"},
		},
		"a look-alike letter": {
			entries: []Entry{entry("io.github.alice/mailer", ""), entry("io.github.a1ice/mailer", ""), entry("io.github.alice/rnailer", "")},
			want:    []string{"io.github.alice/mailer alike io.github.a1ice/mailer", "io.github.a1ice/mailer alike io.github.alice/mailer", "io.github.alice/mailer alike io.github.alice/rnailer", "io.github.alice/rnailer alike io.github.alice/mailer"},
		},
		"each version of an entry": {
			entries: []Entry{entry("io.github.alice/one", "weather"), entry("io.github.alice/one", "weather"), entry("io.github.bob/two", "weathre")},
			want:    []string{"io.github.alice/one alike weathre", "io.github.alice/one alike weathre", "io.github.bob/two alike weather"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range CheckNames(c.entries, c.configured) {
				got = append(got, fmt.Sprintf("%s %s %s", r.Entry, r.Rule, r.Other))
				if r.Registry != "corp" || r.Version != "1.0.0" || r.Text == "" {
					t.Errorf("%+v", r)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q\nwant %q", got, c.want)
			}
		})
	}
}

// A registry can list names that are alike in all places but one.
func TestManyAlikeNamesAreCheckedInTime(t *testing.T) {
	entries := make([]Entry, MaxEntries)
	for i := range entries {
		entries[i] = entry(fmt.Sprintf("io.github.a%c%c%c%c%05d/thing", 'a'+i%26, 'a'+i/26%26, 'a'+i/676%26, 'a'+i/17576, i), "")
	}
	begin := time.Now()
	CheckNames(entries, []string{"thing"})
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %s", took)
	} else {
		t.Log(took)
	}
}

func TestNamesThatAreNotComparedSaySo(t *testing.T) {
	entries := make([]Entry, maxCompared+2)
	for i := range entries {
		entries[i] = entry(fmt.Sprintf("io.github.a%d/%d-%d-%d", i, i, i, i), "")
	}
	entries[maxCompared+1].Name = "io.github.mallory/payment" // is compared with what is configured all the same
	var got []string
	for _, r := range CheckNames(entries, []string{"payments-", "paymnet"}) {
		got = append(got, fmt.Sprintf("%s %s %s", r.Entry, r.Rule, r.Other))
	}
	if want := []string{"io.github.mallory/payment imitates paymnet", entries[maxCompared].Name + " unchecked ", "io.github.mallory/payment unchecked "}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestOnlyThePackageProvesThatItBelongsToTheName(t *testing.T) {
	thing := entry("io.github.alice/thing", "thing")
	for mcpName, want := range map[string]string{
		"io.github.alice/thing":       "",
		"":                            "does not name its server",
		"io.github.bob/thing":         `says that it belongs to "io.github.bob/thing"`,
		"io.github.Alice/thing":       "says that it belongs to",
		"io.github.alice/thing\u202e": `thing\u{202e}", and not`,
		strings.Repeat("a", 100_000):  "…",
		"io.github.alice/thing@1.0.0": "says that it belongs to",
		" io.github.alice/thing":      "says that it belongs to",
	} {
		err := OwnsPackage(thing, mcpName)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || len(err.Error()) > 1000) {
			t.Errorf("%.40q: %v", mcpName, err)
		}
	}
	if OwnsPackage(entry("io.github.alice/hosted", ""), "io.github.alice/hosted") == nil {
		t.Error("an entry without a package owns one")
	}
}
