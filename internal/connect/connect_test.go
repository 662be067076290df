package connect

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/clientfile"
	"github.com/summit-switchboard/switchboard/internal/config"
)

// A desk is a home folder with the files of a client.
type desk struct {
	t    *testing.T
	host *Host
	home string
	env  map[string]string
}

func newDesk(t *testing.T) *desk {
	d := &desk{t: t, home: t.TempDir(), env: map[string]string{}}
	d.host = &Host{
		OS: "linux", Home: d.home, Dir: filepath.Join(d.home, "work"),
		Env:      func(name string) (string, bool) { v, ok := d.env[name]; return v, ok },
		LookPath: func(string) (string, error) { return "", exec.ErrNotFound },
	}
	d.mkdir("work")
	return d
}

func (d *desk) path(name string) string { return filepath.Join(d.home, filepath.FromSlash(name)) }

func (d *desk) mkdir(name string) {
	d.t.Helper()
	if err := os.MkdirAll(d.path(name), 0o700); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) write(name, text string) {
	d.t.Helper()
	d.mkdir(filepath.Dir(name))
	if err := os.WriteFile(d.path(name), []byte(text), 0o640); err != nil {
		d.t.Fatal(err)
	}
}

// read returns the content of a file, or "(none)".
func (d *desk) read(name string) string {
	d.t.Helper()
	text, err := readFile(d.path(name))
	if err != nil {
		d.t.Fatal(err)
	}
	if text == nil {
		return "(none)"
	}
	return string(text)
}

func (d *desk) options(client string) Options {
	file := d.path("sb/switchboard.yaml")
	return Options{
		Client: Find(client), Host: d.host, Config: file, Head: "# made\n", Data: d.path("sb/.switchboard"), Scopes: []Scope{ScopeUser},
		Target: SwitchboardEntry{Command: []string{"switchboard", "stdio", "--config", file}},
		Read:   config.Options{Env: d.host.Env},
	}
}

func (d *desk) connect(o Options) *Plan {
	d.t.Helper()
	p, err := Prepare(d.t.Context(), o)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := p.Apply(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	return p
}

func (d *desk) disconnection(client string) Disconnection {
	return Disconnection{Client: Find(client), Host: d.host, Config: d.path("sb/switchboard.yaml"), Data: d.path("sb/.switchboard"), Read: config.Options{Env: d.host.Env}}
}

func (d *desk) disconnect(client string) *Undone {
	d.t.Helper()
	u, err := Disconnect(d.t.Context(), d.disconnection(client))
	if err != nil {
		d.t.Fatal(err)
	}
	return u
}

// outcome says what becomes of the servers, on one line.
func outcome(p *Plan) string {
	var parts []string
	for _, s := range p.Servers {
		text := s.Name + "=" + string(s.ID)
		if s.Shared {
			text += " shared"
		}
		if s.Stays != "" {
			text = s.Name + " stays: " + s.Stays
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// place puts the file of a given onto the desk.
func (d *desk) place(g given) {
	here := func(s string) string { return strings.ReplaceAll(s, "HOME/", d.home+"/") }
	for name, value := range g.env {
		d.env[name] = here(value)
	}
	d.write(g.file, here(g.text))
}

// RD-01: connect takes out what it says and nothing else, a second run changes nothing, and disconnect gives the same bytes back.
func TestRD01OnlyTheAnnouncedChangesAndTheSameBytesAgain(t *testing.T) {
	for _, g := range files {
		t.Run(g.name, func(t *testing.T) {
			d := newDesk(t)
			d.place(g)
			before := d.read(g.file)
			o := d.options(g.client)
			p, err := Prepare(t.Context(), o)
			if err != nil || g.problem != "" && g.want == "" {
				if err == nil || g.problem == "" || !strings.Contains(err.Error(), g.problem) {
					t.Fatalf("%v, want %q", err, g.problem)
				}
				if d.read(g.file) != before || d.read("sb/switchboard.yaml") != "(none)" {
					t.Error("something was written")
				}
				return
			}
			if got := outcome(p); got != g.want {
				t.Errorf("got\n%s\nwant\n%s", got, g.want)
			}
			if g.problem != "" && !strings.Contains(strings.Join(p.Problems, "\n"), g.problem) {
				t.Errorf("problems %q, want %q", p.Problems, g.problem)
			}
			if err := p.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkConnected(t, d, g, p)
			if backup := d.read(g.file + ".before-switchboard"); backup != before {
				t.Errorf("the backup is %q", backup)
			}

			again, err := Prepare(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if again.Changed() {
				t.Errorf("a second run would change %+v", again.Changes)
			}

			u := d.disconnect(g.client)
			if got := d.read(g.file); got != before {
				t.Errorf("after disconnect:\n%s\nwant\n%s", got, before)
			}
			if len(u.Files) != 1 || !u.Files[0].Exact {
				t.Errorf("disconnect says %+v", u)
			}
			for _, left := range []string{g.file + ".before-switchboard", "sb/.switchboard/connected/" + g.client + ".json"} {
				if d.read(left) != "(none)" {
					t.Errorf("%s is left", left)
				}
			}
			if rows, err := rowDigests([]byte(d.read("sb/switchboard.yaml"))); err != nil || len(rows) > 0 {
				t.Errorf("the configuration still has %v, %v", rows, err)
			}
			if secrets, _ := filepath.Glob(d.path("sb/secrets/*")); len(secrets) > 0 {
				t.Errorf("secrets are left: %v", secrets)
			}
		})
	}
}

// checkConnected checks the client's file and the configuration after connect.
func checkConnected(t *testing.T, d *desk, g given, p *Plan) {
	t.Helper()
	adopted := map[string]bool{}
	for _, s := range p.Servers {
		if s.Stays == "" {
			adopted[placeKey(s.Place)+s.Name] = true
		}
	}
	ours := 0
	for _, place := range Find(g.client).places(d.host) {
		text, err := readFile(place.File)
		if err != nil {
			t.Fatal(err)
		}
		if text == nil {
			continue
		}
		entries, err := clientfile.ListServers(place.File, text, Find(g.client).form, place.Section)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if configuration, is := ourEntry(e); is && configuration == d.path("sb/switchboard.yaml") {
				ours++
			} else if adopted[placeKey(place)+e.Name] {
				t.Errorf("%s is still in %s", e.Name, text)
			}
		}
	}
	if ours != 1 {
		t.Errorf("%d entries of ours in\n%s", ours, d.read(g.file))
	}
	cfg, err := config.Load(t.Context(), d.path("sb/switchboard.yaml"), config.Options{Env: d.host.Env})
	if err == nil {
		err = cfg.Err()
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, d.read("sb/switchboard.yaml"))
	}
	ids := map[string]bool{}
	for _, s := range p.Servers {
		if s.Stays == "" {
			ids[string(s.ID)] = true
		}
	}
	if len(cfg.Servers) != len(ids) {
		t.Errorf("%d servers in\n%s\nwant %v", len(cfg.Servers), d.read("sb/switchboard.yaml"), ids)
	}
}
