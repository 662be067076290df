package process

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wall"
)

// products names what a person installs to get a program.
var products = map[string]string{
	"bun": "Bun", "bunx": "Bun",
	"deno":   "Deno",
	"docker": "Docker",
	"node":   "Node.js", "npm": "Node.js", "npx": "Node.js",
	"pipx": "pipx",
	"pnpm": "pnpm", "pnpx": "pnpm",
	"podman": "Podman",
	"python": "Python", "python3": "Python",
	"uv": "uv", "uvx": "uv",
	"yarn": "Yarn",
}

// missingRemedy is the remedy for a program that is missing.
func missingRemedy(program string) string {
	if hasFolder(program) {
		return fmt.Sprintf(`there is no program %q: install it there, or correct the server's "command"`, program)
	}
	return fmt.Sprintf(`the program %q was not found: install %s, or add the folder of %[1]q to the PATH with which Switchboard is started, or give the full path of %[1]q in the server's "command"`,
		program, cmp.Or(products[program], "it"))
}

// forbiddenRemedy is the remedy for a program that must not be executed.
func forbiddenRemedy(program string) string {
	return fmt.Sprintf(`the program %q may not be run: let the user of Switchboard execute it (chmod +x), or correct the server's "command"`, program)
}

// programPath returns the path of the server's program, or its bare name, which is looked up in the
// PATH.
func programPath(cfg *switchboard.Server) string {
	program := cfg.Command[0]
	if hasFolder(program) && !filepath.IsAbs(program) && cfg.Dir != "" {
		return filepath.Join(cfg.Dir, program)
	}
	return program
}

// hasFolder reports whether the program is named with a folder, and not to be looked up in the PATH.
func hasFolder(program string) bool { return filepath.Base(program) != program }

// StartRemedy returns the remedy if the server's program could not be started. It returns "" if the
// program and its folder are as they should be.
func StartRemedy(cfg *switchboard.Server) string {
	if len(cfg.Command) == 0 {
		return ""
	}
	program := programPath(cfg)
	if _, err := os.Stat(cfg.Dir); cfg.Dir != "" && errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf(`there is no folder %q: make it, or correct the server's "dir"`, cfg.Dir)
	}
	switch _, err := exec.LookPath(program); {
	case errors.Is(err, fs.ErrPermission):
		return forbiddenRemedy(program)
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return missingRemedy(program)
	}
	return ""
}

// Shells, env and Docker end with these if a program was not started.
const (
	exitForbidden = "exit status 126"
	exitMissing   = "exit status 127"
)

// ExitRemedy returns the remedy for a process that ended with the status how and these last lines
// of stderr, or "".
func ExitRemedy(how string, words []string) string {
	switch how {
	case exitMissing:
		if program := missingProgram(words, ": command not found", ": not found", ": No such file or directory"); program != "" {
			return missingRemedy(program)
		}
		return "a program that the server needs was not found, which is what exit status 127 means in a shell: run the server's command by hand, to see which"
	case exitForbidden:
		if program := missingProgram(words, ": Permission denied"); program != "" {
			return forbiddenRemedy(program)
		}
		return "a program that the server needs may not be run, which is what exit status 126 means in a shell: run the server's command by hand, to see which"
	}
	return ""
}

// refusals are how programs say that the system has refused them a file or a call. The first ones say nothing else; the others name a file then.
var refusals = struct{ sure, ofFile []string }{
	[]string{"EACCES", "EPERM", "PermissionError", "snap-confine", "unable to open database file", "attempt to write a readonly database"},
	[]string{"ermission denied", "peration not permitted"},
}

// WallRemedy returns the remedy for a process that ended with these last lines of stderr, if the walls around it may be the
// reason, or "".
func WallRemedy(walls *wall.InEffect, words []string) string {
	if walls == nil || len(walls.Walls) == 0 {
		return ""
	}
	in := func(line string, words []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) })
	}
	for _, line := range words {
		if in(line, refusals.sure) || strings.Contains(line, "/") && in(line, refusals.ofFile) {
			return fmt.Sprintf("the walls around its program (sandbox: %s) may refuse what its words name: permit it with permissions (switchboard docs walls). Or the user of Switchboard may not use it: see chmod and chown", walls.Level)
		}
	}
	return ""
}

// missingProgram returns the program in the last line that ends with one of the texts:
//
//	sh: 1: exec: uvx: not found
//	bash: line 1: uvx: command not found
//	env: ‘node’: No such file or directory
//	env: can't execute 'node': No such file or directory
func missingProgram(words []string, texts ...string) string {
	for _, line := range slices.Backward(words) {
		for _, text := range texts {
			said, ok := strings.CutSuffix(line, text)
			if !ok {
				continue
			}
			program := strings.TrimPrefix(said[strings.LastIndex(": "+said, ": "):], "can't execute ")
			if program = strings.Trim(program, `'"‘’`); program != "" {
				return program
			}
		}
	}
	return ""
}

// packageRunners are programs that download a package before they run it: always, or with one of
// these words.
var packageRunners = map[string][]string{
	"bunx": nil, "npx": nil, "pnpx": nil, "uvx": nil,
	"bun":    {"x"},
	"docker": {"run"},
	"npm":    {"exec", "x"},
	"pipx":   {"run"},
	"pnpm":   {"dlx"},
	"podman": {"run"},
	"uv":     {"run", "tool"},
	"yarn":   {"dlx"},
}

// packageRunner returns the command's package runner, such as "npx" or "docker run", or "".
func packageRunner(command []string) string {
	if len(command) == 0 {
		return ""
	}
	name := filepath.Base(command[0])
	words, ok := packageRunners[name]
	if words == nil {
		if !ok {
			return ""
		}
		return name
	}
	i := slices.IndexFunc(command[1:], func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	if i < 0 || !slices.Contains(words, command[1+i]) {
		return ""
	}
	return name + " " + command[1+i]
}

// SlowStartRemedy returns the remedy for a server that does not answer during its start. It returns
// "" if its command is no package runner.
func SlowStartRemedy(command []string) string {
	name := packageRunner(command)
	if name == "" {
		return ""
	}
	sooner := `install the package beforehand and name its program in the server's "command"`
	if name == "docker run" || name == "podman run" {
		sooner = "pull the image beforehand"
	}
	return fmt.Sprintf("%q is probably downloading its package: wait. To start it sooner, %s. To let /readyz and reloads wait longer, raise start_deadline", name, sooner)
}
