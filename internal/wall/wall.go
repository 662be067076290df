// Package wall limits what the program of a server can do.
//
// It decides, from the server's settings and the places of the machine, which files the program may read, change and execute, which calls of
// the system it may make, and how many resources it may use (Plan: a pure function). On Linux it starts the program within these limits
// (Order.Start), and reports which of them are in effect. Package process ends the program.
//
// The files are Landlock's part. Landlock knows only what is allowed, and a rule for a folder holds for everything below it. So a folder with
// something hidden in it gets no rule. Instead, each of its other entries gets one, and an entry that is made later has none.
package wall

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The walls, as InEffect names them.
const (
	Files        = "files"
	Signals      = "signals and abstract sockets"
	Calls        = "system calls"
	Capabilities = "capabilities"
	Setuid       = "setuid programs"
	Network      = "network"
	Home         = "own home"
	Temp         = "own temp"
	Bounds       = "bounds"
)

// Machine is what Plan knows of the machine.
type Machine struct {
	Home string   // of the user; "" means none
	Dir  string   // the working directory of Switchboard
	Own  []string // Switchboard's own files and folders, absolute
	Root bool     // the user is root
}

// An Order says what a program may do. The guard gets it as JSON.
type Order struct {
	Level   switchboard.Sandbox `json:"level"`
	Program string              `json:"program,omitempty"` // its path
	FileReach

	// Made are folders that are made if they are absent: the folders of package managers, and those in variables such as DATA_DIR.
	Made []string `json:"made,omitempty"`

	// NoNetwork says that it may make no socket, OnlyIP that it may make sockets of IP alone.
	NoNetwork bool `json:"no_network,omitempty"`
	OnlyIP    bool `json:"only_ip,omitempty"`

	// Hosts are all that it may reach. It then has a network of its own, which package passage makes before the walls are raised; empty means that it has
	// none of its own.
	Hosts []switchboard.HostPort `json:"hosts,omitempty"`

	OwnTemp bool   `json:"own_temp,omitempty"` // it gets a folder for temporary files
	noTemp  string // why there is none
	OwnHome bool   `json:"own_home,omitempty"` // this folder is its HOME too

	Limits Limits `json:"limits,omitzero"`
}

// A FileReach says which files and folders a program may use. A path without a file has no effect.
type FileReach struct {
	See   []string `json:"see,omitempty"`   // folders that it may list, with all folders in them
	Read  []string `json:"read,omitempty"`  // files that it may read, and folders with such files
	Exec  []string `json:"exec,omitempty"`  // the same for files that it may also execute
	Write []string `json:"write,omitempty"` // the same for files that it may also change

	// Shared are what programs of many servers may change: the folders of package managers, and shared memory.
	Shared []string `json:"shared,omitempty"`

	// Named are paths that the settings of the server name. At the level standard, a folder among them may be changed, and so may the folder of a
	// file: a program that keeps a file also makes others beside it. At the level strict, the program may read the files among them.
	Named []string `json:"named,omitempty"`
	Home  string   `json:"home,omitempty"` // of the user

	// Dir is the folder in which the program runs. At the level standard, it may be changed. If its row does not choose it, it may not if it is the home, a
	// folder above the home, or a place of secrets.
	Dir    string `json:"dir,omitempty"`
	Chosen bool   `json:"chosen,omitempty"`

	// Installed is the folder of the program's package, which it may read and execute even if it is below one of Own; "" means none.
	Installed string `json:"installed,omitempty"`

	// Devices are patterns of files in /dev that it may use.
	Devices []string `json:"devices,omitempty"`

	// Hidden are places of secrets. None of the above includes them, unless it names them, or something in them.
	Hidden []string `json:"hidden,omitempty"`

	// Own are files and folders of Switchboard. None of the above includes them.
	Own []string `json:"own,omitempty"`
}

// Limits bound what a program and everything that it has started may use together. 0 means no bound.
type Limits struct {
	Memory    int64  `json:"memory,omitempty"`    // bytes that are in use
	Processes int    `json:"processes,omitempty"` //
	Files     uint64 `json:"files,omitempty"`     // open files of one process
}

// The limits at each level.
var (
	StandardLimits = Limits{Memory: 8 << 30, Processes: 1024, Files: 65536}
	StrictLimits   = Limits{Memory: 2 << 30, Processes: 256, Files: 4096}
)

// InEffect says which walls a process has.
type InEffect struct {
	PID   int                 `json:"pid,omitempty"` // of the program
	Level switchboard.Sandbox `json:"level"`
	Walls []string            `json:"in_effect"`

	// Fixed are folders that its settings name and that it may change. It can make nothing new in them, because something in them is hidden.
	Fixed []string `json:"fixed,omitempty"`

	// Missing are the walls that the level has and this machine does not, each with the reason.
	Missing []MissingWall `json:"missing,omitempty"`
}

// A MissingWall is a wall that this machine lacks.
type MissingWall struct {
	Wall string `json:"wall"`
	Why  string `json:"why"`
}

// lack adds a wall that is missing.
func (e *InEffect) lack(wall, why string) {
	e.Missing = append(e.Missing, MissingWall{wall, why})
}

// Plan returns what the program of a server may do. program is its path, and env is its whole environment.
func Plan(s *switchboard.Server, program string, env []string, m Machine) *Order {
	switch s.Walls.Level {
	case switchboard.SandboxOff:
		return &Order{Level: switchboard.SandboxOff}
	case switchboard.SandboxStrict:
		return planStrict(s, program, env, m)
	}
	return planStandard(s, program, env, m)
}

// hidden returns the places of secrets. except are those that the program itself needs.
func hidden(m Machine, except []string) (all []string) {
	if m.Home != "" {
		for _, name := range homeSecrets {
			if !slices.Contains(except, name) {
				all = append(all, filepath.Join(m.Home, name))
			}
		}
	}
	if m.Root {
		all = append(all, rootSecrets...)
	}
	return all
}

// planStandard lets a program read everything but secrets, and write where servers usually write.
func planStandard(s *switchboard.Server, program string, env []string, m Machine) *Order {
	needs, w := needsOf(program, s), &s.Walls
	o := &Order{
		Level: switchboard.SandboxStandard, Program: program,
		FileReach: FileReach{
			See: []string{"/"}, Read: w.Read, Exec: append([]string{"/", "/dev/shm"}, w.Exec...), Write: w.Write, Shared: []string{"/dev/shm", "/dev/mqueue"}, Devices: standardDevices,
			Hidden: hidden(m, needs.sees), Own: m.Own, Named: named(s, m, true), Home: m.Home, Installed: s.Package.Dir,
			Dir: filepath.Clean(cmp.Or(s.Dir, m.Dir)), Chosen: s.Dir != "",
		},
		OwnTemp: !sets(s, "TMPDIR"), Limits: StandardLimits,
	}
	if !m.Root {
		// A user's programs may write only to their own processes there. Root's could change the settings of the kernel.
		o.Shared = append(o.Shared, "/proc")
	}
	if m.Home != "" {
		for _, name := range caches {
			o.Shared = append(o.Shared, filepath.Join(m.Home, name))
		}
		for _, name := range needs.makes {
			path := filepath.Join(m.Home, name)
			o.Made, o.Shared = append(o.Made, path), append(o.Shared, path)
		}
	}
	for name, value := range s.Env {
		if path := value.Reveal(); filepath.IsAbs(path) && namesFolder(name) {
			o.Made = append(o.Made, filepath.Clean(path))
		}
	}
	slices.Sort(o.Made)
	for _, v := range env {
		// A server with a home of its own has its caches there.
		if home, ok := strings.CutPrefix(v, "HOME="); ok && home != m.Home && filepath.IsAbs(home) {
			o.Named = append(o.Named, filepath.Clean(home))
		}
	}
	return o
}

// planStrict lets a program use its own file, the libraries of the system, and the places in its permissions.
func planStrict(s *switchboard.Server, program string, _ []string, m Machine) *Order {
	w := &s.Walls
	return &Order{
		Level: switchboard.SandboxStrict, Program: program,
		FileReach: FileReach{
			Read: slices.Concat(systemPlaces, w.Read), Exec: slices.Concat(loaders, w.Exec), Write: w.Write, Devices: strictDevices,
			Hidden: hidden(m, nil), Own: m.Own, Named: named(s, m, false), Home: m.Home, Installed: s.Package.Dir,
		},
		NoNetwork: !w.AnyNetwork && len(w.Hosts) == 0, OnlyIP: w.AnyNetwork || len(w.Hosts) > 0, Hosts: w.Hosts, OwnTemp: true, OwnHome: !sets(s, "HOME"), Limits: StrictLimits,
	}
}

// named returns the paths that the settings of a server name: in its command, and if all is set in its variables too.
func named(s *switchboard.Server, m Machine, all bool) (paths []string) {
	dir := cmp.Or(s.Dir, m.Dir)
	add := func(word string) {
		if path := pathIn(word, dir); filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}
	if all {
		for name, value := range s.Env {
			if name != "PATH" {
				add(value.Reveal())
			}
		}
	}
	for _, word := range s.Command[min(1, len(s.Command)):] {
		add(word)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// namesFolder reports whether the value of a variable is a folder, by the variable's name.
func namesFolder(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"DIR", "DIRECTORY", "FOLDER", "CACHE", "HOME"}, func(end string) bool { return strings.HasSuffix(name, end) })
}

// sets reports whether the server's own settings set a variable.
func sets(s *switchboard.Server, name string) bool {
	_, ok := s.Env[name]
	return ok
}

// pathIn returns the path that a word of a command or the value of a variable names, or "". It finds the path of --name=path too.
func pathIn(word, dir string) string {
	if strings.HasPrefix(word, "-") {
		_, value, ok := strings.Cut(word, "=")
		if !ok {
			return ""
		}
		word = value
	}
	word = strings.TrimPrefix(word, "file://")
	switch {
	case word == "", len(word) > 4096, strings.ContainsAny(word, "\n\x00"), strings.Contains(word, "://"):
		return ""
	case filepath.IsAbs(word):
		return filepath.Clean(word)
	case word == ".", strings.Contains(word, "/") && !strings.HasPrefix(word, "@"):
		return filepath.Join(dir, word)
	}
	return ""
}

// Absent returns the report about a program that gets no walls, and why. The error says that its level demands them.
func (o *Order) Absent(why string) (e InEffect, err error) {
	e.Level, e.Walls = o.Level, []string{}
	if o.Level == switchboard.SandboxOff {
		return e, nil
	}
	for _, w := range []string{Files, Calls, Capabilities, Setuid, Signals, Bounds} {
		e.lack(w, why)
	}
	if o.Level == switchboard.SandboxStrict {
		return e, &UnavailableError{e.Missing[0]}
	}
	return e, nil
}

// An UnavailableError says that a program was not started, because this machine lacks a wall that sandbox: strict demands.
type UnavailableError struct{ Lack MissingWall }

func (e *UnavailableError) Error() string {
	return string(switchboard.CodeNoWalls) + ": sandbox: strict demands walls that this machine lacks: " + e.Lack.Wall + ": " + e.Lack.Why
}
