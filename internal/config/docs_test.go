package config_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/certs"
	"github.com/summit-switchboard/switchboard/test/configtest"
)

// Every example of docs/networks.md loads, with certificates in its files.
func TestTheExamplesOfNetworksLoad(t *testing.T) {
	page, err := os.ReadFile("../../docs/networks.md")
	if err != nil {
		t.Fatal(err)
	}
	ca := certs.NewAuthority(t, "test")
	cert, key := ca.Issue(time.Now().Add(time.Hour), "test")
	fsys := fstest.MapFS{}
	for name, text := range map[string][]byte{"company.pem": ca.PEM, "client.pem": cert, "client.key": key, "switchboard.pem": cert, "switchboard.key": key} {
		fsys["certs/"+name] = &fstest.MapFile{Data: text}
	}
	env := func(name string) (string, bool) { return "p@ss/w:rd", name == "PROXY_PASSWORD" }
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	for _, b := range blocks {
		fsys["switchboard.yaml"] = &fstest.MapFile{Data: []byte(b[1])}
		c, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: fsys, Env: env})
		if err != nil {
			t.Errorf("%v\n%s", err, b[1])
			continue
		}
		if s := c.Servers[0]; s.ID == "search" && s.Network.Proxy.Reveal() != "http://me:p%40ss%2Fw%3Ard@proxy.example.com:3128" {
			t.Errorf("the proxy is %s", s.Network.Proxy.Reveal())
		}
	}
	if len(blocks) != 3 {
		t.Errorf("%d examples", len(blocks))
	}
}

// Every example of docs/configuration.md must load as the page says.
func TestTheExamplesOfTheDocumentationLoad(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	fsys := fstest.MapFS{
		"secrets/google":       {Data: []byte(configtest.Canary + "\n")},
		"manifests/brave.json": {Data: []byte(`{"name": "brave"}`)},
	}
	broken, faults := fstest.MapFS{}, ""
	blocks := regexp.MustCompile("(?ms)^```(\\w*) ?(.*?)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	for _, b := range blocks {
		file, data := b[2], &fstest.MapFile{Data: []byte(b[3])}
		name, isBroken := strings.CutPrefix(file, "broken/")
		switch {
		case file == "":
			t.Errorf("this example names no file:\n%s", b[3])
		case b[1] == "text":
			faults = b[3]
		case isBroken:
			broken[name] = data
		default:
			fsys[file] = data
		}
	}
	if len(fsys) < 9 {
		t.Fatalf("only %d files were found", len(fsys))
	}
	c, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: fsys, Env: configtest.Env})
	if err != nil {
		t.Fatal(err)
	}
	acme := c.Tenants["acme"]
	if len(c.Policies) != 1 || len(c.TenantPolicies["acme"]) != 1 || acme.Policy == nil || c.Keys[0].Tier != "pro" || len(c.Keys[0].Roles) != 1 || acme.Tasks["tidy"].Mode != switchboard.Observe ||
		len(c.Servers) != 3 ||
		acme.Budget(acme.Tasks["tidy"]) != 6000 || acme.OnFull != switchboard.OnFullCollapse || len(acme.Declare) != 1 || !acme.Tasks["browse"].Requirements[3].OnDemand || len(c.Servers[2].Services) != 2 ||
		len(c.Overlays) != 4 || len(c.Keys) != 1 || len(acme.Tasks) != 2 || len(acme.Overlays) != 1 || len(acme.Servers) != 2 || !c.Taxonomy.HasConstraint("gdpr_safe") {
		t.Errorf("a part of the examples was not read:\n%s", describe(t, c))
	}
	c, mapping, err := importer.Load("mcp.json", config.Options{FS: fsys, Env: configtest.Env})
	if err != nil || len(c.Servers) != 2 || mapping[0].ID != "brave-search" {
		t.Errorf("importer.Load = %v, %v", mapping, err)
	}
	_, err = loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: broken})
	if err == nil || err.Error()+"\n" != faults {
		t.Errorf("the page says\n%sand the faults are\n%v", faults, err)
	}
}

// Every example of docs/hosted-servers.md is a whole configuration, or a part of one.
func TestTheExamplesOfThePageAboutHostedServersLoad(t *testing.T) {
	page, err := os.ReadFile("../../docs/hosted-servers.md")
	if err != nil {
		t.Fatal(err)
	}
	secret := &fstest.MapFile{Data: []byte(strings.Repeat(configtest.Canary, 4) + "\n")}
	kinds := ""
	for _, b := range regexp.MustCompile("(?ms)^```yaml.*?\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		fsys := fstest.MapFS{"switchboard.yaml": {Data: []byte(b[1])}}
		for _, name := range []string{"tracker", "github", "vault-2026", "vault-2027"} {
			fsys["secrets/"+name] = secret
		}
		c, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: fsys, Env: configtest.Env})
		if err != nil {
			t.Fatalf("%v\n%s", err, b[1])
		}
		for _, s := range c.Servers {
			kinds += string(s.Credential.Kind) + ";"
		}
	}
	if want := "user;client;;;;;operator;"; kinds != want {
		t.Errorf("the credentials of the examples are %q, want %q", kinds, want)
	}
}

// docs/approvals.md has a configuration to try, in the folder try, and one of a company.
func TestTheExamplesOfThePageAboutApprovalsLoad(t *testing.T) {
	page, err := os.ReadFile("../../docs/approvals.md")
	if err != nil {
		t.Fatal(err)
	}
	try, company := fstest.MapFS{}, fstest.MapFS{}
	for _, b := range regexp.MustCompile("(?ms)^```yaml (.*?)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		if name, ok := strings.CutPrefix(b[1], "try/"); ok {
			try[name] = &fstest.MapFile{Data: []byte(b[2])}
		} else {
			company[b[1]] = &fstest.MapFile{Data: []byte(b[2])}
		}
	}
	c, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: try})
	if err != nil {
		t.Fatal(err)
	}
	notify := c.Overlays[switchboard.ToolID{Server: "chat", Name: "notify"}]
	if b := c.Tenants["default"].Budgets; len(b) != 1 || b[0].Name() != "operator/day" || notify.Price == nil || notify.Price.Call != 20_000 {
		t.Errorf("%+v %+v", b, notify.Price)
	}
	if c, err = loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: company}); err != nil {
		t.Fatal(err)
	}
	if a := c.Tenants["acme"].Approvals; a.Wait != 45*time.Second || a.Until != time.Hour || a.Standing != 8*time.Hour {
		t.Errorf("%+v", a)
	}
}

// The examples of docs/budgets.md are one configuration.
func TestTheExamplesOfThePageAboutBudgetsLoad(t *testing.T) {
	page, err := os.ReadFile("../../docs/budgets.md")
	if err != nil {
		t.Fatal(err)
	}
	fsys := fstest.MapFS{}
	for _, b := range regexp.MustCompile("(?ms)^```yaml (.*?)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		fsys[b[1]] = &fstest.MapFile{Data: []byte(b[2])}
	}
	c, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: fsys, Env: configtest.Env})
	if err != nil {
		t.Fatal(err)
	}
	acme := c.Tenants["acme"]
	names := ""
	for _, b := range append(acme.Budgets, acme.Tasks["research"].Budgets...) {
		names += b.Name() + " "
	}
	if p := c.Overlays[switchboard.ToolID{Server: "embed", Name: "embed_texts"}].Price; names != "row/total tenant/paid tenant/searches task/research/each-run " || p == nil || p.Each[0].Micros != 20 || c.Currency != "EUR" {
		t.Errorf("%s %+v %s", names, p, c.Currency)
	}
}

// The examples of the pages about standing yeses, notices and requests load. Each block is a configuration, or a part of one that lacks its servers.
func TestTheExamplesOfThePagesAboutPeopleLoad(t *testing.T) {
	for page, good := range map[string]func(c *config.Config) bool{
		"standing": func(c *config.Config) bool { return c.Tenants["acme"].Approvals.Standing == 8*time.Hour },
		"notices":  func(c *config.Config) bool { return len(c.Recipients) == 2 },
		"requests": func(c *config.Config) bool { return len(c.Tenants["acme"].Request) == 2 },
	} {
		text, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?ms)^```yaml.*?\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
		if len(blocks) != 1 {
			t.Errorf("docs/%s.md has %d examples, and this test knows one", page, len(blocks))
			continue
		}
		example := blocks[0][1]
		if !strings.Contains(example, "servers:\n") {
			example += "servers: {mail: {transport: stdio, command: [mail-server]}}\n"
			if !strings.Contains(example, "tenants:\n") {
				example += "tenants: {acme: {servers: [mail]}}\n"
			}
		}
		secret := &fstest.MapFile{Data: []byte("whsec_" + strings.Repeat("QUJD", 8) + "\n")}
		fsys := fstest.MapFS{"switchboard.yaml": {Data: []byte(example)}, "secrets/oncall": secret, "secrets/desk": secret, "secrets/desk-url": {Data: []byte("https://desk.example.com/hook\n")}}
		c, err := loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{FS: fsys, Env: configtest.Env})
		if err != nil {
			t.Errorf("docs/%s.md: %v\n%s", page, err, example)
		} else if !good(c) {
			t.Errorf("docs/%s.md: a part of the example was not read:\n%s", page, describe(t, c))
		}
	}
}
