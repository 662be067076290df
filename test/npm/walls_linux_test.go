package npm_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/config"
	words "github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/system"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// needWalls skips the test where the kernel lacks what the level strict demands.
func needWalls(t *testing.T) {
	t.Helper()
	if abi, _, _ := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); abi < 6 || abi > 1<<16 {
		t.Skipf("skipped: walls (this kernel has version %d of Landlock, and the tests need 6)", int(abi))
	}
	system.NeedNetworks(t) // some rows name hosts
}

// wallsPage returns the servers at sandbox: strict that docs/walls.md shows, in a folder of their own.
func wallsPage(t *testing.T) []words.Server {
	t.Helper()
	page, err := os.ReadFile("../../docs/walls.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "<!-- servers at strict -->\n```yaml\n")
	text, _, ok := strings.Cut(rest, "```\n<!-- end of servers -->")
	if !ok {
		t.Fatal("docs/walls.md shows no servers")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"docs", "memory", "repositories"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, "/srv/mcp", here), "/srv/", dir+"/")
	conf := filepath.Join(t.TempDir(), "switchboard.yaml")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(t.Context(), conf, config.Options{Env: func(name string) (string, bool) { return "none-of-" + name, true }})
	if err != nil {
		t.Fatal(err)
	}
	return c.Servers
}

// What real servers offer is the same behind walls, byte for byte: with the rows of docs/walls.md at strict, and with the same rows at standard and off.
func TestRealServersOfferTheSameBehindWalls(t *testing.T) {
	t.Parallel()
	needWalls(t)
	npmlock.Need(t, "npm servers and clients", "git")
	rows := wallsPage(t)
	if len(rows) != 13 {
		t.Errorf("docs/walls.md shows %d servers, and says that they are thirteen", len(rows))
	}
	without := offersAt(t, rows, words.SandboxOff)
	if len(without) != len(rows) {
		t.Fatalf("%d of %d servers offer something", len(without), len(rows))
	}
	for _, level := range []words.Sandbox{words.SandboxStandard, words.SandboxStrict} {
		behind := offersAt(t, rows, level)
		for _, id := range slices.Sorted(maps.Keys(without)) {
			a, b := without[id], behind[id]
			if got, want := textOf(b), textOf(a); got != want || len(a.Tools) == 0 {
				t.Errorf("%s at %s offers\n%.600s\nwithout walls\n%.600s", id, level, got, want)
			}
		}
	}
}

// textOf returns all that an offer holds, as text.
func textOf(o words.Offer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%q\n", o.Capabilities, o.Instructions)
	for _, k := range []words.Kind{words.Tools, words.Prompts, words.Resources, words.Templates} {
		for _, entry := range o.List(k) {
			fmt.Fprintf(&b, "%s\n", entry)
		}
	}
	return b.String()
}

// Real servers behind Switchboard, at sandbox: standard, answer a client as they do without Switchboard and without walls.
func TestRealServersAnswerTheSameBehindWalls(t *testing.T) {
	t.Parallel()
	needWalls(t)
	dir := real(t)
	file := filepath.Join(dir, "switchboard.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.ReplaceAll(string(text), "    transport: stdio\n", "    transport: stdio\n    sandbox: standard\n"))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	g := serve(t, dir)
	direct := ask(t, dir)
	c := clients[slices.IndexFunc(clients, func(c client) bool { return c.raw })]
	for name, task := range tasks {
		ops := []op{list}
		for _, u := range task.uses {
			ops = append(ops, call(u.shown, in(dir, u.args)))
		}
		answers := c.do(t, g, name, ops)
		listed(t, c, answers[0], task.shows, direct)
		for i, u := range task.uses {
			same(t, c, u, answers[1+i], direct[u.of()])
		}
	}
}

// offersAt returns what servers at a level offer.
func offersAt(t *testing.T, rows []words.Server, level words.Sandbox) map[words.ServerID]words.Offer {
	t.Helper()
	rows = slices.Clone(rows)
	for i := range rows {
		if rows[i].Walls.Level = level; level != words.SandboxStrict {
			rows[i].Walls = words.Confinement{Level: level}
		}
	}
	type answer struct {
		id  words.ServerID
		why string
	}
	answered := make(chan answer, 4*len(rows))
	fleet := upstream.New(upstream.Options{
		OnePrincipal: true, Guard: []string{switchboard(t), "guard"}, Own: func() []string { return nil },
		OnLink: func(id words.ServerID, up bool, why *upstream.Failure) {
			a := answer{id: id}
			if !up && why != nil {
				a.why = why.Message
			}
			answered <- a
		},
	})
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		fleet.Close(ending)
	}()
	fleet.Set(rows)
	late := time.After(patience)
	for ready := map[words.ServerID]bool{}; len(ready) < len(rows); {
		select {
		case a := <-answered:
			if a.why != "" {
				t.Fatalf("%s at %s: %s", a.id, level, a.why)
			}
			ready[a.id] = true
		case <-late:
			wait.Late(t, "the servers at %s: not after %s", level, patience)
		}
	}
	offers := map[words.ServerID]words.Offer{}
	for _, o := range fleet.Offers() {
		offers[o.Server] = o
	}
	return offers
}
