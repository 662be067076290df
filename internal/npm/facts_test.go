package npm_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/npm"
	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
)

func TestFactsAreThoseOfTheExactVersion(t *testing.T) {
	r := publish(t)
	r.Publish(t, "named", "1.0.0", map[string]string{"index.js": "", "package.json": `{"mcpName":"io.github.alice/named"}`}, nil)
	r.Publish(t, "named", "1.1.0", map[string]string{"index.js": "", "package.json": `{"mcpName":"io.github.alice/other","deprecated":"` + strings.Repeat("use it not. ", 100) + `"}`}, nil)
	f, err := npm.Facts(t.Context(), packagelock.Spec{Name: "named", Version: "1.0.0"})
	if err != nil || f.McpName != "io.github.alice/named" || f.Deprecated != "" || !strings.HasPrefix(f.Integrity, "sha512-") || f.String() != "named@1.0.0" {
		t.Errorf("%+v %v", f, err)
	}
	f, err = npm.Facts(t.Context(), packagelock.Spec{Name: "named", Version: "1.1.0"})
	if err != nil || f.McpName != "io.github.alice/other" || len([]rune(f.Deprecated)) != 500 || !strings.HasPrefix(f.Deprecated, "use it not.") {
		t.Errorf("%+v %v", f, err)
	}
	if f, err := npm.Facts(t.Context(), packagelock.Spec{Name: "greeter", Version: "1.0.0"}); err != nil || f.McpName != "" || f.Deprecated != "" {
		t.Errorf("%+v %v", f, err)
	}
	for spec, want := range map[packagelock.Spec]string{
		{Name: "named", Version: "1.2.0"}: "npm view: ",
		{Name: "none", Version: "1.0.0"}:  "E404",
	} {
		if f, err := npm.Facts(t.Context(), spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v %v, want %s", spec, f, err, want)
		}
	}
}

// fakeClient makes a program that prints a text the npm of this test.
func fakeClient(t *testing.T, script string) (ran string) {
	t.Helper()
	dir := t.TempDir()
	ran = filepath.Join(dir, "ran")
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\ntouch "+ran+"\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return ran
}

func TestFactsThatDoNotFitTheQuestionAreRefused(t *testing.T) {
	const hash = `"dist.integrity":"sha512-` + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==" + `"`
	thing := packagelock.Spec{Name: "thing", Version: "1.0.0"}
	for script, want := range map[string]string{
		`echo '{"name":"thing","version":"1.0.0",` + hash + `}'`:                                              "",
		`echo '{"name":"other","version":"1.0.0",` + hash + `}'`:                                              `speaks of "other@1.0.0"`,
		`echo '{"name":"thing","version":"1.0.1",` + hash + `}'`:                                              `speaks of "thing@1.0.1"`,
		`echo '{"name":"thing","version":"1.0.0","dist.integrity":"sha1-x"}'`:                                 "no integrity value",
		`echo '{"name":"thing","version":"1.0.0"}'`:                                                           "no integrity value",
		`echo '{"name":"thing","version":"1.0.0",` + hash + `,"mcpName":"` + strings.Repeat("a", 201) + `"}'`: "longer than 200 bytes",
		`echo '{"name":"thing","version":"1.0.0",` + hash + `,"mcpName":["a"]}'`:                              "does not say what thing@1.0.0 is",
		`echo '[]'`:                 "does not say what thing@1.0.0 is",
		`head -c 2000000 /dev/zero`: "prints more than 1048576 bytes",
		`head -c 2000000 /dev/zero | tr '\0' x >&2; exit 1`: "npm view: exit status 1: xxx",
	} {
		fakeClient(t, script)
		_, err := npm.Facts(t.Context(), thing)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || len(err.Error()) > 5000) {
			t.Errorf("%.80s: %.300v, want %q", script, err, want)
		}
	}
	ran := fakeClient(t, "")
	for _, spec := range []packagelock.Spec{
		{},
		{Name: "thing"},
		{Version: "1.0.0"},
		{Name: "-thing", Version: "1.0.0"},
		{Name: "--eval", Version: "1.0.0"},
		{Name: "thing", Version: "latest"},
		{Name: "thing", Version: "^1.0.0"},
		{Name: "../thing", Version: "1.0.0"},
		{Name: "thing@2.0.0", Version: "1.0.0"},
		{Name: "thing", Version: "1.0.0 --eval"},
	} {
		if _, err := npm.Facts(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "is no package with an exact version") {
			t.Errorf("%+v: %v", spec, err)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("npm ran for a name that it could take for something else")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := npm.Facts(ctx, thing); err == nil {
		t.Error("a question that its caller has ended is no error")
	}
}
