package config_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	_ "time/tzdata" // the zones in the files, on each machine

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/lockfile"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/token"
	"github.com/summit-switchboard/switchboard/test/configtest"
)

// archiveFS returns the files of an archive, without those named want….
func archiveFS(ar *txtar.Archive) fstest.MapFS {
	fsys := fstest.MapFS{}
	for _, f := range ar.Files {
		if !strings.HasPrefix(f.Name, "want") {
			fsys[f.Name] = &fstest.MapFile{Data: f.Data, Mode: 0o644}
		}
	}
	return fsys
}

// loadWithoutFaults is Load, but a fault in any part is an error.
func loadWithoutFaults(ctx context.Context, file string, o config.Options) (*config.Config, error) {
	c, err := config.Load(ctx, file, o)
	if err == nil {
		err = c.Err()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Each archive is a folder of configuration. Its file want holds the faults that Load reports, or what
// it read.
func TestLoad(t *testing.T) {
	configtest.Archives(t, "testdata/load/*.txtar", func(t *testing.T, ar *txtar.Archive) {
		c, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{
			FS: archiveFS(ar), Env: configtest.Env,
			Fetch: func(_ context.Context, url string, _ switchboard.Network) ([]byte, error) {
				if strings.Contains(url, "down") {
					return nil, errors.New("connection refused")
				}
				return []byte(`{"name": "fetched"}`), nil
			},
		})
		if err != nil {
			configtest.Golden(t, ar, "want", err.Error()+"\n")
			return
		}
		configtest.Golden(t, ar, "want", describe(t, c))
	})
}

func TestEveryNamedTokenizerExists(t *testing.T) {
	for _, name := range switchboard.Tokenizers {
		if _, err := token.New(name); err != nil {
			t.Error(err)
		}
	}
}

// describe returns a Config as text, one thing a line. The working directory is written as the folder
// /here.
func describe(t *testing.T, c *config.Config) string {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, w := range c.Warnings {
		say("warning: %s", w.String())
	}
	say("listen %s hosts %q origins %q start %v grace %v implied %v", c.Listen, c.Hosts, c.Origins, c.StartDeadline, c.Grace, c.Implied)
	if c.Log != (config.LogOutput{Format: config.LogText}) {
		say("log %s from %v to %s", c.Log.Format, c.Log.Level, strings.TrimPrefix(c.Log.To, here+"/"))
	}
	if c.Cache != (config.Cache{}) {
		say("cache ttl %s bytes %d", c.Cache.TTL, c.Cache.Bytes)
	}
	if c.Store.URL.Reveal() != "" || c.Store.Relaxed {
		say("store %s relaxed %t cluster %+v", c.Store.URL.Reveal(), c.Store.Relaxed, c.Cluster)
	}
	if c.Tokenizer != switchboard.Tokenizers[0] {
		say("tokenizer %s", c.Tokenizer)
	}
	for _, is := range c.Issuers {
		say("issuer %s %s sign in %+v", is.ID, is.URL, is.SignIn)
	}
	for _, to := range c.Recipients {
		say("recipient %+v", to)
	}
	for _, r := range c.ServerRegistries {
		say("registry %+v", r)
	}
	for _, p := range c.Claims {
		say("claim %+v", p)
	}
	for _, s := range c.Servers {
		say("server %+v", s)
	}
	for _, id := range slices.SortedFunc(maps.Keys(c.Admitted), lockfile.ComparePins) {
		p := c.Admitted[id]
		say("admitted %s: %s by %s at %s, %.8s…, successor %q", id, p.State, p.By, p.At, p.Digest, p.Successor)
	}
	for _, id := range slices.Sorted(maps.Keys(c.Manifests)) {
		say("manifest of %s: %s: %s", id, c.Manifests[id].Name, strings.TrimSpace(string(c.Manifests[id].Data)))
	}
	budgets := func(all []*switchboard.Budget) {
		for _, b := range all {
			zone := "UTC"
			if b.Location != nil {
				zone = b.Location.String()
			}
			say("  budget %s of %+v per %q limit %d calls %v window %s in %s warn %v, at %s", b.Name(), b.Match, b.Per, b.Limit, b.Calls, b.Window, zone, b.Warn, b.Position)
		}
	}
	if c.Currency != "" {
		say("currency %s", c.Currency)
	}
	overlays := func(of string, m map[switchboard.ToolID]switchboard.Overlay) {
		for _, id := range slices.SortedFunc(maps.Keys(m), switchboard.ToolID.Compare) {
			say("overlay of %s: %s: %v replace %v", of, id, m[id].Capabilities, m[id].Replace)
			if c := m[id].Contract; !c.Equal(&switchboard.Contract{}) {
				say("  contract {ReadOnly:%+v Idempotent:%+v Stateful:%+v Deterministic:%+v Timeout:%v Hurried:%v CostClass:%s}", c.ReadOnly, c.Idempotent, c.Stateful, c.Deterministic, c.Timeout, c.Hurried, c.CostClass)
				if c.Flow != (switchboard.Flow{}) {
					say("  flow %v by %s", c.Flow.Bits, c.Flow.Source)
				}
				if len(c.SideEffects)+len(c.RiskLevel)+len(c.ApprovalRequired) > 0 {
					say("  side effects %v risk %s approval %v", c.SideEffects, c.RiskLevel, c.ApprovalRequired)
				}
			}
			if p := m[id].Price; p != nil {
				say("  price %+v", *p)
			}
			if b := m[id].Budget; b != nil {
				budgets([]*switchboard.Budget{b})
			}
			if d := m[id].Redact; len(d) > 0 {
				say("  redact %v, at %s", d, m[id].RedactAt)
			}
			for _, d := range m[id].Equivalents {
				say("  equivalent %s map %v constants %s defaults %s drop %q, at %s", d.Tool, d.Map, d.Constants, d.Defaults, d.Drop, d.Position)
			}
		}
	}
	overlays("operator", c.Overlays)
	for _, id := range slices.Sorted(maps.Keys(c.Tenants)) {
		n := c.Tenants[id]
		say("tenant %s servers %s default %q by_name %v", n.ID, n.Servers, n.DefaultTask, n.ByName)
		if a := n.Approvals; a != (switchboard.ApprovalSettings{}) {
			say("  approvals %+v", a)
		}
		if n.Flows != "" {
			say("  flows %s", n.Flows)
		}
		if n.Mode != "" || n.Tier != "" || n.Roles != nil || n.Policy != nil {
			say("  mode %q tier %q roles %q policy %s", n.Mode, n.Tier, n.Roles, n.Policy)
		}
		if n.Trial != nil {
			say("  trial %s", n.Trial)
		}
		if n.Recipients != nil {
			say("  recipients of notices %s", n.Recipients)
		}
		budgets(n.Budgets)
		for _, id := range slices.Sorted(maps.Keys(n.Tasks)) {
			budgets(n.Tasks[id].Budgets)
		}
		if n.ResultBytes != 0 {
			say("  result_bytes %d", n.ResultBytes)
		}
		if n.TokenBudget != 0 || n.OnFull != "" || n.Declare != nil {
			say("  token_budget %d on_full %q declare %v", n.TokenBudget, n.OnFull, n.Declare)
		}
		for _, r := range n.Request {
			say("  request %v %q", &r.Requirement, r.Named)
		}
		if n.Permissions != nil || n.Models != nil {
			say("  permissions %s models %s", n.Permissions, n.Models)
		}
		say("  ranking %+v limits %+v", n.Ranking, n.Limits)
		for _, task := range slices.Sorted(maps.Keys(n.Tasks)) {
			if mode := n.Tasks[task].Mode; mode != "" {
				say("  task %s: mode %s", task, mode)
			}
			if bytes := n.Tasks[task].ResultBytes; bytes != 0 {
				say("  task %s: result_bytes %d", task, bytes)
			}
			if n.Tasks[task].TokenBudget != 0 {
				say("  task %s: token_budget %d", task, n.Tasks[task].TokenBudget)
			}
			for _, r := range n.Tasks[task].Requirements {
				say("  task %s: %s select %q optional %v as %q", n.Tasks[task].ID, r.String(), r.Select, r.Optional, r.As)
				if r.OnDemand {
					say("    on demand: group %s stub %s", r.Group, r.Stub)
				}
			}
		}
		overlays("tenant "+string(n.ID), n.Overlays)
	}
	for _, k := range c.Keys {
		say("key %s/%s %x tasks %s roles %q tier %q mode %s", k.Tenant, k.ID, k.Hash[:4], k.Tasks, k.Roles, k.Tier, k.Mode)
	}
	policies := func(of string, files []switchboard.PolicyFile) {
		say("policies of %s: %d files", of, len(files))
		for _, f := range files {
			say("  %s is %s: %q", f.Path, f.Name, f.Data)
		}
	}
	if c.Policies != nil {
		policies("operator", c.Policies)
	}
	for _, id := range slices.Sorted(maps.Keys(c.TenantPolicies)) {
		policies("tenant "+string(id), c.TenantPolicies[id])
	}
	for _, id := range c.Registry.IDs() {
		for _, v := range c.Registry.Versions(id) {
			f := v.Facts
			say("capability %s %s %s %s %s permissions %s models %s requires %s %s, at %s", v.Name(), v.Status, v.Verb, v.Resource, v.Constraints, v.Permissions, v.Models, v.Atoms, v.Capabilities, v.Position)
			say("  side effects %s risk %q cost %q %v approval %t %s fresh for %s", f.SideEffects, f.RiskLevel, f.CostClass, f.Price, f.ApprovalAsked, f.Approval, f.FreshFor)
			facts := map[string]*bool{"deterministic": f.Deterministic, "idempotent": f.Idempotent, "stateful": f.Stateful}
			for _, name := range slices.Sorted(maps.Keys(facts)) {
				if facts[name] != nil {
					say("  %s %t", name, *facts[name])
				}
			}
			if f.Budget != nil {
				budgets([]*switchboard.Budget{f.Budget})
			}
			for _, tool := range v.Tools {
				say("  %s", tool.Definition)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.Registry.Atoms)) {
		say("atom %+v", *c.Registry.Atoms[id])
	}
	for _, b := range c.Registry.Boundaries {
		say("boundary %+v", b)
	}
	for _, p := range c.Registry.Parties {
		say("party %+v", p)
	}
	say("resources %s constraints %s", c.Taxonomy.Resources(), c.Taxonomy.Constraints())
	say("watch %s", c.Watch)
	return strings.ReplaceAll(b.String(), here, "/here")
}

func TestAttack7WarnsAboutARedisWithoutPasswordOrTLS(t *testing.T) {
	const password, tls = `is used without a password`, `is used without TLS`
	for url, want := range map[string][]string{
		"redis://127.0.0.1:6379":                                        nil,
		"redis://localhost":                                             nil,
		"redis://[::1]:6379/1":                                          nil,
		"redis://[::ffff:127.0.0.1]:6379":                               nil,
		"rediss://user:secret-word@redis.example.com":                   nil,
		"redis://redis.example.com":                                     {`"redis.example.com" ` + tls, `"redis.example.com" ` + password},
		"redis://10.0.0.5:6379":                                         {`"10.0.0.5:6379" ` + tls, password},
		"redis://0.0.0.0":                                               {tls, password},
		"redis://localhost.example.com":                                 {tls, password},
		"redis://user@10.0.0.5":                                         {tls, password},
		"redis://:secret-word@10.0.0.5":                                 {tls},
		"redis://u:secret@word@10.0.0.5/0":                              {tls},
		"rediss://10.0.0.5":                                             {password},
		"redis+cluster://127.0.0.1:1,10.0.0.5:2,10.0.0.6:3":             {`"10.0.0.5:2" ` + tls, password},
		"rediss+sentinel://:secret-word@10.0.0.5,10.0.0.6/master-one/0": nil,
	} {
		archive := txtar.Parse([]byte("-- switchboard.yaml --\nservers:\n  a: {transport: stdio, command: [a]}\nstore: \"${env:STORE}\"\ncluster: {secret: \"${env:SECRET}\"}\n"))
		c, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: archiveFS(archive), Env: func(name string) (string, bool) {
			return map[string]string{"STORE": url, "SECRET": "what all replicas know"}[name], true
		}})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		ok := len(c.Warnings) == len(want)
		for i, w := range c.Warnings {
			if i >= len(want) || !strings.HasPrefix(w.String(), "switchboard.yaml:3:8: store: Redis at ") || !strings.Contains(w.String(), want[i]) || strings.Contains(w.String(), "word@") {
				ok = false
			}
		}
		if !ok {
			t.Errorf("%s: the warnings are %q, want %q", url, c.Warnings, want)
		}
	}
}

func TestAttack11SS01ST03AddressesOnTheLinkAndShellsAreWarnedOf(t *testing.T) {
	const link, text = "only this machine's own link reaches", "takes a text and runs it as a command"
	for row, want := range map[string]string{
		`{transport: http, url: "http://169.254.169.254/latest"}`:                link,
		`{transport: http, url: "http://[fe80::1]/mcp"}`:                         link,
		`{transport: http, url: "http://[fd00:ec2::254]/mcp"}`:                   link,
		`{transport: http, url: "http://[::ffff:169.254.1.1]/mcp"}`:              link,
		`{transport: http, url: "http://Metadata.Google.Internal./mcp"}`:         link,
		`{transport: http, url: "http://[64:ff9b::a9fe:a9fe]/mcp"}`:              link,
		`{transport: http, url: "http://100.100.100.200/mcp"}`:                   link,
		`{transport: http, url: "http://10.0.0.5/mcp"}`:                          "",
		`{transport: http, url: "http://127.0.0.1:8000/mcp"}`:                    "",
		`{transport: stdio, command: [a], manifest: "http://169.254.169.254/m"}`: link,
		`{transport: stdio, command: [sh, -c, "a; b"]}`:                          "sh -c " + text,
		`{transport: stdio, command: [/bin/bash, --login, -lc, "a; b"]}`:         "bash -lc " + text,
		`{transport: stdio, command: [npx, -y, -c, "a && b"]}`:                   "npx -c " + text,
		`{transport: stdio, command: [npx, --package, a, --call=b]}`:             "npx --call " + text,
		`{transport: stdio, command: [pwsh, -Command, "a"]}`:                     "pwsh -command " + text,
		`{transport: stdio, command: [sh, run.sh, -c]}`:                          "",
		`{transport: stdio, command: [npx, -y, some-server@1.0.0, -c, a.json]}`:  "",
		`{transport: stdio, command: [some-server, -c, "a.json"]}`:               "",
	} {
		archive := txtar.Parse([]byte("-- switchboard.yaml --\nservers:\n  a: " + row + "\n"))
		c, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: archiveFS(archive), Fetch: func(context.Context, string, switchboard.Network) ([]byte, error) {
			return []byte(`{"tools":[]}`), nil
		}})
		if err != nil {
			t.Errorf("%s: %v", row, err)
			continue
		}
		got := fmt.Sprint(c.Warnings)
		if (want == "") != (len(c.Warnings) == 0) || !strings.Contains(got, want) || want != "" && !strings.Contains(got, "switchboard.yaml:2:") {
			t.Errorf("%s: the warnings are %s, want %q", row, got, want)
		}
	}
}

// Two names that are easily taken for each other may be a slip, or somebody's trap.
func TestNamesThatLookAlikeAreWarnedOf(t *testing.T) {
	for _, tt := range []struct{ servers, want string }{
		{
			"  files: {transport: stdio, command: [npx, -y, \"@modelcontextprotocol/server-filesystem@2026.8.31\"]}\n" +
				"  more: {transport: stdio, command: [npx, -y, \"@modelcontextprotocol/server-filesytem@2026.8.31\"]}\n",
			`switchboard.yaml:3:47: server "more": command: package "@modelcontextprotocol/server-filesytem" looks like "@modelcontextprotocol/server-filesystem" at switchboard.yaml:2:48, and is another one; if one of them is mistyped, correct it`,
		},
		{
			"  filesystem: {transport: http, url: \"http://127.0.0.1:1/mcp\"}\n  fi1esystem: {transport: http, url: \"http://127.0.0.1:2/mcp\"}\n",
			`switchboard.yaml:3:3: server "fi1esystem" looks like "filesystem" at switchboard.yaml:2:3, and is another one; if one of them is mistyped, correct it`,
		},
		{"  server-a: {transport: http, url: \"http://127.0.0.1:1/mcp\"}\n  server-b: {transport: http, url: \"http://127.0.0.1:2/mcp\"}\n", ""},
		{
			"  files-1: {transport: stdio, command: [npx, \"server-filesystem@1.0.0\"]}\n  files-2: {transport: stdio, command: [npx, \"server-filesystem@1.0.1\"]}\n",
			"",
		},
		{"  a: {transport: stdio, command: [node, server-filesystem]}\n  b: {transport: stdio, command: [node, server-filesytem]}\n", ""}, // files, not packages
	} {
		files := fstest.MapFS{"switchboard.yaml": {Data: []byte("servers:\n" + tt.servers)}}
		c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: files})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, w := range c.Warnings {
			got += w.String()
		}
		if got != tt.want {
			t.Errorf("%s: the warnings are\n%s\nwant\n%s", tt.servers, got, tt.want)
		}
	}
}

// A package without an exact version may be another one at each start.
func TestAPackageWithoutAnExactVersionIsWarnedOf(t *testing.T) {
	for command, want := range map[string]string{
		`[npx, -y, server-memory]`:                      `"server-memory" names no exact version, so each start may run another program; write "server-memory@VERSION"`,
		`[npx, "@scope/server"]`:                        `"@scope/server" names no exact version, so each start may run another program; write "@scope/server@VERSION"`,
		`[npx, -y, "server@latest", .]`:                 `write "server@VERSION"`,
		`[npx, "server@^1.2.0"]`:                        `write "server@VERSION"`,
		`[/usr/bin/npx, --package, server, run-it]`:     `write "server@VERSION"`,
		`["C:/node/npx.cmd", --package=server, run-it]`: `write "server@VERSION"`,
		`[uvx, mcp-server-git, --repository, a@1.0.0]`:  `write "mcp-server-git==VERSION"`,
		`[uvx, "mcp-server-git>=1"]`:                    `write "mcp-server-git==VERSION"`,
		`[npx, -y, "@scope/server@2026.8.31"]`:          "",
		`[npx, -p, "server@1.0.0-rc.1", run-it]`:        "",
		`[uvx, "mcp-server-git==2026.8.31"]`:            "",
		`[uvx, --from, "mcp-server-git@1.2", run]`:      "",
		`[npx, ./server]`:                               "",
		`[npx, "github:owner/server"]`:                  "",
		`[npx, "https://example.com/server.tgz"]`:       "",
		`[npx]`:          "",
		`[node, server]`: "",
	} {
		files := fstest.MapFS{"switchboard.yaml": {Data: []byte("servers:\n  a: {transport: stdio, command: " + command + "}\n")}}
		c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: files})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.Warnings); (want == "") != (len(c.Warnings) == 0) || !strings.Contains(got, want) {
			t.Errorf("%s: the warnings are %s, want %q", command, got, want)
		}
	}
}

// Clients that share a process must have the same values of these variables.
func TestTheVariablesOfAllReferencesAreNamed(t *testing.T) {
	c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{
		FS: fstest.MapFS{"switchboard.yaml": {Data: []byte(`
servers:
  a: {transport: stdio, command: [a], env: {X: "${env:SECOND} and ${env:FIRST}", Y: "$${env:NONE}"}}
  b: {transport: http, url: "https://example.com", headers: {Authorization: "Bearer ${env:FIRST}"}}
`)}},
		Env: func(string) (string, bool) { return "value", true },
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"FIRST", "SECOND"}; !slices.Equal(c.Variables, want) {
		t.Errorf("%q, want %q", c.Variables, want)
	}
}
