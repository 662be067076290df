package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/endpoint"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A permittedPath is a path in the permissions of a server. It is compared with the places of others when all servers and the store are read.
type permittedPath struct {
	at     document.Value
	server *switchboard.Server
	path   string // absolute
}

// permissionKeys are the keys of what the program of a server may use besides what its level gives.
func (r *serverRow) permissionKeys() *document.Keys {
	w := &r.server.Walls
	paths := func(to *[]string, writes bool) document.Type {
		return document.Texts("a list of paths", func(texts []document.TextValue) { *to = r.readPermitted(texts, writes) })
	}
	return &document.Keys{
		Rows: []document.Row{
			{Key: "read", Type: paths(&w.Read, false), Doc: "Files and folders that it may read, with everything below. A relative path is relative to the folder of switchboard.yaml."},
			{Key: "write", Type: paths(&w.Write, true), Doc: "Files and folders that it may also change."},
			{Key: "exec", Type: paths(&w.Exec, false), Doc: "Programs, and folders of programs, that it may also execute."},
			{Key: "network", Type: networkType(r.readReach), Doc: "With `sandbox: strict`. `none` (the default): it can open no socket. `any`: connections over IP. A list such as `[api.example.com:443]`: TCP to these [hosts](walls.md#permitted-hosts), and nothing else."},
		},
		Hints: map[string]string{"net": `write "network"`, "hosts": `write "network"`, "execute": `write "exec"`, "run": `write "exec"`, "files": `write "read" or "write"`},
	}
}

// checkPermissions reports permissions that would have no effect.
func (r *serverRow) checkPermissions(m document.FixedMap) {
	switch r.server.Walls.Level {
	case switchboard.SandboxStrict:
	case switchboard.SandboxOff:
		m.Fault("at sandbox: off the program may do everything, so permissions do nothing; remove them, or write sandbox: standard or strict")
	default:
		if network, ok := m.Lookup("network"); ok {
			network.Fault("it counts at sandbox: strict alone, since the level standard gives the whole network; write sandbox: strict, or remove it")
		}
	}
}

// readPermitted returns the paths of one permission.
func (r *serverRow) readPermitted(texts []document.TextValue, writes bool) (out []string) {
	for _, t := range texts {
		s, ok := r.readArgument(t.Value)
		if !ok {
			continue
		}
		if strings.HasPrefix(s, "~") {
			t.Fault("%s: ~ is not read here; write the path of the folder", t.Shown())
			continue
		}
		if slices.Contains(strings.Split(filepath.ToSlash(s), "/"), "..") {
			t.Fault("%s: a path with .. may lead anywhere; write the place that is meant", t.Shown())
			continue
		}
		path := filepath.Clean(endpoint.Absolute(r.absDir, s))
		if why := badPermission(path, writes); why != "" {
			t.Fault("%s: %s", t.Shown(), why)
			continue
		}
		switch real, err := filepath.EvalSymlinks(path); {
		case os.IsNotExist(err):
			t.Warn("%s: nothing is there now, so it permits nothing until the server is started again", t.Shown())
		case err != nil:
			t.Fault("%s: %s", t.Shown(), document.ErrorText(err))
			continue
		case real != path:
			t.Fault("%s: it leads through a link, which may lead elsewhere tomorrow; write %s", t.Shown(), document.Shown(real))
			continue
		}
		r.permitted = append(r.permitted, permittedPath{at: t.Value, server: r.server, path: path})
		out = append(out, path)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// badPermission returns why no server may be given the path, or "".
func badPermission(path string, writes bool) string {
	switch {
	case filepath.Dir(path) == path:
		return "this is everything; name the folders that the server needs"
	case writes && (isWithin(path, "/proc") || isWithin(path, "/sys") || isWithin(path, "/dev")):
		return "what is written there changes the machine; a server that must do that needs sandbox: off"
	}
	return ""
}

// readReach reads the network of a server.
func (r *serverRow) readReach(v document.Value) {
	if v.Kind == document.KindList {
		r.server.Walls.Hosts = readHosts(v)
		return
	}
	s, _ := v.OneOf("network", "none", "any")
	r.server.Walls.AnyNetwork = s == "any"
}

// checkPermitted reports permissions for Switchboard's own files and for the folders of other servers.
func checkPermitted(f mainFile) {
	own := ownPlaces(f)
	for _, p := range f.permitted {
		if at := slices.IndexFunc(own, func(o string) bool { return overlap(o, p.path) }); at >= 0 {
			p.at.Fault("%s: Switchboard's own files are there (%s), and no server may be given them", p.at.Shown(), shownPlace(f.absDir, own[at]))
			continue
		}
		for _, id := range f.serverIDs {
			other := f.servers[id]
			if other != p.server && other.Dir != "" && other.Dir != p.server.Dir && overlap(other.Dir, p.path) {
				p.at.Fault("%s: the folder of server %q is there (%s); name a folder that no other server has", p.at.Shown(), id, shownPlace(f.absDir, other.Dir))
				break
			}
		}
	}
}

// OwnNames are the names of Switchboard's own files and folders beside a switchboard.yaml.
var OwnNames = []string{".switchboard", JournalFile, "admitted.lock", "capabilities", "overlays", "policies", "taxonomy.yaml", "taxonomy.yml", "tenants"}

// ownPlaces returns the absolute paths of Switchboard's own files and folders.
func ownPlaces(f mainFile) []string {
	places := []string{filepath.Join(f.absDir, filepath.Base(f.file))}
	for _, name := range OwnNames {
		places = append(places, filepath.Join(f.absDir, name))
	}
	if f.opts.Data != "" {
		if data, err := filepath.Abs(f.opts.Data); err == nil {
			places = append(places, data)
		}
	}
	if path, ok := strings.CutPrefix(f.cfg.Store.URL.Reveal(), "file:"); ok {
		places = append(places, path)
	}
	return places
}

// OwnFiles returns the absolute paths of the files and folders that are Switchboard's own: of the configuration, the secrets that it names, the
// store and the log.
func (c *Config) OwnFiles() (all []string) {
	add := func(paths ...string) {
		for _, path := range paths {
			if abs, err := filepath.Abs(path); path != "" && err == nil && abs != c.Folder {
				all = append(all, abs)
			}
		}
	}
	add(c.Watch...)
	for _, name := range OwnNames {
		add(filepath.Join(c.Folder, name))
	}
	if path, ok := strings.CutPrefix(c.Store.URL.Reveal(), "file:"); ok {
		add(path)
	}
	add(c.Log.To, c.Receipts.Anchor, c.TLS.Key, c.Admin.TLS.Key)
	for i := range c.Servers {
		add(c.Servers[i].Network.Key)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// shownPlace returns a path for a fault: relative to the folder of switchboard.yaml, if it is in it.
func shownPlace(folder, path string) string {
	if rel, err := filepath.Rel(folder, path); err == nil && isWithin(path, folder) {
		return document.Shown(rel)
	}
	return document.Shown(path)
}

// overlap reports whether one of two absolute paths is within the other.
func overlap(a, b string) bool { return isWithin(a, b) || isWithin(b, a) }

// isWithin reports whether path is the folder, or below it.
func isWithin(path, folder string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(folder, string(filepath.Separator)))
	return ok && (rest == "" || rest[0] == filepath.Separator)
}
