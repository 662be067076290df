package connect

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A repository can hold a link with the name that the backup would have.
func TestABackupNeverFollowsALink(t *testing.T) {
	d := newDesk(t)
	d.write("work/.vscode/mcp.json", `{"servers": {"a": {"command": "x"}}}`)
	d.write(".bashrc", "mine\n")
	if err := os.Symlink(d.path(".bashrc"), d.path("work/.vscode/mcp.json.before-switchboard")); err != nil {
		t.Fatal(err)
	}
	o := d.options("vscode")
	o.Scopes = []Scope{ScopeProject}
	d.connect(o)
	if got := d.read(".bashrc"); got != "mine\n" {
		t.Errorf("the file behind the link holds %q", got)
	}
	if got := d.read("work/.vscode/mcp.json.before-switchboard-2"); !strings.Contains(got, `"a"`) {
		t.Errorf("the backup is %q", got)
	}
}

func TestABackupIsNeverOverwritten(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	d.reformat("later")
	d.disconnect("claude-code")
	second := d.read(".claude.json")
	d.connect(d.options("claude-code"))
	if got := d.read(".claude.json.before-switchboard"); got != twoServers {
		t.Errorf("the first backup is\n%s", got)
	}
	if got := d.read(".claude.json.before-switchboard-2"); got != second {
		t.Errorf("the second backup is\n%s", got)
	}
	// The record is lost, and with it what was taken out: the backups are the only copies.
	if err := os.RemoveAll(d.path("sb/.switchboard")); err != nil {
		t.Fatal(err)
	}
	o := d.options("claude-code")
	o.Target.Command = append(o.Target.Command, "--task", "all")
	d.connect(o)
	if d.read(".claude.json.before-switchboard") != twoServers || d.read(".claude.json.before-switchboard-2") != second {
		t.Error("a backup was overwritten")
	}
}

// opencode has renamed its file, and the user has moved our entry to the project.
func TestOurEntryIsTakenOutWhereverItIsNow(t *testing.T) {
	d := newDesk(t)
	d.write(".config/opencode/opencode.json", `{"mcp": {"a": {"type": "local", "command": ["x"]}}}`)
	d.connect(d.options("opencode"))
	d.write(".config/opencode/opencode.jsonc", "// new\n"+d.read(".config/opencode/opencode.json"))
	if err := os.Remove(d.path(".config/opencode/opencode.json")); err != nil {
		t.Fatal(err)
	}
	d.write("work/opencode.json", strings.TrimPrefix(d.read(".config/opencode/opencode.jsonc"), "// new\n"))
	d.disconnect("opencode")
	if got := d.names("opencode", ".config/opencode/opencode.jsonc"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the renamed file has %q", got)
	}
	if got := d.names("opencode", "work/opencode.json"); len(got) > 0 {
		t.Errorf("the project has %q", got)
	}
	if got := d.read(".config/opencode/opencode.json"); got != "(none)" {
		t.Errorf("the old file is there again: %s", got)
	}
}

func TestAnEntryThatWasMovedWithinTheFileIsTakenOut(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	var moved strings.Builder
	moved.WriteString(`{"mcpServers": {}, "projects": {"` + d.path("work") + `": `)
	moved.WriteString(d.read(".claude.json"))
	moved.WriteString("}}")
	d.write(".claude.json", moved.String())
	d.disconnect("claude-code")
	if got := d.read(".claude.json"); strings.Contains(got, `"switchboard"`) || !strings.Contains(got, `"Files"`) {
		t.Errorf("the file is\n%s", got)
	}
}

func TestWithoutARecordOurEntryIsTakenOut(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", "{\n  \"mcpServers\": {\n    \"other\": {\"command\": \"x\"},\n    \"sb\": {\"command\": \"switchboard\", \"args\": [\"stdio\", \"--config\", \""+d.path("sb/switchboard.yaml")+"\"]}\n  }\n}\n")
	d.disconnect("claude-code")
	if got := d.read(".claude.json"); got != "{\n  \"mcpServers\": {\n    \"other\": {\"command\": \"x\"}\n  }\n}\n" {
		t.Errorf("the file is\n%s", got)
	}
	if _, err := Disconnect(t.Context(), d.disconnection("claude-code")); !errors.Is(err, ErrNotConnected) {
		t.Errorf("%v", err)
	}
	if _, err := Disconnect(t.Context(), d.disconnection("cursor")); !errors.Is(err, ErrNotConnected) || exists(d.path("sb/.switchboard/connected/cursor.json")) {
		t.Errorf("%v", err)
	}
}

func TestAProjectThatIsGoneDoesNotKeepTheOthersConnected(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.write("work/.mcp.json", `{"mcpServers": {"p": {"command": "run"}}}`)
	o := d.options("claude-code")
	o.Scopes = []Scope{ScopeUser, ScopeProject}
	d.connect(o)
	if err := os.RemoveAll(d.path("work")); err != nil {
		t.Fatal(err)
	}
	u := d.disconnect("claude-code")
	if d.read(".claude.json") != twoServers {
		t.Errorf("the user's file is\n%s", d.read(".claude.json"))
	}
	if !slices.ContainsFunc(u.Files, func(f UndoneFile) bool { return slices.Equal(f.Dropped, []string{"p"}) }) || exists(d.path("work")) {
		t.Errorf("disconnect says %+v", u.Files)
	}
}

// The message says that nothing was changed.
func TestDisconnectChangesNothingIfOneFileIsBroken(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.write("work/.mcp.json", `{"mcpServers": {"p": {"command": "run"}}}`)
	o := d.options("claude-code")
	o.Scopes = []Scope{ScopeUser, ScopeProject}
	d.connect(o)
	d.write("work/.mcp.json", "{")
	before := d.read(".claude.json")
	_, err := Disconnect(t.Context(), d.disconnection("claude-code"))
	if err == nil || !strings.Contains(err.Error(), ".mcp.json:1:2") || !strings.Contains(err.Error(), "Nothing was changed") {
		t.Errorf("%v", err)
	}
	if d.read(".claude.json") != before || !strings.Contains(d.read("sb/switchboard.yaml"), "npx") {
		t.Error("something was changed")
	}
	d.write("work/.mcp.json", "{}")
	d.disconnect("claude-code")
	if d.read(".claude.json") != twoServers || !slices.Equal(d.names("claude-code", "work/.mcp.json"), []string{"p"}) {
		t.Errorf("the files are\n%s\n%s", d.read(".claude.json"), d.read("work/.mcp.json"))
	}
}

func TestAnEmptyFileIsEmptyAgain(t *testing.T) {
	d := newDesk(t)
	d.write(".codex/config.toml", "")
	d.connect(d.options("codex"))
	if u := d.disconnect("codex"); d.read(".codex/config.toml") != "" || !u.Files[0].Exact {
		t.Errorf("the file is %q, and disconnect says %+v", d.read(".codex/config.toml"), u.Files)
	}
	// Emptied by the user.
	d.connect(d.options("codex"))
	d.write(".codex/config.toml", "")
	d.disconnect("codex")
	if got := d.read(".codex/config.toml"); got != "" {
		t.Errorf("the file is %q", got)
	}
}

func TestTwoServersThatHadTheSameNameOneAfterTheOtherBothComeBack(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	d.reformat("web")
	d.connect(d.options("claude-code"))
	d.reformat("third")
	d.disconnect("claude-code")
	if got := d.names("claude-code", ".claude.json"); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"Files", "third", "web", "web-2"}) {
		t.Errorf("the file has %q", got)
	}
	if rows, err := rowDigests([]byte(d.read("sb/switchboard.yaml"))); err != nil || len(rows) > 0 {
		t.Errorf("the configuration still has %v, %v", rows, err)
	}
}

// A user who has changed a secret in its file would lose it.
func TestASecretThatTheUserHasChangedStays(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	d.write("sb/secrets/files-token", "rotated\n")
	u := d.disconnect("claude-code")
	if d.read("sb/secrets/files-token") != "rotated\n" || !strings.Contains(d.read("sb/switchboard.yaml"), "files-token") {
		t.Errorf("the secret is %q", d.read("sb/secrets/files-token"))
	}
	if !slices.Contains(u.Servers, LeftServer{ID: "files", Stays: "its secret in secrets/files-token has been changed"}) {
		t.Errorf("disconnect says %+v", u.Servers)
	}
}

func TestAServerThatSomethingElseNamesKeepsNoOtherServer(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	d.write("sb/switchboard.yaml", d.read("sb/switchboard.yaml")+"tenants:\n  default:\n    servers: [files]\n")
	u := d.disconnect("claude-code")
	if got := d.read("sb/switchboard.yaml"); !strings.Contains(got, "npx") || strings.Contains(got, "example.com") {
		t.Errorf("disconnect says %+v, and the configuration is\n%s", u.Servers, got)
	}
}

// The second run fails; the first connection is not undone by that.
func TestAFailedRunLeavesEarlierOnesAlone(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	files := []string{".claude.json", ".claude.json.before-switchboard", "sb/switchboard.yaml", "sb/.switchboard/connected/claude-code.json", "sb/secrets/files-token"}
	before := map[string]string{}
	for _, f := range files {
		before[f] = d.read(f)
	}
	d.write(".claude.json", strings.Replace(before[".claude.json"], `"mcpServers": {`, `"mcpServers": {"p": {"command": "run", "env": {"P_TOKEN": "t-1"}},`, 1))
	before[".claude.json"] = d.read(".claude.json")
	if err := os.Symlink("nowhere", d.path("work/.mcp.json")); err != nil { // the last file cannot be written
		t.Fatal(err)
	}
	o := d.options("claude-code")
	o.Scopes = []Scope{ScopeUser, ScopeProject}
	p, err := Prepare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "is a link to a file that does not exist") || outcome(p) != "p=p" {
		t.Fatalf("%v, %s", err, outcome(p))
	}
	for _, f := range files {
		if got := d.read(f); got != before[f] {
			t.Errorf("%s is\n%s\nwant\n%s", f, got, before[f])
		}
	}
	if secrets, _ := filepath.Glob(d.path("sb/secrets/*")); len(secrets) != 1 {
		t.Errorf("the secrets are %v", secrets)
	}
}

func TestTheEntryOfAnotherConfigurationStays(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	other := `"other": {"command": "switchboard", "args": ["stdio", "--config", "/else/switchboard.yaml"]}`
	d.write(".claude.json", strings.Replace(d.read(".claude.json"), `"mcpServers": {`, `"mcpServers": {`+other+",", 1))
	d.disconnect("claude-code")
	if got := d.names("claude-code", ".claude.json"); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"Files", "other", "web"}) {
		t.Errorf("the file has %q", got)
	}
}

func TestASecretThatAnotherRowNamesStays(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	d.write("sb/switchboard.yaml", d.read("sb/switchboard.yaml")+"  mine:\n    transport: stdio\n    command: [x]\n    env:\n      TOKEN: \"${file:secrets/files-token}\"\n")
	d.disconnect("claude-code")
	if got := d.read("sb/switchboard.yaml"); d.read("sb/secrets/files-token") != "geheim-1234\n" || strings.Contains(got, "npx") || !strings.Contains(got, "mine:") {
		t.Errorf("the secret is %q, and the configuration\n%s", d.read("sb/secrets/files-token"), got)
	}
}

func TestAServerThatIsBackAlreadyComesBackOnce(t *testing.T) {
	d := newDesk(t)
	d.write(".claude.json", twoServers)
	d.connect(d.options("claude-code"))
	d.write(".claude.json", strings.Replace(d.read(".claude.json"), `"mcpServers": {`, `"mcpServers": {"web": {"url": "https://example.com/mcp", "type": "http"},`, 1))
	u := d.disconnect("claude-code")
	if got := d.names("claude-code", ".claude.json"); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"Files", "web"}) || u.Files[0].Renamed != nil {
		t.Errorf("the file has %q, and disconnect says %+v", got, u.Files)
	}
}
