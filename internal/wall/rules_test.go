package wall

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// memoryDisk is a disk of files by path. A value that begins with -> is a link. Folders follow from the files in them.
type memoryDisk map[string]string

func (d memoryDisk) List(dir string) (names []string) {
	for file := range d {
		if rest, ok := strings.CutPrefix(file, strings.TrimSuffix(dir, "/")+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (d memoryDisk) Real(p string) (string, bool) {
	if to, ok := strings.CutPrefix(d[p], "->"); ok {
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(p), to)
		}
		return d.Real(to)
	}
	if !path.IsAbs(p) {
		return "", false
	}
	if p != "/" {
		if up, ok := d.Real(path.Dir(p)); ok && up != path.Dir(p) {
			return d.Real(path.Join(up, path.Base(p)))
		}
	}
	_, file := d[p]
	return p, file || len(d.List(p)) > 0
}

func (d memoryDisk) Kind(p string) (dir, ok bool) {
	real, ok := d.Real(p)
	_, file := d[real]
	return ok && !file, ok
}

func (d memoryDisk) Link(p string) (string, bool) { return strings.CutPrefix(d[p], "->") }

func (d memoryDisk) Match(pattern string) (found []string) {
	for file := range d {
		if ok, _ := path.Match(pattern, file); ok {
			found = append(found, file)
		}
	}
	return found
}

func (d memoryDisk) FirstLine(p string) string {
	real, _ := d.Real(p)
	return d[real]
}

// ourDisk has a home with secrets, Switchboard's files in a project, and a program that is a script.
var ourDisk = memoryDisk{
	"/bin/tool": "#!/usr/bin/env -S runner --flag", "/usr/bin/env": "", "/usr/bin/runner": "", "/etc/passwd": "", "/etc/shadow": "",
	"/home/u/.ssh/id": "", "/home/u/notes/a": "", "/home/u/.npm/x": "", "/home/u/.aws": "->/mnt/cloud", "/mnt/cloud/keys": "", "/mnt/other": "",
	"/home/u/project/switchboard.yaml": "", "/home/u/project/.switchboard/store": "", "/home/u/project/src/main": "", "/home/u/project/out": "->/home/u/.ssh",
	"/dev/null": "", "/dev/sda": "", "/srv/data/file": "", "/tmp/x": "",
	"/dev/shm/p/switchboard.yaml": "", "/dev/shm/p/.switchboard/store": "", "/dev/shm/p/work/file": "", "/dev/shm/q": "",
}

var ourMachine = Machine{Home: "/home/u", Dir: "/home/u/project", Own: []string{"/home/u/project/.switchboard", "/home/u/project/switchboard.yaml", "/dev/shm/p/.switchboard", "/dev/shm/p/switchboard.yaml"}}

// granted returns the paths that have a right, and the folders in which nothing can be made.
func granted(o *Order, right rights) (paths, fixed []string) {
	all, fixed := o.rules(ourDisk)
	for _, r := range all {
		if r.allow&right != 0 {
			paths = append(paths, r.path)
		}
	}
	return paths, fixed
}

// includes reports whether a rule includes the path.
func includes(rules []string, p string) bool {
	return slices.ContainsFunc(rules, func(r string) bool { return within(p, r) })
}

func TestNothingHiddenIsInARule(t *testing.T) {
	named := func(words ...string) []string { return append([]string{"tool"}, words...) }
	for name, s := range map[string]*switchboard.Server{
		"in its folder":               {Command: named()},
		"with the home as argument":   {Command: named("/home/u")},
		"with everything as argument": {Command: named("/", "--root=/")},
		"with Switchboard's files":    {Command: named("/home/u/project/.switchboard/store", "./switchboard.yaml")},
		"with a link to a secret":     {Command: named("./out"), Dir: "/home/u/project"},
		"in the home":                 {Command: named(), Dir: "/home/u"},
		"strict, with the home":       {Command: named("/home/u"), Walls: switchboard.Confinement{Level: switchboard.SandboxStrict, Read: []string{"/home/u"}, Write: []string{"/home/u/project"}}},
	} {
		o := Plan(s, "/bin/tool", nil, ourMachine)
		reads, _ := granted(o, readRight)
		writes, _ := granted(o, writeRight)
		secrets := []string{"/home/u/.ssh/id", "/mnt/cloud/keys", "/home/u/project/switchboard.yaml", "/home/u/project/.switchboard/store", "/dev/sda", "/dev/shm/p/switchboard.yaml", "/dev/shm/p/.switchboard/store"}
		if name == "with a link to a secret" { // the operator has named it, by its link
			secrets = secrets[1:]
		}
		for _, secret := range secrets {
			if includes(reads, secret) || includes(writes, secret) {
				t.Errorf("%s: it gets %s, by %q", name, secret, reads)
			}
		}
	}
}

func TestTheStandardLevelWritesFewPlaces(t *testing.T) {
	s := &switchboard.Server{
		Command: []string{"npx", "-y", "@scope/server", "/srv/data", "--db=/srv/new/db.sqlite", "https://example.com/a/b", "/etc/passwd"}, Dir: "/home/u/project/src",
		Env: map[string]switchboard.Secret{"FILE": switchboard.NewSecret("/tmp/x"), "CACHE_DIR": switchboard.NewSecret("/srv/cache"), "TOKEN": switchboard.NewSecret("a/b")},
	}
	o := Plan(s, "/usr/bin/npx", []string{"HOME=/home/u"}, ourMachine)
	writes, fixed := granted(o, writeRight)
	want := []string{"/dev/null", "/dev/shm/p/work", "/dev/shm/q", "/home/u/.npm", "/home/u/project/src", "/srv/data", "/tmp", "/tmp/x"}
	if !slices.Equal(writes, want) || fixed != nil {
		t.Errorf("it writes %q, want %q; fixed are %q", writes, want, fixed)
	}
	if want := []string{"/home/u/.cache/node", "/home/u/.npm", "/srv/cache"}; !slices.Equal(o.Made, want) {
		t.Errorf("%q are made, want %q", o.Made, want)
	}
	reads, _ := granted(o, readRight)
	for _, path := range []string{"/home/u/notes/a", "/etc/passwd", "/mnt/other", "/usr/bin/env"} {
		if !includes(reads, path) {
			t.Errorf("it cannot read %s", path)
		}
	}
}

// A program that may change a folder with Switchboard's own files in it can make nothing there, and the report says so.
func TestAFolderWithSomethingHiddenIsFixed(t *testing.T) {
	o := Plan(&switchboard.Server{Command: []string{"tool"}}, "/bin/tool", nil, ourMachine)
	writes, fixed := granted(o, writeRight)
	if want := []string{"/home/u/project"}; !slices.Equal(fixed, want) {
		t.Errorf("fixed are %q, want %q", fixed, want)
	}
	if !includes(writes, "/home/u/project/src/main") || includes(writes, "/home/u/project/new") {
		t.Errorf("it writes %q", writes)
	}
}

func TestTheStrictLevelReadsItsProgramAndItsPermissions(t *testing.T) {
	s := &switchboard.Server{
		Command: []string{"tool", "/srv/data/file", "/home/u/notes"},
		Walls:   switchboard.Confinement{Level: switchboard.SandboxStrict, Read: []string{"/mnt/other"}, Write: []string{"/home/u/project/src"}, Exec: []string{"/usr/bin/runner"}},
	}
	o := Plan(s, "/bin/tool", nil, ourMachine)
	reads, _ := granted(o, readRight)
	for path, want := range map[string]bool{
		"/bin/tool": true, "/usr/bin/env": true, "/mnt/other": true, "/srv/data/file": true, "/home/u/project/src/main": true,
		"/home/u/notes/a": false, "/home/u/.npm/x": false, "/tmp/x": false, "/etc/shadow": false,
	} {
		if includes(reads, path) != want {
			t.Errorf("that it reads %s is not %v: %q", path, want, reads)
		}
	}
	// The kernel executes what the first line of a script names.
	t.Setenv("PATH", "/usr/bin")
	if runs, _ := granted(o, execRight); !slices.Equal(runs, []string{"/bin/tool", "/usr/bin/env", "/usr/bin/runner"}) {
		t.Errorf("it executes %q", runs)
	}
	if !o.NoNetwork || !o.OwnHome || !o.OwnTemp {
		t.Errorf("its order is %+v", o)
	}
}

// What the operator names for one server is not hidden from it, and stays hidden from the others.
func TestASecretThatTheOperatorNamesIsRead(t *testing.T) {
	s := &switchboard.Server{Command: []string{"tool"}, Env: map[string]switchboard.Secret{"KEY_FILE": switchboard.NewSecret("/home/u/.ssh/id")}}
	reads, _ := granted(Plan(s, "/bin/tool", nil, ourMachine), readRight)
	writes, _ := granted(Plan(s, "/bin/tool", nil, ourMachine), writeRight)
	if !slices.Contains(reads, "/home/u/.ssh/id") || includes(writes, "/home/u/.ssh/id") {
		t.Errorf("it reads %q and writes %q", reads, writes)
	}
}

// Permissions give what the level standard hides, and nothing beside it.
func TestPermissionsWidenTheStandardLevel(t *testing.T) {
	s := &switchboard.Server{Command: []string{"tool"}, Dir: "/srv/data", Walls: switchboard.Confinement{Read: []string{"/home/u/.ssh/id"}, Write: []string{"/home/u/notes"}}}
	disk := maps.Clone(ourDisk)
	disk["/home/u/.ssh/other"] = ""
	all, _ := Plan(s, "/bin/tool", nil, ourMachine).rules(disk)
	for path, want := range map[string]rights{
		"/home/u/.ssh/id": readRight, "/home/u/.ssh/other": 0, "/home/u/notes/a": readRight | execRight | writeRight, "/etc/passwd": readRight | execRight,
	} {
		var got rights
		for _, r := range all {
			if within(path, r.path) {
				got |= r.allow &^ seeRight
			}
		}
		if got != want {
			t.Errorf("%s: it gets %b, want %b", path, got, want)
		}
	}
}

func TestAPackageKeepsItsOwnFilesInTheHome(t *testing.T) {
	disk := maps.Clone(ourDisk)
	disk["/home/u/.mcp-auth/tokens"] = ""
	for name, tt := range map[string]struct {
		server switchboard.Server
		want   bool
	}{
		"npx mcp-remote":      {switchboard.Server{Command: []string{"npx", "-y", "mcp-remote", "https://mcp.example.com"}}, true},
		"npx mcp-remote@1.2":  {switchboard.Server{Command: []string{"npx", "-y", "mcp-remote@1.2.3", "https://mcp.example.com"}}, true},
		"package: mcp-remote": {switchboard.Server{Command: []string{"mcp-remote"}, Package: switchboard.Package{Name: "mcp-remote"}}, true},
		"npm exec":            {switchboard.Server{Command: []string{"npm", "exec", "--", "mcp-remote"}}, true},
		"another":             {switchboard.Server{Command: []string{"npx", "-y", "@mcp/remote@1"}}, false},
		"an alias":            {switchboard.Server{Command: []string{"npx", "-y", "mcp-remote@npm:evil"}}, false},
		"a package run":       {switchboard.Server{Command: []string{"npx", "-y", "run", "mcp-remote"}}, false},
		"another with a word": {switchboard.Server{Command: []string{"npx", "-y", "evil", "mcp-remote"}}, false},
		"no launcher":         {switchboard.Server{Command: []string{"node", "mcp-remote"}}, false},
	} {
		o := Plan(&tt.server, "/usr/bin/"+tt.server.Command[0], nil, ourMachine)
		all, _ := o.rules(disk)
		got := slices.ContainsFunc(all, func(r rule) bool {
			return within("/home/u/.mcp-auth/tokens", r.path) && r.allow&(readRight|writeRight) == readRight|writeRight
		})
		if got != tt.want || slices.Contains(o.Made, "/home/u/.mcp-auth") != tt.want {
			t.Errorf("%s: that it keeps its tokens is %v, and made are %q", name, got, o.Made)
		}
	}
}

// Clients start Switchboard anywhere. Its servers must not change the home, or see a secret, for that.
func TestTheFolderOfTheStartGivesLessThanAChosenOne(t *testing.T) {
	const notes, key = "/home/u/notes/a", "/home/u/.ssh/id"
	for _, tt := range []struct {
		start, home, file string
		server            switchboard.Server
		want              bool
	}{
		{"/home/u", "/home/u", notes, switchboard.Server{}, false},
		{"/home", "/home/u", notes, switchboard.Server{}, false},
		{"/linked", "/home/u", notes, switchboard.Server{}, false},
		{"/home/u", "/linked", notes, switchboard.Server{}, false},
		{"/home/u/.ssh", "/home/u", key, switchboard.Server{}, false},
		{"/home/u/notes", "/home/u", notes, switchboard.Server{}, true},
		{"/srv", "/home/u", notes, switchboard.Server{Dir: "/home/u"}, true},
		{"/srv", "/home/u", key, switchboard.Server{Dir: "/home/u/.ssh"}, true},
		{"/home/u", "/home/u", notes, switchboard.Server{Command: []string{"tool", "."}}, true},
	} {
		m := ourMachine
		m.Dir, m.Home = tt.start, tt.home
		disk := maps.Clone(ourDisk)
		disk["/linked"] = "->/home/u"
		all, _ := Plan(&tt.server, "/bin/tool", nil, m).rules(disk)
		if got := has(all, tt.file, writeRight); got != tt.want {
			t.Errorf("started in %s, with dir %q and command %q: that it writes %s is %v", tt.start, tt.server.Dir, tt.server.Command, tt.file, got)
		}
	}
}

// has reports whether a rule gives a right for a path.
func has(rules []rule, p string, right rights) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return within(p, r.path) && r.allow&right != 0 })
}

// A program may leave a link where a file or folder of its own was, and end. The next start must not follow it.
func TestALinkThatAProgramHasMadeIsNotFollowed(t *testing.T) {
	secret := func(text string) switchboard.Secret { return switchboard.NewSecret(text) }
	strict := switchboard.SandboxStrict
	for name, tt := range map[string]struct {
		server   switchboard.Server
		link, to string
		file     string // that the link leads to
		want     bool
	}{
		"the file that a variable names":         {switchboard.Server{Env: map[string]switchboard.Secret{"F": secret("/srv/data/file")}}, "/srv/data/file", "/home/u/notes", "/home/u/notes/a", false},
		"a file in its folder":                   {switchboard.Server{Dir: "/srv/data", Command: []string{"tool", "./file"}}, "/srv/data/file", "/home/u/notes", "/home/u/notes/a", false},
		"what it may read, where it writes":      {switchboard.Server{Walls: switchboard.Confinement{Level: strict, Read: []string{"/srv/data/file"}, Write: []string{"/srv/data"}}}, "/srv/data/file", "/home/u/notes", "/home/u/notes/a", false},
		"a secret that it may read":              {switchboard.Server{Walls: switchboard.Confinement{Read: []string{"/home/u/.npmrc/key"}, Write: []string{"/home/u/.npmrc"}}}, "/home/u/.npmrc/key", "/home/u/.ssh", "/home/u/.ssh/id", false},
		"below a folder that was a file before":  {switchboard.Server{Command: []string{"tool", "/srv/data/in", "/srv/data/out/x"}}, "/srv/data/out", "/home/u/notes", "/home/u/notes/a", false},
		"a link of the operator to its folder":   {switchboard.Server{Dir: "/srv/link"}, "/srv/link", "/home/u/notes", "/home/u/notes/a", true},
		"a link of the operator in the argument": {switchboard.Server{Command: []string{"tool", "/srv/link/a"}}, "/srv/link", "/home/u/notes", "/home/u/notes/a", true},
	} {
		disk := maps.Clone(ourDisk)
		delete(disk, tt.link)
		disk["/home/u/.npmrc/x"], disk["/srv/data/in/x"] = "", ""
		disk[tt.link] = "->" + tt.to
		program := "/bin/tool"
		if len(tt.server.Command) > 0 {
			program = "/bin/" + tt.server.Command[0]
		}
		all, _ := Plan(&tt.server, program, nil, ourMachine).rules(disk)
		writes := readRight | writeRight
		if tt.server.Walls.Level != strict && !strings.Contains(tt.file, ".ssh") {
			writes = writeRight // everything else is read
		}
		if got := has(all, tt.file, writes); got != tt.want {
			t.Errorf("%s: that it gets %s is %v", name, tt.file, got)
		}
	}
}

// Where nothing may be changed, links are the operator's.
func TestLinksAreFollowedWhereTheProgramChangesNothing(t *testing.T) {
	for _, start := range []string{"/", "/home/u", "/home", "/usr"} {
		m := ourMachine
		m.Dir = start
		disk := maps.Clone(ourDisk)
		delete(disk, "/home/u/.npm/x")
		disk["/home/u/.npm"], disk["/big/npm/x"], disk["/srv/link"], disk["/var/run"], disk["/run/x"] = "->../../big/npm", "", "->data", "->/run", ""
		all, _ := Plan(&switchboard.Server{Command: []string{"npx", "a", "/srv/link", "/var/run/a.pid"}}, "/bin/npx", nil, m).rules(disk)
		for path, want := range map[string]bool{"/big/npm/x": true, "/srv/data/file": true, "/run/x": false} {
			if has(all, path, writeRight) != want {
				t.Errorf("started in %s: that it writes %s is not %v", start, path, want)
			}
		}
	}
}

// The first line of a script that the program can write is the program's.
func TestAScriptThatTheProgramWritesGetsNoInterpreter(t *testing.T) {
	t.Setenv("PATH", "/usr/bin")
	for write, want := range map[string]bool{"": true, "/bin": false} {
		s := &switchboard.Server{Command: []string{"tool"}, Walls: switchboard.Confinement{Level: switchboard.SandboxStrict}}
		if write != "" {
			s.Walls.Write = []string{write}
		}
		all, _ := Plan(s, "/bin/tool", nil, ourMachine).rules(ourDisk)
		if has(all, "/usr/bin/runner", execRight) != want {
			t.Errorf("with write: %q, that its interpreter is executed is not %v", write, want)
		}
	}
}

// A place of secrets that the operator permits may hold a file of Switchboard: a secret of another server.
func TestAPermittedPlaceIsSeenAroundSwitchboardsFiles(t *testing.T) {
	m := ourMachine
	m.Own = append(slices.Clone(m.Own), "/home/u/.ssh/token")
	disk := maps.Clone(ourDisk)
	disk["/home/u/.ssh/token"] = ""
	all, _ := Plan(&switchboard.Server{Walls: switchboard.Confinement{Read: []string{"/home/u/.ssh"}}}, "/bin/tool", nil, m).rules(disk)
	if !has(all, "/home/u/.ssh/id", readRight) || has(all, "/home/u/.ssh/token", readRight) {
		t.Errorf("the rules are %+v", all)
	}
}

// SQLite makes files beside the one that is named.
func TestTheHomeIsFixedIfAFileInItIsNamed(t *testing.T) {
	_, fixed := granted(Plan(&switchboard.Server{Command: []string{"tool", "--db=/home/u/test.db"}, Dir: "/srv/data"}, "/bin/tool", nil, ourMachine), writeRight)
	if !slices.Equal(fixed, []string{"/home/u"}) {
		t.Errorf("fixed are %q", fixed)
	}
}

func TestAnOpenServerHasNoWalls(t *testing.T) {
	o := Plan(&switchboard.Server{Walls: switchboard.Confinement{Level: switchboard.SandboxOff}}, "/bin/tool", nil, ourMachine)
	if o.Level != switchboard.SandboxOff || o.OwnTemp || o.Exec != nil {
		t.Errorf("its order is %+v", o)
	}
}

// Whatever the settings of a server name, its rules include nothing of Switchboard's own.
func FuzzRules(f *testing.F) {
	f.Add("/home/u", ".", true)
	f.Add("--x=/home/u/project/.switchboard", "../project", false)
	f.Add("/home/u/project/out", "/home/u/.aws", true)
	f.Fuzz(func(t *testing.T, word, dir string, strict bool) {
		s := &switchboard.Server{Command: []string{"tool", word}, Dir: dir, Env: map[string]switchboard.Secret{"X": switchboard.NewSecret(word)}}
		if strict {
			s.Walls.Level = switchboard.SandboxStrict
		}
		all, _ := Plan(s, "/bin/tool", nil, ourMachine).rules(ourDisk)
		for _, r := range all {
			for own := range maps.Keys(ourDisk) {
				hidden := slices.ContainsFunc(ourMachine.Own, func(o string) bool { return within(own, o) })
				if hidden && within(own, r.path) && r.allow&^seeRight != 0 {
					t.Fatalf("%q in %q gets %s by the rule %+v", word, dir, own, r)
				}
			}
		}
	})
}
