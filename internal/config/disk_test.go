package config_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/configtest"
	"github.com/summit-switchboard/switchboard/test/system"
)

// writeFiles creates the files in a new folder.
func writeFiles(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const oneServer = "servers: {a: {transport: stdio, command: [./bin/a], dir: work}}\n"

func TestFaultsNameFilesAsTheUserWould(t *testing.T) {
	dir := writeFiles(t, map[string]string{"switchboard.yaml": oneServer, "tenants/default/tenant.yaml": "nonsense: 1\n"})
	_, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{})
	want := filepath.Join(dir, "tenants/default/tenant.yaml") + ":1:1: "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want one that begins with %s", err, want)
	}
	t.Chdir(dir)
	_, err = loadWithoutFaults(t.Context(), "switchboard.yaml", config.Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "tenants/default/tenant.yaml:1:1: ") {
		t.Errorf("error %v, want one that begins with tenants/default/tenant.yaml", err)
	}
}

func TestServerPathsAreRelativeToTheFileNotToTheWorkingDirectory(t *testing.T) {
	dir := writeFiles(t, map[string]string{"switchboard.yaml": oneServer})
	c, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Servers[0].Command[0], filepath.Join(dir, "bin", "a"); got != want {
		t.Errorf("command %q, want %q", got, want)
	}
	if got, want := c.Servers[0].Dir, filepath.Join(dir, "work"); got != want {
		t.Errorf("dir %q, want %q", got, want)
	}
}

// A tenant may be able to write its folder. It must not be able to read, through a link, files that
// only Switchboard may read.
func TestALinkInATenantsFolderCannotLeadOutOfIt(t *testing.T) {
	outside := writeFiles(t, map[string]string{"secret.yaml": "task_id: " + configtest.Canary + "\n"})
	dir := writeFiles(t, map[string]string{"switchboard.yaml": oneServer, "tenants/default/tasks/a.yaml": "task_id: a\nrequired_capabilities: [{verb: read, resource: fs}]\n"})
	if err := os.Symlink(filepath.Join(outside, "secret.yaml"), filepath.Join(dir, "tenants/default/tasks/b.yaml")); err != nil {
		t.Fatal(err)
	}
	_, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{})
	if err == nil || strings.Contains(err.Error(), configtest.Canary) || !strings.Contains(err.Error(), "b.yaml: this cannot be read") {
		t.Errorf("error %v, want that b.yaml cannot be read", err)
	}
}

// The operator may keep switchboard.yaml elsewhere, and link to it.
func TestTheMainFileMayBeALink(t *testing.T) {
	outside := writeFiles(t, map[string]string{"real.yaml": oneServer})
	dir := t.TempDir()
	file := filepath.Join(dir, "switchboard.yaml")
	if err := os.Symlink(filepath.Join(outside, "real.yaml"), file); err != nil {
		t.Fatal(err)
	}
	if _, err := loadWithoutFaults(t.Context(), file, config.Options{}); err != nil {
		t.Error(err)
	}
}

func TestAPipeInPlaceOfTheFileIsRefused(t *testing.T) {
	dir := writeFiles(t, map[string]string{"switchboard.yaml": oneServer})
	system.MakePipe(t, filepath.Join(dir, "taxonomy.yaml"))
	_, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{})
	if err == nil || !strings.Contains(err.Error(), "it is no regular file") {
		t.Errorf("error %v, want \"it is no regular file\"", err)
	}
}

func TestASecretFileMayHaveAnAbsolutePath(t *testing.T) {
	outside := writeFiles(t, map[string]string{"key": configtest.Canary + "\r\n"})
	key := filepath.Join(outside, "key")
	dir := writeFiles(t, map[string]string{"switchboard.yaml": fmt.Sprintf("servers: {a: {transport: http, url: 'http://localhost', headers: {Authorization: '${file:%s}'}}}\n", key)})
	c, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Servers[0].Headers["Authorization"].Reveal(); got != configtest.Canary {
		t.Errorf("the secret is %q, want it without the line break", got)
	}
	if !slices.Contains(c.Watch, key) {
		t.Errorf("%s is not watched: %s", key, c.Watch)
	}
}

// A watcher must notice the repair of a fault. So the paths are reported even if there is no Config.
func TestWatchIsCalledEvenIfThereAreFaults(t *testing.T) {
	dir := writeFiles(t, map[string]string{"switchboard.yaml": "servers: {a: {transport: stdio, command: [a], manifest: m/gone.json}}\n", "tenants/default/tasks/a.yaml": "nonsense\n"})
	var seen []string
	_, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{Watch: func(p string) { seen = append(seen, p) }})
	if err == nil {
		t.Fatal("Load reported no fault")
	}
	for _, want := range []string{"", "switchboard.yaml", "taxonomy.yaml", "overlays", "tenants", "tenants/default", "tenants/default/tenant.yaml", "tenants/default/tasks/a.yaml", "m/gone.json"} {
		if !slices.Contains(seen, filepath.Join(dir, want)) {
			t.Errorf("%q is not among the watched paths: %s", want, seen)
		}
	}
}

// Manifests are fetched concurrently. One that hangs fails at its deadline, as a fault of its server
// only.
func TestAHangingManifestFailsAtItsDeadline(t *testing.T) {
	text := "servers:\n"
	for i := range 4 {
		text += fmt.Sprintf("  s%d: {transport: stdio, command: [a], manifest: \"https://m.example/%d\"}\n", i, i)
	}
	dir := writeFiles(t, map[string]string{"switchboard.yaml": text})
	synctest.Test(t, func(t *testing.T) {
		var fetched atomic.Int32
		began := time.Now()
		_, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{Fetch: func(ctx context.Context, url string, _ switchboard.Network) ([]byte, error) {
			fetched.Add(1)
			if strings.HasSuffix(url, "/0") {
				return []byte(`{}`), nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		if d := time.Since(began); d != config.MaxFetchTime || fetched.Load() != 4 {
			t.Errorf("Load took %v for %d manifests, want %v for all", d, fetched.Load(), config.MaxFetchTime)
		}
		if err == nil || strings.Count(err.Error(), "\n") != 2 || !strings.Contains(err.Error(), `switchboard.yaml:3:50: server "s1": manifest: manifest "https://m.example/1" cannot be read: context deadline exceeded`) {
			t.Errorf("error %v, want a fault for each of the three", err)
		}
	})
}

// MaxFaults faults are listed; the others are counted.
func TestTheNumberOfFaultsIsLimited(t *testing.T) {
	dir := writeFiles(t, map[string]string{"switchboard.yaml": oneServer + numbered("x%d: 1\n", 1500)})
	_, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{})
	fs, ok := err.(config.Faults) //nolint:errorlint // the doc promises this very type
	if !ok || len(fs) != document.MaxFaults+1 || fs[document.MaxFaults].Text != "500 more faults are not listed" {
		t.Errorf("%d faults, the last %v", len(fs), fs[len(fs)-1])
	}
}

// An author with write access to a tenant's folder cannot read other files through it: neither files
// elsewhere on the disk, nor those of the operator or of another tenant.
func TestALinkInAFolderOfPoliciesCannotLeadOutOfIt(t *testing.T) {
	const secret = `{"key": "` + configtest.Canary + `"}`
	outside := writeFiles(t, map[string]string{"x.json": secret})
	for name, tt := range map[string]struct{ link, to, fault string }{
		"a file elsewhere":                  {"tenants/acme/policies/x.json", filepath.Join(outside, "x.json"), "tenants/acme/policies/x.json: this cannot be read"},
		"a file of the operator's":          {"tenants/acme/policies/x.json", "../../../secrets/x.json", "tenants/acme/policies/x.json: this cannot be read"},
		"another tenant's file":             {"tenants/acme/policies/x.json", "../../other/policies/x.json", "tenants/acme/policies/x.json: this cannot be read"},
		"another tenant's folder":           {"tenants/acme/policies/more", "../../other/policies", "tenants/acme/policies/more: this cannot be read"},
		"another tenant's, for the first":   {"tenants/acme/policies", "../other/policies", "tenants/acme/policies: this folder cannot be read"},
		"another tenant's overlay":          {"tenants/acme/overlays/x.yaml", "../../other/overlays/x.yaml", "tenants/acme/overlays/x.yaml: this cannot be read"},
		"the operator's, to a file outside": {"policies/x.json", filepath.Join(outside, "x.json"), "policies/x.json: this cannot be read"},
		"the operator's, to another folder": {"policies/more", "../secrets", ""},
		"a file of the same folder":         {"tenants/acme/policies/x.json", "..data/x.json", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeFiles(t, map[string]string{
				"switchboard.yaml": oneServer + "tenants: {acme: {servers: [a]}, other: {servers: [a]}}\n",
				"secrets/x.json":   secret, "tenants/other/policies/x.json": secret, "tenants/acme/tenant.yaml": "tenant: acme\n",
				"tenants/other/overlays/x.yaml": "server: a\ntools: {" + configtest.Canary + ": {capabilities: [{verb: read, resource: fs}]}}\n",
			})
			link := filepath.Join(dir, tt.link)
			for _, folder := range []string{filepath.Dir(link), filepath.Join(filepath.Dir(link), "..data")} {
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(filepath.Dir(link), "..data/x.json"), []byte(secret), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(tt.to, link); err != nil {
				t.Fatal(err)
			}
			c, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{})
			if tt.fault != "" {
				if want := filepath.Join(dir, tt.fault); err == nil || strings.Contains(err.Error(), configtest.Canary) || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			files := slices.Concat(c.Policies, c.TenantPolicies["acme"])
			if len(files) != 1 || string(files[0].Data) != secret {
				t.Errorf("policies %q", files)
			}
		})
	}
}

func TestTheSizeOfAPolicyFolderIsLimited(t *testing.T) {
	big := strings.Repeat("#", 1<<20)
	many := func(n int, text string) map[string]string {
		files := map[string]string{}
		for i := range n {
			files[fmt.Sprintf("policies/%d/%d.rego", i%5, i)] = text
		}
		return files
	}
	deep := func(n int) map[string]string {
		return map[string]string{"policies" + strings.Repeat("/a", n) + "/x.rego": ""}
	}
	for name, tt := range map[string]struct {
		files map[string]string
		fault string
	}{
		"a file of 1 MiB":          {map[string]string{"policies/x.rego": big}, ""},
		"a larger one":             {map[string]string{"policies/x.rego": big + "#"}, "policies/x.rego: this cannot be read: it is larger than 1048576 bytes"},
		"files of 8 MiB":           {many(8, big), ""},
		"more":                     {many(9, big), "policies: the files of the folder have more than 8388608 bytes together"},
		"500 files and folders":    {many(495, ""), ""},
		"one more":                 {many(496, ""), "policies: the folder holds more than 500 files and folders"},
		"folders 16 deep":          {deep(16), ""},
		"folders 17 deep":          {deep(17), "policies" + strings.Repeat("/a", 17) + ": folders of policies stand within each other more than 16 deep"},
		"a tenant's folder is too": {map[string]string{"tenants/default/policies/x.rego": big + "#"}, "tenants/default/policies/x.rego: this cannot be read: it is larger than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.files["switchboard.yaml"] = oneServer
			dir := writeFiles(t, tt.files)
			_, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{})
			got := ""
			if err != nil {
				got = strings.TrimPrefix(err.Error(), dir+"/")
			}
			if got != tt.fault {
				t.Errorf("error %q, want %q", got, tt.fault)
			}
		})
	}
}

// Each of the two links doubles the number of files at every depth.
func TestFoldersThatContainThemselvesAreRefused(t *testing.T) {
	dir := writeFiles(t, map[string]string{"switchboard.yaml": oneServer, "policies/x.rego": ""})
	for _, name := range []string{"a", "b"} {
		if err := os.Symlink(".", filepath.Join(dir, "policies", name)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{})
	if err == nil || strings.Count(err.Error(), "\n") > 500 || !strings.Contains(err.Error(), "policies: the folder holds more than 500 files and folders") {
		t.Errorf("error %v, want \"more than 500 files and folders\"", err)
	}
}

// An absent folder and an empty folder have different meanings.
func TestAnEmptyPolicyFolderDiffersFromAnAbsentOne(t *testing.T) {
	dir := writeFiles(t, map[string]string{"switchboard.yaml": oneServer, "tenants/default/tenant.yaml": "tenant: default\n"})
	load := func() *config.Config {
		c, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := load()
	if _, ok := c.TenantPolicies["default"]; c.Policies != nil || ok {
		t.Errorf("without folders: %v, %v", c.Policies, c.TenantPolicies)
	}
	for _, folder := range []string{"policies", "tenants/default/policies"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c = load()
	if files, ok := c.TenantPolicies["default"]; c.Policies == nil || len(c.Policies) > 0 || !ok || files == nil || len(files) > 0 {
		t.Errorf("with empty folders: %v, %v", c.Policies, c.TenantPolicies)
	}
}

func TestTheSizeOfATenantsPolicySettingsIsLimited(t *testing.T) {
	// {"a":["…","…"]}
	for n, want := range map[int]string{64<<10 - 13: "", 64<<10 - 12: "tenants/default/tenant.yaml:1:9: policy: it has 65537 bytes as JSON; at most 65536 are read"} {
		dir := writeFiles(t, map[string]string{
			"switchboard.yaml":            oneServer,
			"tenants/default/tenant.yaml": fmt.Sprintf("policy: {a: [%s, b%s]}\n", strings.Repeat("a", n/2), strings.Repeat("b", n-n/2-1)),
		})
		_, err := loadWithoutFaults(t.Context(), filepath.Join(dir, "switchboard.yaml"), config.Options{})
		got := ""
		if err != nil {
			got = strings.TrimPrefix(err.Error(), dir+"/")
		}
		if got != want {
			t.Errorf("error %q, want %q", got, want)
		}
	}
}
