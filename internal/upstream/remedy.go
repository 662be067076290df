package upstream

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
)

// products are what a person installs to have a program.
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

// missing names a program that is missing, with the remedy.
func missing(program string) string {
	if strings.ContainsRune(program, filepath.Separator) {
		return fmt.Sprintf(`there is no program %q: install it there, or correct the server's "command"`, program)
	}
	return fmt.Sprintf(`the program %q was not found: install %s, or add the folder of %[1]q to the PATH with which Switchboard is started, or give the full path of %[1]q in the server's "command"`,
		program, cmp.Or(products[program], "it"))
}

// forbidden names a program that may not be run, with the remedy.
func forbidden(program string) string {
	return fmt.Sprintf(`the program %q may not be run: let the user of Switchboard execute it (chmod +x), or correct the server's "command"`, program)
}

// programPath returns the path of the server's program, or its bare name, which is looked for
// in the PATH.
func programPath(cfg *switchboard.Server) string {
	program := cfg.Command[0]
	if strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program) && cfg.Dir != "" {
		return filepath.Join(cfg.Dir, program)
	}
	return program
}

// startRemedy returns the remedy where the server's program was not started. It returns "" where
// the program and its folder are as they should be.
func startRemedy(cfg *switchboard.Server) string {
	if len(cfg.Command) == 0 {
		return ""
	}
	program := programPath(cfg)
	if _, err := os.Stat(cfg.Dir); cfg.Dir != "" && errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf(`there is no folder %q: make it, or correct the server's "dir"`, cfg.Dir)
	}
	switch _, err := exec.LookPath(program); {
	case errors.Is(err, fs.ErrPermission):
		return forbidden(program)
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return missing(program)
	}
	return ""
}

// How a shell, and env, say that a program was not started. Docker says so too.
const (
	exitForbidden = "exit status 126"
	exitMissing   = "exit status 127"
)

// endRemedy returns the remedy where a process ended that way, with these last lines of stderr.
// It returns "" where the way says nothing of a program.
func endRemedy(how string, words []string) string {
	switch how {
	case exitMissing:
		if program := complaint(words, ": command not found", ": not found", ": No such file or directory"); program != "" {
			return missing(program)
		}
		return "a program that the server needs was not found, which is what exit status 127 means in a shell: run the server's command by hand, to see which"
	case exitForbidden:
		if program := complaint(words, ": Permission denied"); program != "" {
			return forbidden(program)
		}
		return "a program that the server needs may not be run, which is what exit status 126 means in a shell: run the server's command by hand, to see which"
	}
	return ""
}

// complaint returns the program of the last line that ends with one of the texts:
//
//	sh: 1: exec: uvx: not found
//	bash: line 1: uvx: command not found
//	env: ‘node’: No such file or directory
//	env: can't execute 'node': No such file or directory
func complaint(words []string, texts ...string) string {
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

// runners are the programs that download a package before they run it: always, or with one of
// these words.
var runners = map[string][]string{
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

// runner returns the command's package runner, such as "npx" or "docker run", or "".
func runner(command []string) string {
	if len(command) == 0 {
		return ""
	}
	name := filepath.Base(command[0])
	words, ok := runners[name]
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

// waitRemedy returns the remedy for a server that does not answer while it starts. It returns ""
// where its command is no package runner.
func waitRemedy(command []string) string {
	name := runner(command)
	if name == "" {
		return ""
	}
	sooner := `install the package beforehand and name its program in the server's "command"`
	if name == "docker run" || name == "podman run" {
		sooner = "pull the image beforehand"
	}
	return fmt.Sprintf("%q is probably downloading its package: wait. To start it sooner, %s. To let /readyz and reloads wait longer, raise start_deadline", name, sooner)
}
