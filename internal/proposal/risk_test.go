package proposal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
)

// A key that is added to the configuration needs its row in risks.txt; until then it is critical.
func TestEachKeyOfTheConfigurationHasARisk(t *testing.T) {
	known := map[string]bool{}
	for _, k := range config.FileKinds() {
		for _, path := range k.Paths() {
			known[k.Name+" "+path] = true
			if r, ok := riskTable()[k.Name+" "+path]; !ok || !slices.Contains(risks, r) {
				t.Errorf("%s %s has the risk %q; give it a row in risks.txt", k.Name, path, r)
			}
		}
	}
	for key := range riskTable() {
		if !known[key] {
			t.Errorf("%s is no key any more; remove its row from risks.txt", key)
		}
	}
}

func TestTheRiskFollowsFromThePartsThatDiffer(t *testing.T) {
	main := startFiles["switchboard.yaml"]
	edit := func(text, old, new string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%q is not in %q", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
	withSecret := func(keys string) string { return "servers:\n  c: {" + keys + "}\n" }
	for name, tt := range map[string]struct {
		file, before, after string
		want                Risk
	}{
		"the same":                      {tenantFile, "tenant: acme\n", "tenant: acme\n", Low},
		"a comment":                     {tenantFile, "tenant: acme\n", "# hi\ntenant: acme # ho\n", Low},
		"another order and spelling":    {tenantFile, "tenant: acme\nmode: assist\n", "{mode: \"assist\", \"tenant\": acme}\n", Low},
		"a comment in the main file":    {"switchboard.yaml", main, "# hi\n" + main, Low},
		"a task's tools":                {taskFile, startFiles[taskFile], edit(startFiles[taskFile], "a/*", "b/*"), Medium},
		"a new task":                    {"tenants/acme/tasks/x.yaml", "", "task_id: x\nrequired_capabilities: [{tools: [\"a/*\"]}]\n", Medium},
		"a task that goes":              {taskFile, startFiles[taskFile], "", Medium},
		"a label":                       {"overlays/a.yaml", startFiles["overlays/a.yaml"], edit(startFiles["overlays/a.yaml"], "verb: read", "verb: write"), Medium},
		"a trial":                       {tenantFile, "tenant: acme\n", "tenant: acme\ntrial: [a]\n", Medium},
		"the operator's trial":          {"switchboard.yaml", main, edit(main, `acme: {`, `acme: {trial: [a], `), Medium},
		"a ranking":                     {tenantFile, "tenant: acme\n", "tenant: acme\nranking: {classes: [paid_api]}\n", High},
		"replacing a label":             {"overlays/a.yaml", startFiles["overlays/a.yaml"], edit(startFiles["overlays/a.yaml"], "one: {", "one: {replace: true, "), High},
		"an equivalent":                 {"overlays/a.yaml", startFiles["overlays/a.yaml"], edit(startFiles["overlays/a.yaml"], "one: {", "one: {equivalents: [{tool: b/one}], "), High},
		"a new server":                  {"switchboard.yaml", main, edit(main, "  b: ", "  c: {transport: stdio, command: [run, c], sandbox: strict, permissions: {read: [x]}}\n  b: "), High},
		"a permission":                  {"switchboard.yaml", main, edit(main, "[run, a]", "[run, a], permissions: {read: [x]}"), High},
		"a tenant's policy":             {"tenants/acme/policies/veto.rego", "package switchboard.tenant\n", "package switchboard.tenant # x\n", High},
		"an overlay of another server":  {"overlays/a.yaml", "server: a\ntools: {one: {replace: true}}\n", "server: b\ntools: {one: {replace: true}}\n", High},
		"labels of another server":      {"overlays/a.yaml", startFiles["overlays/a.yaml"], edit(startFiles["overlays/a.yaml"], "server: a", "server: b"), Medium},
		"the mode of another task":      {taskFile, "task_id: all\nmode: autopilot\n", "task_id: other\nmode: autopilot\n", High},
		"another kind of a resource":    {"taxonomy.yaml", "resources: {mail: {}}\n", "resources: {mail: {parent: ledger}}\n", Critical},
		"where headers go":              {"switchboard.yaml", withSecret("headers: {x: y}, url: a"), withSecret("headers: {x: y}, url: b"), Critical},
		"where headers went":            {"switchboard.yaml", withSecret("headers: {x: y}, url: a"), withSecret("url: b"), Critical},
		"what gets the environment":     {"switchboard.yaml", withSecret("env: {x: y}, command: [a]"), withSecret("env: {x: y}, command: [b]"), Critical},
		"what gets a variable":          {"switchboard.yaml", withSecret("allow_env: [x], package: {npm: a@1}"), withSecret("allow_env: [x], package: {npm: b@1}"), Critical},
		"the proxy of a credential":     {"switchboard.yaml", withSecret("credential: user"), withSecret("credential: user, proxy: b"), Critical},
		"the other end of our key":      {"switchboard.yaml", withSecret("tls: {key: k}, url: a"), withSecret("tls: {key: k}, url: b"), Critical},
		"who is trusted":                {"switchboard.yaml", withSecret("trust: operator, url: a"), withSecret("trust: operator, url: b"), Critical},
		"where a secret in it goes":     {"switchboard.yaml", withSecret("command: [a, \"${env:KEY}\"]"), withSecret("command: [b, \"${env:KEY}\"]"), Critical},
		"another address":               {"switchboard.yaml", withSecret("trust: declared, url: a"), withSecret("trust: declared, url: b"), High},
		"another server has the secret": {"switchboard.yaml", withSecret("url: a}\n  d: {headers: {x: y}"), withSecret("url: b}\n  d: {headers: {x: y}"), High},
		"where a probe's headers go":    {"capabilities/atoms.yaml", "x: {probe: {headers: {x: y}, http: a}}\n", "x: {probe: {headers: {x: y}, http: b}}\n", Critical},
		"a probe without secrets":       {"capabilities/atoms.yaml", "x: {probe: {http: a}}\n", "x: {probe: {http: b}}\n", High},
		"weaker walls":                  {"switchboard.yaml", main, edit(main, "[run, a]", "[run, a], sandbox: off"), Critical},
		"no strict walls any more":      {"switchboard.yaml", edit(main, "[run, a]", "[run, a], sandbox: strict"), main, Critical},
		"trust":                         {"switchboard.yaml", main, edit(main, "[run, a]", "[run, a], trust: verified"), Critical},
		"a listener":                    {"switchboard.yaml", main, edit(main, "7420", "7421"), Critical},
		"a bound":                       {"switchboard.yaml", main, edit(main, `acme: {servers: ["*"]`, `acme: {servers: [a]`), Critical},
		"a new tenant":                  {"switchboard.yaml", main, edit(main, "  umbrella", "  other: {}\n  umbrella"), Critical},
		"an operator":                   {"switchboard.yaml", main, edit(main, "key: ops", "key: opz"), Critical},
		"a key":                         {tenantFile, "tenant: acme\n", "tenant: acme\nkeys: [{id: x, hash: \"sha256:0\"}]\n", Critical},
		"a member":                      {tenantFile, "tenant: acme\n", "tenant: acme\nmembers: [{key: x, offices: [admin]}]\n", Critical},
		"an empty list of keys":         {tenantFile, "tenant: acme\n", "tenant: acme\nkeys: []\n", Critical},
		"the operator's policy":         {"policies/shipped.rego", "package switchboard\n", "package switchboard # x\n", Critical},
		"data of the operator's policy": {"policies/deep/data.json", "", "{}", Critical},
		"a boundary":                    {config.BoundariesPath, "", "[{id: x, severity: hard, id_matches: x, decision: deny}]\n", Critical},
		"what is let in":                {config.AdmittedFile, "", "x", Critical},
		"an unknown key":                {tenantFile, "tenant: acme\n", "tenant: acme\nnonsense: 1\n", Critical},
		"an unknown key that stays":     {tenantFile, "tenant: acme\nnonsense: 1\n", "tenant: acme\nnonsense: 1\nranking: {classes: [paid_api]}\n", High},
		"an unknown key below":          {tenantFile, "tenant: acme\n", "tenant: acme\nranking: {nonsense: 1}\n", Critical},
		"a key twice":                   {tenantFile, "tenant: acme\n", "tenant: acme\nkeys: []\nkeys: []\n", Critical},
		"another shape":                 {tenantFile, "tenant: acme\n", "[tenant]\n", Critical},
		"another shape below":           {tenantFile, "tenant: acme\n", "tenant: acme\nranking: 1\n", Critical},
		"no YAML":                       {tenantFile, "tenant: acme\n", "{", Critical},
		"no YAML before":                {tenantFile, "{", "tenant: acme\n", Critical},
		"no file of a configuration":    {"notes.txt", "", "x", Critical},
	} {
		optional := func(s string) []byte {
			if s == "" {
				return nil
			}
			return []byte(s)
		}
		parts := partsOf("switchboard.yaml", tt.file, tt.file, optional(tt.before), optional(tt.after))
		if got := riskOf(parts); got != tt.want {
			t.Errorf("%s: %s, want %s: %v", name, got, tt.want, parts)
		}
	}
}

// No spelling of a path, and no link, makes less of a file than it is: an agent proposes nothing critical by any of them.
func TestNoAgentProposesWhatIsCriticalInAnySpelling(t *testing.T) {
	w := newWorld(t)
	for link, to := range map[string]string{
		"tenants/acme/tasks/keys.yaml":    tenantFile,
		"tenants/acme/overlays/keys.yaml": tenantFile,
		"tenants/acme/policies/keys.yaml": tenantFile,
		"overlays/main.yaml":              "switchboard.yaml",
		"overlays/rules.yaml":             "policies/shipped.rego",
		"overlays/deep":                   "policies",
		"capabilities/main.yaml":          "switchboard.yaml",
	} {
		if err := os.Symlink(filepath.Join(w.dir, to), filepath.Join(w.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	keys := startFiles[tenantFile] + "keys: [{id: robot2, hash: \"sha256:" + strings.Repeat("2", 64) + "\", tasks: [all]}]\n"
	port := strings.Replace(startFiles["switchboard.yaml"], "7420", "7421", 1)
	const rule = "package switchboard\nallowed_tools contains c.id if some c in input.candidate_tools # all\n"
	targets := map[string]struct {
		names []string
		text  string
	}{
		"keys": {[]string{
			tenantFile, "tenants/acme/tasks/keys.yaml", "tenants/acme/overlays/keys.yaml", "tenants/acme/policies/keys.yaml", "tenants/ACME/tenant.yaml", "tenants/acme/TENANT.yaml", "Tenants/acme/tenant.yaml",
			"./" + tenantFile, "tenants/./acme/tenant.yaml", "tenants/acme/x/../tenant.yaml", "tenants//acme/tenant.yaml", "/" + tenantFile, tenantFile + "/", tenantFile + " ", "tenants/acme/tenant.yaml\x00.txt",
			`tenants\acme\tenant.yaml`, "tenants/acme%2ftenant.yaml", "tenants/acme/tenant.yaml.", "tenants/a\u0300cme/tenant.yaml", "tenants/acme/tenant.y\u0061\u0301ml", "tenants/acme/ｔenant.yaml", "tenants/umbrella/../acme/tenant.yaml",
		}, keys},
		"port": {[]string{
			"switchboard.yaml", "overlays/main.yaml", "capabilities/main.yaml", "./switchboard.yaml", "SWITCHBOARD.yaml", "switchboard.YAML", "overlays/../switchboard.yaml", "tenants/acme/../../switchboard.yaml", "switchboard.yaml/.", " switchboard.yaml",
			"tenants/../switchboard.yaml", "tenants//../switchboard.yaml", "//switchboard.yaml", ".//switchboard.yaml", "switchboard.yaml//", "switchboard.yaml.", "switchboard.yaml...", "switchboard.yaml ", "Switchboard.yaml",
			"\uff53witchboard.yaml", "switchboard\uff0eyaml", "switch\u200bboard.yaml", "switchboard.yam\u217c", "\u017fwitchboard.yaml", "switchboard.yaml\u0301", "\ufeffswitchboard.yaml", "switchboard.yaml::$DATA", `tenants\..\switchboard.yaml`, "%2e/switchboard.yaml", "switchboard.yaml\n",
		}, port},
		"one of the capabilities, where upper case is the same": {[]string{"capabilities/ATOMS.yaml", "capabilities/Boundaries.yaml", "capabilities/PARTIES.yaml", "Capabilities/atoms.yaml", "TAXONOMY.yaml", "Admitted.lock"}, "x: {y: 1}\n"},
		"rule": {[]string{"policies/shipped.rego", "overlays/rules.yaml", "overlays/deep/shipped.rego", "policies/../policies/shipped.rego", "Policies/shipped.rego", "policies/new.rego", "policies/a/b/c.rego"}, rule},
	}
	before := w.files()
	for what, tt := range targets {
		for _, name := range tt.names {
			p, err := w.Create(t.Context(), agent, nil, &Draft{Note: "please", Files: []FileDraft{{Path: name, Text: new(tt.text)}}})
			if got := reason(err); got != "SB-AUTH-002" && got != "not found" {
				t.Errorf("%s by %q: %v %v", what, name, p, err)
			}
			// Together with something harmless it is no less critical.
			_, err = w.Create(t.Context(), agent, nil, &Draft{Note: "please", Files: []FileDraft{{Path: taskFile, Text: new(startFiles[taskFile] + "# x\n")}, {Path: name, Text: new(tt.text)}}})
			if got := reason(err); got != "SB-AUTH-002" && got != "not found" {
				t.Errorf("%s by %q, with another file: %v", what, name, err)
			}
		}
	}
	if fmt.Sprint(before) != fmt.Sprint(w.files()) {
		t.Error("a file was changed")
	}
}
