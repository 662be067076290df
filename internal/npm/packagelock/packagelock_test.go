package packagelock_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
)

var integrity = "sha512-" + strings.Repeat("A", 86) + "=="

// lock returns the text of a lock file with more packages, by folder.
func lock(more string) string {
	return fmt.Sprintf(`{"lockfileVersion":3,"packages":{"":{"dependencies":{"greeter":"1.0.0"}},"node_modules/greeter":{"version":"1.0.0","integrity":%q,"bin":{"greeter":"index.js","aside":"bin/aside.js"}}%s}}`, integrity, more)
}

func TestASpecNamesOneVersion(t *testing.T) {
	for text, want := range map[string]packagelock.Spec{
		"greeter@1.0.0":         {Name: "greeter", Version: "1.0.0"},
		"@scope/greeter@1.0.0":  {Name: "@scope/greeter", Version: "1.0.0"},
		"a@1.0.0-rc.1+build.5":  {Name: "a", Version: "1.0.0-rc.1+build.5"},
		"greeter":               {},
		"@scope/greeter":        {},
		"greeter@":              {},
		"greeter@latest":        {},
		"greeter@^1.0.0":        {},
		"greeter@1.0":           {},
		"greeter@1.0.0 || 2":    {},
		"Greeter@1.0.0":         {},
		"../greeter@1.0.0":      {},
		"a/b@1.0.0":             {},
		"--flag@1.0.0":          {Name: "--flag", Version: "1.0.0"}, // as npm takes it; it never stands where npm looks for flags
		"http://x/y@1.0.0":      {},
		"greeter@file:../other": {},
	} {
		got, err := packagelock.ParseSpec(text)
		if got != want && want != (packagelock.Spec{}) || (err == nil) != (want != packagelock.Spec{}) {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
}

func TestALockThatDoesNotSayWhatRunsIsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"no JSON":                 {"{", "it is no JSON of that form"},
		"an old one":              {strings.Replace(lock(""), `:3`, `:1`, 1), "npm 7 or later"},
		"two packages":            {strings.Replace(lock(""), `"1.0.0"}}`, `"1.0.0","other":"1.0.0"}}`, 1), "must name one package"},
		"a range":                 {strings.Replace(lock(""), `"greeter":"1.0.0"`, `"greeter":"^1.0.0"`, 1), "no exact version"},
		"another version":         {strings.Replace(lock(""), `"greeter":"1.0.0"`, `"greeter":"1.0.1"`, 1), "does not have greeter@1.0.1 itself"},
		"without integrity":       {lock(`,"node_modules/a":{"version":"1.0.0"}`), "node_modules/a: it has no integrity value"},
		"an old kind of hash":     {lock(`,"node_modules/a":{"version":"1.0.0","integrity":"sha1-AAAA"}`), "node_modules/a: it has no integrity value"},
		"an address":              {lock(`,"node_modules/a":{"version":"1.0.0","resolved":"git+https://example.com/a.git","integrity":"` + integrity + `"}`), "node_modules/a: it names an address"},
		"a version that is none":  {lock(`,"node_modules/a":{"version":"https://example.com/a.tgz","integrity":"` + integrity + `"}`), "node_modules/a: it has no exact version"},
		"a lock within":           {lock(`,"node_modules/a":{"version":"1.0.0","hasShrinkwrap":true,"integrity":"` + integrity + `"}`), "node_modules/a: it has a lock of its own"},
		"bundled by nobody":       {lock(`,"node_modules/a":{"version":"1.0.0","inBundle":true}`), "node_modules/a: it is said to come in the file of another package"},
		"bundled by another":      {lock(`,"node_modules/greeter/node_modules/a":{"version":"1.0.0","inBundle":true}`), "node_modules/greeter/node_modules/a: it is said to come"},
		"itself bundled":          {strings.Replace(lock(""), `"integrity"`, `"inBundle":true,"integrity"`, 1), "does not have greeter@1.0.0 itself"},
		"an alias of itself":      {strings.Replace(lock(""), `"version"`, `"name":"evil","version"`, 1), "does not have greeter@1.0.0 itself"},
		"a link":                  {lock(`,"node_modules/a":{"link":true,"resolved":"../a"}`), "node_modules/a: it is a link"},
		"a folder above":          {lock(`,"node_modules/../../a":{"version":"1.0.0","integrity":"` + integrity + `"}`), "no folder below node_modules"},
		"a folder elsewhere":      {lock(`,"packages/a":{"version":"1.0.0","integrity":"` + integrity + `"}`), "no folder below node_modules"},
		"a program of the system": {strings.Replace(lock(""), "index.js", "../../../../bin/sh", 1), `its program "greeter" is outside`},
		"too long":                {lock(strings.Repeat(" ", packagelock.MaxBytes)), "it has more than"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := packagelock.Read([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestTheDigestOfALockIsThatOfWhatRuns(t *testing.T) {
	read := func(text string) *packagelock.Lock {
		t.Helper()
		l, err := packagelock.Read([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	own := read(lock(""))
	if got := own.ProgramNames(); fmt.Sprint(got) != "[aside greeter]" {
		t.Errorf("its programs are %v", got)
	}
	bundled := `,"node_modules/b":{"version":"1.0.0","integrity":"` + integrity + `","bundleDependencies":["a"]},"node_modules/b/node_modules/a":{"version":"1.0.0","inBundle":true}`
	alias := `,"node_modules/a":{"name":"b","version":"1.0.0","integrity":"` + integrity + `"}`
	for text, same := range map[string]bool{
		strings.Replace(lock(""), `"lockfileVersion"`, `"name":"x","lockfileVersion"`, 1): true,
		strings.Replace(lock(""), `"index.js"`, `"other.js"`, 1):                          false,
		lock(alias):   false,
		lock(bundled): false,
		strings.Replace(lock(""), integrity, "sha512-"+strings.Repeat("B", 86)+"==", 1): false,
	} {
		if l := read(text); (l.Digest() == own.Digest()) != same {
			t.Errorf("%s has the same digest: %v", text, !same)
		}
	}
}

func TestTheDifferencesOfTwoLocksAreNamed(t *testing.T) {
	row := func(folder, version, sum string) string {
		return fmt.Sprintf(`,"node_modules/%s":{"version":%q,"integrity":"sha512-%s==","hasInstallScript":%v}`, folder, version, strings.Repeat(sum, 86), folder == "new")
	}
	was, err := packagelock.Read([]byte(lock(row("changed", "1.0.0", "A") + row("other", "1.0.0", "A") + row("gone", "1.0.0", "A") + row("same", "1.0.0", "A"))))
	if err != nil {
		t.Fatal(err)
	}
	now, err := packagelock.Read([]byte(lock(row("changed", "1.0.1", "B") + row("other", "1.0.0", "B") + row("new", "1.0.0", "A") + row("same", "1.0.0", "A"))))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(packagelock.Compare(was, now))
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"name":"changed","before":"1.0.0","after":"1.0.1"},{"name":"gone","before":"1.0.0"},{"name":"new","after":"1.0.0","wanted_scripts":true},{"name":"other","before":"1.0.0","after":"1.0.0","other":true}]`
	if string(got) != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	if all := packagelock.Compare(nil, now); len(all) != len(now.Packages) {
		t.Errorf("from nothing there are %d changes, want %d", len(all), len(now.Packages))
	}
}

// FuzzRead feeds texts to Read. What it accepts has one exact version, folders below node_modules, and a digest that does not depend on the spelling of the file.
func FuzzRead(f *testing.F) {
	f.Add(lock(""))
	f.Add(lock(`,"node_modules/b":{"version":"1.0.0","integrity":"` + integrity + `","bundleDependencies":["a"]},"node_modules/b/node_modules/a":{"version":"1.0.0","inBundle":true}`))
	f.Add(`{"lockfileVersion":2,"packages":{}}`)
	f.Fuzz(func(t *testing.T, text string) {
		l, err := packagelock.Read([]byte(text))
		if err != nil {
			return
		}
		if !packagelock.IsName(l.Spec.Name) || !packagelock.IsVersion(l.Spec.Version) {
			t.Errorf("it names %q", l.Spec)
		}
		for folder := range l.Packages {
			if !strings.HasPrefix(folder, "node_modules/") || strings.Contains("/"+folder+"/", "/../") {
				t.Errorf("it has the folder %q", folder)
			}
		}
		var any any
		if err := json.Unmarshal([]byte(text), &any); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(any)
		if err != nil {
			t.Fatal(err)
		}
		if other, err := packagelock.Read(again); err == nil && other.Digest() != l.Digest() {
			t.Errorf("spelt otherwise, the digest is another one: %s", again)
		}
	})
}

func TestWhatNPMHasInstalledIsWhatTheLockNames(t *testing.T) {
	l, err := packagelock.Read([]byte(lock(`,"node_modules/a":{"version":"1.0.0","integrity":"` + integrity + `","optional":true}`)))
	if err != nil {
		t.Fatal(err)
	}
	own := `"node_modules/greeter":{"version":"1.0.0","integrity":"` + integrity + `"}`
	for text, want := range map[string]string{
		`{"packages":{` + own + `}}`: "",
		`{"packages":{` + own + `,"node_modules/a":{"version":"1.0.0","integrity":"` + integrity + `"}}}`: "",
		`{"packages":{` + own + `,"node_modules/b":{"version":"1.0.0","integrity":"` + integrity + `"}}}`: "node_modules/b, which is not in the lock",
		`{"packages":{` + own + `,"node_modules/a":{"version":"1.0.1","integrity":"` + integrity + `"}}}`: "another node_modules/a",
		`{"packages":{` + own + `,"node_modules/a":{"version":"1.0.0"}}}`:                                 "another node_modules/a",
		`{"packages":{}}`: "has not installed greeter@1.0.0",
		`[]`:              "npm does not say",
	} {
		if err := l.Installed([]byte(text)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestAnIntegrityValueHasTheSumOf64Bytes(t *testing.T) {
	for length, want := range map[int]bool{85: false, 86: true, 87: false} {
		if got := packagelock.IsIntegrity("sha512-" + strings.Repeat("a", length) + "=="); got != want {
			t.Errorf("%d characters of base64: %t", length, got)
		}
	}
}
