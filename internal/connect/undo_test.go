package connect

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/clientfile"
)

const twoServers = `{
  "numStartups": 1,
  "mcpServers": {
    "Files": {"command": "npx", "args": ["-y", "files"], "env": {"TOKEN": "geheim-1234"}},
    "web": {"type": "http", "url": "https://example.com/mcp"}
  }
}
`

// names returns the servers of the user's scope in a file.
func (d *desk) names(client, file string) []string {
	d.t.Helper()
	c := Find(client)
	entries, err := clientfile.ListServers(file, []byte(d.read(file)), c.form, c.section())
	if err != nil {
		d.t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name)
	}
	return out
}

// reformat writes .claude.json anew, as a client does that keeps no spaces and no order, and adds a server.
func (d *desk) reformat(name string) {
	d.t.Helper()
	var all map[string]any
	if err := json.Unmarshal([]byte(d.read(".claude.json")), &all); err != nil {
		d.t.Fatal(err)
	}
	all["numStartups"] = 2
	all["mcpServers"].(map[string]any)[name] = map[string]any{"command": "later"}
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		d.t.Fatal(err)
	}
	d.write(".claude.json", string(text))
}

// RD-01: the client has written its file anew in another form, and the user has added a server.
func TestRD01WhatWasAddedSinceIsKept(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	d.reformat("later")
	u := d.disconnect("claude-code")
	if got := d.names("claude-code", ".claude.json"); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"Files", "later", "web"}) {
		t.Errorf("the file has %q", got)
	}
	for _, want := range []string{`"numStartups": 2`, `"Files": {"command": "npx", "args": ["-y", "files"], "env": {"TOKEN": "geheim-1234"}}`} {
		if !strings.Contains(d.read(".claude.json"), want) {
			t.Errorf("%s is missing in\n%s", want, d.read(".claude.json"))
		}
	}
	if f := u.Files[0]; f.Exact || !slices.Equal(f.Later, []string{"later"}) || f.Backup == "" {
		t.Errorf("disconnect says %+v", f)
	}
	if d.read(".claude.json.before-switchboard") != twoServers {
		t.Error("the backup is not the file from before")
	}
	if strings.Contains(d.read("sb/switchboard.yaml"), "npx") || d.read("sb/secrets/files-token") != "(none)" {
		t.Errorf("the configuration still has\n%s", d.read("sb/switchboard.yaml"))
	}
}

func TestAnAdoptedServerGetsAnotherNameIfItsOwnIsTaken(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	d.reformat("web")
	u := d.disconnect("claude-code")
	if got := d.names("claude-code", ".claude.json"); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"Files", "web", "web-2"}) {
		t.Errorf("the file has %q", got)
	}
	if u.Files[0].Renamed["web"] != "web-2" {
		t.Errorf("disconnect says %+v", u.Files[0])
	}
}

func TestAServerThatWasAddedSinceIsAdoptedByTheNextConnect(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	once := d.read(".claude.json")
	d.write(".claude.json", strings.Replace(once, `"mcpServers": {`, `"mcpServers": {"third": {"command": "third"},`, 1))
	between := d.read(".claude.json")
	if got := outcome(d.connect(d.options("claude-code"))); got != "third=third" {
		t.Errorf("got %s", got)
	}
	if got := d.names("claude-code", ".claude.json"); !slices.Equal(got, []string{"switchboard"}) {
		t.Errorf("the file has %q in\n%s, from\n%s", got, d.read(".claude.json"), between)
	}
	d.disconnect("claude-code")
	if got := d.names("claude-code", ".claude.json"); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"Files", "third", "web"}) {
		t.Errorf("the file has %q", got)
	}
}

func TestAServerOfTwoClientsIsSharedAndStaysUntilBothAreDisconnected(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.write(".cursor/mcp.json", `{"mcpServers": {"other name": {"command": "npx", "args": ["-y", "files"], "env": {"TOKEN": "geheim-1234"}}, "web": {"url": "https://example.com/else"}}}`)
	d.connect(d.options("claude-code"))
	if got := outcome(d.connect(d.options("cursor"))); got != "other name=files shared; web=web-2" {
		t.Errorf("got %s", got)
	}
	u := d.disconnect("claude-code")
	if !slices.Equal(u.Servers, []LeftServer{{ID: "files", Stays: "Cursor uses it too"}, {ID: "web", Removed: true}}) {
		t.Errorf("disconnect says %+v", u.Servers)
	}
	d.disconnect("cursor")
	if rows, err := rowDigests([]byte(d.read("sb/switchboard.yaml"))); err != nil || len(rows) > 0 {
		t.Errorf("the configuration still has %v, %v", rows, err)
	}
}

func TestARowThatTheUserHasOrEditsStays(t *testing.T) {
	d := newDesk(t)
	d.write("sb/switchboard.yaml", "# mine\nservers:\n  mine: {transport: http, url: \"https://example.com/mcp\"}\n")
	d.write(".claude.json", twoServers)
	if got := outcome(d.connect(d.options("claude-code"))); got != "Files=files; web=mine shared" {
		t.Errorf("got %s", got)
	}
	d.write("sb/switchboard.yaml", strings.Replace(d.read("sb/switchboard.yaml"), "npx", "npx, --quiet", 1))
	u := d.disconnect("claude-code")
	if !slices.Equal(u.Servers, []LeftServer{{ID: "files", Stays: "its row has been edited"}, {ID: "mine", Stays: "it was in the configuration before"}}) {
		t.Errorf("disconnect says %+v", u.Servers)
	}
	if got := d.read("sb/switchboard.yaml"); !strings.HasPrefix(got, "# mine\n") || !strings.Contains(got, "--quiet") {
		t.Errorf("the configuration is\n%s", got)
	}
}

func TestALinkStaysAndItsTargetIsChanged(t *testing.T) {
	d := newDesk(t)
	d.write("dotfiles/claude.json", twoServers)
	if err := os.Symlink(d.path("dotfiles/claude.json"), d.path(".claude.json")); err != nil {
		t.Fatal(err)
	}
	d.connect(d.options("claude-code"))
	if target, err := os.Readlink(d.path(".claude.json")); err != nil || target != d.path("dotfiles/claude.json") {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	if got := d.names("claude-code", "dotfiles/claude.json"); !slices.Equal(got, []string{"switchboard"}) {
		t.Errorf("the target has %q", got)
	}
	if info, err := os.Stat(d.path("dotfiles/claude.json")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	d.disconnect("claude-code")
	if d.read("dotfiles/claude.json") != twoServers {
		t.Error("the target is not as it was")
	}
}

func TestAReadOnlyFileIsRefusedWithARemedy(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	if err := os.Chmod(d.path(".claude.json"), 0o400); err != nil {
		t.Fatal(err)
	}
	_, err := Prepare(t.Context(), d.options("claude-code"))
	if err == nil || !strings.Contains(err.Error(), "is read-only") || !strings.Contains(err.Error(), "chmod u+w") {
		t.Errorf("%v", err)
	}
}

func TestAFileThatConnectMadeIsGoneAfterDisconnect(t *testing.T) {
	for _, client := range IDs() {
		d := newDesk(t)
		p := d.connect(d.options(client))
		if len(p.Changes) != 1 || p.Changes[0].Before != nil {
			t.Errorf("%s: %+v", client, p.Changes)
		}
		if u := d.disconnect(client); len(u.Files) != 1 || !u.Files[0].Gone || exists(p.Place.File) {
			t.Errorf("%s: %+v", client, u)
		}
	}
}

func TestAProjectFileIsAdoptedOnlyIfItIsChosen(t *testing.T) {
	d := newDesk(t)
	d.write("work/.mcp.json", "{\n  \"mcpServers\": {\n    \"p\": {\"command\": \"./run.sh\"}\n  }\n}\n")
	p, err := Prepare(t.Context(), d.options("claude-code"))
	if err != nil || len(p.Servers) > 0 || len(p.Elsewhere) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	o := d.options("claude-code")
	o.Scopes = []Scope{ScopeProject}
	if got := outcome(d.connect(o)); got != "p=p" {
		t.Errorf("got %s", got)
	}
	if got := d.read("sb/switchboard.yaml"); !strings.Contains(got, "dir: "+d.path("work")) || !strings.Contains(got, "[\""+d.path("work/run.sh")) && !strings.Contains(got, "["+d.path("work/run.sh")) {
		t.Errorf("the server does not start in the project's folder:\n%s", got)
	}
}

func TestAClientOfAnotherConfigurationIsRefused(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	o := d.options("claude-code")
	o.Config, o.Data = d.path("other/switchboard.yaml"), d.path("other/.switchboard")
	_, err := Prepare(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "disconnect that first: switchboard disconnect claude-code --config "+d.path("sb/switchboard.yaml")) {
		t.Errorf("%v", err)
	}
}

func TestAnotherTaskReplacesOurEntryAndKeepsWhatTheUserAddedToIt(t *testing.T) {
	d := newDesk(t)
	d.write(".cursor/mcp.json", `{"mcpServers": {"a": {"command": "x"}}}`)
	d.connect(d.options("cursor"))
	d.write(".cursor/mcp.json", strings.Replace(d.read(".cursor/mcp.json"), `"type"`, `"timeout": 9, "type"`, 1))
	p, err := Prepare(t.Context(), d.options("cursor"))
	if err != nil || p.Changed() {
		t.Errorf("a key of the user's own in our entry: %v, %+v", err, p.Changes)
	}
	o := d.options("cursor")
	o.Target.Command = append(o.Target.Command, "--task", "review")
	d.connect(o)
	if got := d.read(".cursor/mcp.json"); strings.Count(got, "stdio") != 2 || !strings.Contains(got, "review") {
		t.Errorf("the file is\n%s", got)
	}
	d.disconnect("cursor")
	if got := d.names("cursor", ".cursor/mcp.json"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the file has %q", got)
	}
}

// RD-02: of two that connect at once, the second sees what the first has done.
func TestRD02TwoConnectsAtOnceLeaveOneWholeFile(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	type result struct {
		plan *Plan
		err  error
	}
	results := make(chan result)
	for range 2 {
		go func() {
			for {
				p, err := Prepare(t.Context(), d.options("claude-code"))
				if err == nil {
					err = p.Apply(t.Context())
				}
				if !errors.Is(err, ErrChanged) {
					results <- result{p, err}
					return
				}
			}
		}()
	}
	adopted := 0
	for range 2 {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		adopted += len(r.plan.Servers)
	}
	if got := d.names("claude-code", ".claude.json"); !slices.Equal(got, []string{"switchboard"}) || adopted != 2 {
		t.Errorf("the file has %q, and %d servers were adopted", got, adopted)
	}
	d.disconnect("claude-code")
	if d.read(".claude.json") != twoServers {
		t.Errorf("after disconnect:\n%s", d.read(".claude.json"))
	}
}

// RD-02: a kill between any two steps leaves whole files, and the next connect or disconnect puts things right. The steps are the record,
// the secrets, the configuration, the backup and the client's file: the test stops before each of them, as a kill would.
func TestRD02AKillBetweenTwoStepsCanBeFinishedOrUndone(t *testing.T) {
	steps := []string{"sb/.switchboard/connected/claude-code.json", "sb/secrets/files-token", "sb/switchboard.yaml", ".claude.json.before-switchboard", ".claude.json"}
	for n := range len(steps) + 1 {
		for _, then := range []string{"connect", "disconnect"} {
			d := newDesk(t)
			d.write(".claude.json", twoServers)
			d.connect(d.options("claude-code"))
			connected := map[string]string{}
			for _, step := range steps {
				connected[step] = d.read(step)
			}
			// Undo the steps that the killed process did not come to.
			for _, step := range steps[n:] {
				if step == ".claude.json" {
					d.write(step, twoServers)
				} else if err := os.Remove(d.path(step)); err != nil {
					t.Fatal(err)
				}
			}
			if then == "connect" {
				d.connect(d.options("claude-code"))
				if got := d.read(".claude.json"); got != connected[".claude.json"] {
					t.Errorf("killed after %d steps, connect leaves\n%s", n, got)
				}
				if got := d.read("sb/switchboard.yaml"); got != connected["sb/switchboard.yaml"] {
					t.Errorf("killed after %d steps, the configuration is\n%s", n, got)
				}
			} else if n == 0 {
				continue // nothing has happened
			}
			d.disconnect("claude-code")
			if got := d.read(".claude.json"); got != twoServers {
				t.Errorf("killed after %d steps, then %s, disconnect leaves\n%s", n, then, got)
			}
			if rows, err := rowDigests([]byte(strings.TrimPrefix(d.read("sb/switchboard.yaml"), "(none)"))); err != nil || len(rows) > 0 {
				t.Errorf("killed after %d steps, then %s, the configuration still has %v, %v", n, then, rows, err)
			}
			if secrets, _ := filepath.Glob(d.path("sb/secrets/*")); len(secrets) > 0 {
				t.Errorf("killed after %d steps, then %s, secrets are left: %v", n, then, secrets)
			}
		}
	}
}

func TestTheDifferencesShowNoSecret(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", `{
  "primaryApiKey": "sk-ant-api03-abcdefgh12345678",
  "mcpServers": {
    "a": {"command": "x", "args": ["--token", "tok-en", "--api-key=kk-11", "https://u:pw@example.com"], "env": {"PIN": "1234", "SOME_TOKEN": "geheim", "LONG": "longer-text"}},
    "c": {"command": "y", "args": ["say longer-text to"]},
    "b": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer abcdefgh", "X-Pin": "987"}, "oauth": {"clientSecret": "cs-1"}}
  }
}
`)
	p, err := Prepare(t.Context(), d.options("claude-code"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(p.Diff(filepath.Base), d.home, "HOME") // its name may have any digits
	for _, secret := range []string{"sk-ant", "tok-en", "kk-11", "1234", "geheim", "abcdefgh", "987", "u:pw", "cs-1", "longer-text"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is in\n%s", secret, text)
		}
	}
	if !strings.Contains(text, "+    \"switchboard\": {") || !strings.Contains(text, "SOME_TOKEN: \"${file:secrets/a-some-token}\"") {
		t.Errorf("got\n%s", text)
	}
}

// Claude Code's file can be one line with everything that it knows.
func TestTheDifferencesOfAFileOnOneLineShowNoSecretOfTheRest(t *testing.T) {
	d := newDesk(t)
	more := strings.Repeat(`{"display":"a question"},`, 40)
	for _, rest := range []string{"", more} { // short, and too long to be shown as it is
		d.write(".claude.json", `{"primaryApiKey":"sk-ant-api03-abcdefgh12345678","numStartups":7,"oauthAccount":{"refresh_token":"rt-aaaa","email":"ann@example.com"},"history":[`+rest+
			`{"display":"export GH_TOKEN=hist-1234 && x"},{"display":"use ghp_0123456789abcdefghij"}],"mcpServers":{"a":{"command":"x","env":{"PIN":"geheim"}}}}`)
		p, err := Prepare(t.Context(), d.options("claude-code"))
		if err != nil {
			t.Fatal(err)
		}
		text := p.Diff(filepath.Base)
		for _, secret := range []string{"sk-ant", "rt-aaaa", "hist-1234", "ghp_", "geheim"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s is in\n%s", secret, text)
			}
		}
		if !strings.Contains(text, `"switchboard"`) || rest != "" && (strings.Contains(text, "numStartups") || !strings.Contains(text, "\n+    \"switchboard\": {\n")) {
			t.Errorf("got\n%s", text)
		}
	}
}
