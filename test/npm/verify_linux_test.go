package npm_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	words "github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify"
	"github.com/summit-switchboard/switchboard/internal/verify/bench"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/system"
)

var updateReports = flag.Bool("update-reports", false, "write the reports on real servers into docs/verified-servers.md")

// inOwnNetwork is set for a run of this program in a network of its own.
const inOwnNetwork = "SWITCHBOARD_TEST_IN_OWN_NETWORK"

// Real servers are exercised in walls, with the rows of docs/walls.md. Nothing outside of their scratch folders changes, no packet leaves, and each tool has a report.
// docs/verified-servers.md shows them all.
func TestRealServersAreVerifiedInWallsAndChangeNothing(t *testing.T) {
	t.Parallel()
	needWalls(t)
	npmlock.Need(t, "npm servers and clients", "git")
	if os.Getenv(inOwnNetwork) == "" { // so that no packet of another test is counted
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=30m", fmt.Sprint("-update-reports=", *updateReports))
		cmd.SysProcAttr, cmd.Env = system.InOwnNetwork(), append(os.Environ(), inOwnNetwork+"=1", "HOME="+homeWithFiles(t))
		out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output() // of the home of this process
		folders := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || len(folders) != 2 {
			t.Fatalf("go env: %v: %s", err, out)
		}
		cmd.Env = append(cmd.Env, "GOCACHE="+folders[0], "GOMODCACHE="+folders[1])
		if out, err = cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	sent := system.CatchPackets(t)
	rows := wallsPage(t)
	folder := filepath.Dir(rows[slices.IndexFunc(rows, func(s words.Server) bool { return len(s.Walls.Write) > 0 })].Walls.Write[0])
	places := []string{folder, os.Getenv("HOME"), "node_modules"}
	switchboard(t) // what building it writes in HOME is there before
	before := treeOf(t, places...)
	limits := verify.CallLimits{Calls: 30}
	if *updateReports {
		limits = verify.CallLimits{}
	}
	lines, sections := make([][]string, len(rows)), make([]string, len(rows))
	turns := make(chan struct{}, 2)
	var all sync.WaitGroup
	for i := range rows {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			lines[i], sections[i] = verifyRow(t, &rows[i], limits)
		})
	}
	all.Wait()
	if changed := differing(before, treeOf(t, places...)); len(changed) > 0 {
		t.Errorf("outside of the scratch folders, these have changed: %q", changed)
	}
	if n := sent(); n > 0 {
		t.Errorf("%d packets have left", n)
	}
	for i, address := range []string{"198.51.100.1:9", "[2001:db8::1]:9"} { // packets of our own are counted
		if c, err := net.Dial("udp", address); err != nil {
			t.Error(err)
		} else if _, err := c.Write([]byte("x")); err != nil || sent() <= i || c.Close() != nil {
			t.Errorf("a packet to %s is not counted: %d, %v", address, sent(), err)
		}
	}
	page := "../../docs/verified-servers.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const mark = "<!-- reports -->\n"
	head, shown, found := strings.Cut(string(text), mark)
	if !found {
		t.Fatal("docs/verified-servers.md has no reports")
	}
	if *updateReports {
		if t.Failed() {
			return // the page stays as it is
		}
		reports := strings.Join(sections, "")
		if err := os.WriteFile(page, []byte(head+mark+reports+sealOf(reports)), 0o644); err != nil { //nolint:gosec // a page
			t.Fatal(err)
		}
		return
	}
	if at := strings.LastIndex(shown, sealMark); at < 0 || shown[at:] != sealOf(shown[:at]) {
		t.Error("the reports in docs/verified-servers.md were edited: write them anew with -update-reports")
	}
	for i, tools := range lines {
		_, section, _ := strings.Cut(string(text), "\n### "+string(rows[i].ID)+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		for _, tool := range tools {
			if !strings.Contains(section, "| "+tool+" |") {
				t.Errorf("docs/verified-servers.md has no report on %s of %s", tool, rows[i].ID)
			}
		}
	}
}

// sealMark begins the last line of the page.
const sealMark = "\n<!-- sha256 of the reports: "

// sealOf returns the last line of the page with these reports, so that nobody edits them by mistake.
func sealOf(reports string) string {
	return fmt.Sprintf("%s%x -->\n", sealMark, sha256.Sum256([]byte(reports)))
}

// homeWithFiles returns a home with what programs look for there, and with folders that they write to.
func homeWithFiles(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	for _, name := range []string{".ssh/id_ed25519", ".npmrc", ".config/settings.json", ".cache/data", "notes.txt"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, name), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// verifyRow verifies the tools of one server, and returns their names, and the part of the page.
func verifyRow(t *testing.T, s *words.Server, limits verify.CallLimits) (tools []string, section string) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s\n\n", s.ID)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	x, err := bench.Start(ctx, s, bench.Options{Guard: []string{switchboard(t), "guard"}, Own: func() []string { return nil }, Dir: s.Dir, Name: "switchboard", Version: "test"})
	if err != nil {
		t.Errorf("%s: %v", s.ID, err)
		return nil, b.String() + err.Error() + "\n"
	}
	defer x.Close()
	b.WriteString("| tool | score | calls | verified, or why not |\n| --- | --- | --- | --- |\n")
	known := map[string]any{}
	timeout := 20 * time.Second // one tool takes ten
	for _, name := range x.Names() {
		definition, digest, err := x.Definition(name, nil)
		if err != nil {
			t.Errorf("%s/%s: %v", s.ID, name, err)
			continue
		}
		id := words.ToolID{Server: s.ID, Name: name}
		if err := x.Restore(); err != nil {
			t.Errorf("%s/%s: %v", s.ID, name, err)
		}
		r := verify.Verify(ctx, &verify.VerifiedTool{ID: id, Digest: digest, Definition: definition, Contract: hintsOf(t, definition), Timeout: timeout}, &words.Tool{ID: id, Definition: definition}, verify.RunOptions{
			Caller: x, Leave: verify.LeaveWalls, Walls: x.Walls(), Limits: limits, Place: x.Place(known), Inspect: x.Inspect, Canaries: x.Canaries(), Mask: x.Mask,
			Learn: func(result []byte) { verify.Returned(known, result) },
		})
		if r.Calls == 0 {
			t.Errorf("%s/%s was not called: %s", s.ID, name, r.Text())
		}
		tools = append(tools, name)
		said := "verified"
		if !r.Verified {
			said = r.Reason()
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s |\n", name, verify.Thousandths(r.Score), r.Calls, strings.ReplaceAll(said, "|", `\|`))
	}
	return tools, b.String()
}

// hintsOf returns what a tool says about itself.
func hintsOf(t *testing.T, definition []byte) (c words.Contract) {
	t.Helper()
	var d struct {
		Annotations struct {
			ReadOnlyHint, IdempotentHint bool
		} `json:"annotations"`
	}
	if err := json.Unmarshal(definition, &d); err != nil {
		t.Error(err)
	}
	if d.Annotations.ReadOnlyHint {
		c.ReadOnly = words.Fact{Holds: true, Source: words.FromHint}
	}
	if d.Annotations.IdempotentHint {
		c.Idempotent = words.Fact{Holds: true, Source: words.FromHint}
	}
	return c
}

// treeOf returns what is in folders, by path. Programs cannot set the time at which a file was changed last (ctime), so no content needs to be read.
func treeOf(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, folder := range folders {
		if err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				all[path] = fmt.Sprint(info.Mode(), info.Size(), info.Sys().(*syscall.Stat_t).Ctim)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// differing returns the paths that differ between two trees.
func differing(a, b map[string]string) (paths []string) {
	for path, is := range b {
		if a[path] != is {
			paths = append(paths, path)
		}
	}
	for path := range a {
		if _, ok := b[path]; !ok {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}
