package served_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The folder of a configuration is removed and made again, as deployments do. What is written to it
// then counts as before, long before the minute is over after which all files are compared.
func TestNames15AConfigurationThatIsRemovedAndMadeAgainIsWatchedAgain(t *testing.T) {
	t.Parallel()
	archive := fakes(fmt.Sprintf("a: {transport: http, url: %q}", overHTTP(t, fmt.Sprintf(tool, "post"))))
	stands := map[string]func(dir string) (working string, args []string){
		"where it was started": func(dir string) (string, []string) { return dir, nil },
		"elsewhere": func(dir string) (string, []string) {
			return t.TempDir(), []string{"--config", filepath.Join(dir, "switchboard.yaml")}
		},
	}
	for name, stand := range stands {
		for era, modern := range map[string]bool{"legacy": false, "modern": true} {
			t.Run(era+" "+name, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(layOut(t, strings.ReplaceAll(archive, "\n-- ", "\n-- conf/")), "conf")
				working, args := stand(dir)
				g := serve(t, working, append(args, "--data", t.TempDir())...)
				s := g.open(t, "/mcp", modern)
				refused := func() bool { return strings.Contains(g.readyz(), "configuration_refused") }
				text := map[string]string{}
				for _, name := range []string{"switchboard.yaml", "tenants/default/tenant.yaml", "tenants/default/tasks/all.yaml"} {
					text[name] = fileOf(t, filepath.Join(dir, name))
				}
				for range 2 { // also a second time
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
					eventually(t, "it is noticed that the folder is gone", func() string { return sayUnless(refused(), "it is not refused") })
					if code := calls(t, s, "post"); code != `{"query":"x"}` {
						t.Errorf("meanwhile a call says %s", code)
					}
					for name, text := range text {
						write(t, filepath.Join(dir, name), text)
					}
					eventually(t, "it is noticed that the folder is back", func() string { return sayUnless(!refused(), "it is refused") })
				}
				write(t, filepath.Join(dir, "tenants/default/tenant.yaml"), text["tenants/default/tenant.yaml"]+"policy: {deny: [\"a/post\"]}\n")
				eventually(t, "the veto counts", func() string {
					code := calls(t, s, "post")
					return sayUnless(strings.HasPrefix(code, "SB-"), code)
				})
			})
		}
	}
}

func sayUnless(ok bool, why string) string {
	if ok {
		return ""
	}
	return why
}
