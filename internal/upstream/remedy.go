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

// missing says which program is missing, and what to do.
func missing(program string) string {
	if strings.ContainsRune(program, filepath.Separator) {
		return fmt.Sprintf(`there is no program %q: install it there, or correct the server's "command"`, program)
	}
	return fmt.Sprintf(`the program %q was not found: install %s, or add the folder of %[1]q to the PATH with which Switchboard is started, or give the full path of %[1]q in the server's "command"`,
		program, cmp.Or(products[program], "it"))
}

// forbidden says which program may not be run, and what to do.
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

// startRemedy says what to do where the server's program was not started. It returns "" where
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

// endRemedy says what to do where a process ended that way, with these last lines of stderr.
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
