package app

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/test/law"
)

func TestReplicasWithTheSameConfigurationHaveTheSameDigest(t *testing.T) {
	law.Hold(t, law.Deterministic)
	pin, folder := "", ""
	digest := func(key, top, server, tenant, secret, rego string) string {
		t.Helper()
		lock := &fstest.MapFile{Data: []byte(pin + "end\n")}
		c, err := config.Load(t.Context(), folder+"switchboard.yaml", config.Options{FS: fstest.MapFS{
			"switchboard.yaml":         {Data: []byte(top + "servers: {a: {transport: stdio, command: [a], " + server + "}}\ntenants: {acme: {servers: [a]}}\n")},
			"secret":                   {Data: []byte(secret)},
			"admitted.lock":            lock,
			"policies/all.rego":        {Data: []byte("package switchboard\nallowed_tools contains \"*\"\n" + rego)},
			"tenants/acme/tenant.yaml": {Data: []byte("tenant: acme\n" + tenant)},
		}, Env: func(string) (string, bool) { return "what all of them know", true }})
		if err != nil {
			t.Fatal(err)
		}
		r, err := compilePolicies(c, policy.NewEngine(0, 0), newCompiledLayers(nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(r.digestWith([]byte(key)))
	}
	const env = `env: {TOKEN: "${file:secret}"}`
	pinned := func(state string) string {
		pin = "a/x " + state + " ann 2026-05-03T10:00:00Z d1:" + strings.Repeat("0", 64) + "\n"
		defer func() { pin = "" }()
		return digest("k", "", env, "", "xyzzy", "")
	}
	one := digest("k", "", env, "", "xyzzy", "")
	if pinned("active") == one || pinned("active") == pinned("suspended") {
		t.Error("the digest does not say which pins there are")
	}
	folder = "elsewhere/"
	if two := digest("k", "", env, "", "xyzzy", ""); two != one {
		t.Errorf("in another folder: %s, where it was %s", two, one)
	}
	folder = ""
	for name, tt := range map[string]struct {
		got  string
		same bool
	}{
		"read again":        {digest("k", "", env, "", "xyzzy", ""), true},
		"another address":   {digest("k", "listen: 127.0.0.1:1\nreceipts: {anchor: elsewhere}\n", env, "", "xyzzy", ""), true},
		"as replicas":       {digest("k", "store: redis://r:1\ncluster: {secret: \"${env:S}\", listen: \":1\", advertise: \"r:1\"}\n", env, "", "xyzzy", ""), true},
		"a comment":         {digest("k", "# here\n", env, "", "xyzzy", ""), true},
		"another grace":     {digest("k", "grace: 11s\n", env, "", "xyzzy", ""), false},
		"another trust":     {digest("k", "admission: {trust: strict}\n", env, "", "xyzzy", ""), false},
		"another server":    {digest("k", "", env+", timeout: 9s", "", "xyzzy", ""), false},
		"another secret":    {digest("k", "", env, "", "plugh", ""), false},
		"another tenant":    {digest("k", "", env, "mode: observe\n", "xyzzy", ""), false},
		"another policy":    {digest("k", "", env, "", "xyzzy", "deny[\"a/x\"] contains \"no\"\n"), false},
		"of other replicas": {digest("l", "", env, "", "xyzzy", ""), false},
	} {
		if (tt.got == one) != tt.same {
			t.Errorf("%s: %s, where it was %s", name, tt.got, one)
		}
	}
}
