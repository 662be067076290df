// Package npm installs the npm packages that servers are programs of, and checks what it has installed before each start.
//
// A lock file beside the configuration names the packages of a program: npm's own package-lock.json, with the integrity value of each. A person has it written
// (switchboard server update), so a new version of a package comes in no other way. npm itself fetches and unpacks the packages, runs no
// script of theirs, and compares what it gets with the lock. A [Keeper] has them installed below the data folder, and keeps the digest of the folder in the store: a
// program of a folder that has changed since then is not started.
package npm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
)

const (
	// installTimeout limits one use of npm: large packages over slow lines take minutes.
	installTimeout = 5 * time.Minute

	maxSaid = 4 << 10 // bytes of npm's words

	lockName  = "package-lock.json"
	cacheName = ".npm-cache"
)

// ErrNoClient says that npm is not installed.
var ErrNoClient = errors.New("npm is not installed: it comes with Node.js, https://nodejs.org")

// strict are flags of each npm command: no script runs, nothing but packages of the registry is fetched, and npm asks and tells nothing. npm passes over those that it does
// not know yet.
var strict = []string{
	"--ignore-scripts", "--allow-git=none", "--allow-remote=none", "--allow-file=none", "--allow-directory=none", "--no-workspaces",
	"--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error",
}

// LatestVersion asks the registry which version of the package has the tag latest.
func LatestVersion(ctx context.Context, name string) (string, error) {
	dir, err := os.MkdirTemp("", "switchboard-npm-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out, err := run(ctx, dir, filepath.Join(dir, cacheName), "view", "--json", name+"@latest", "version")
	if err != nil {
		return "", err
	}
	var version string
	if json.Unmarshal(out, &version) != nil || !packagelock.IsVersion(version) {
		return "", fmt.Errorf("npm names no version of %s", name)
	}
	return version, nil
}

// MakeLock asks npm which packages the package needs now. npm reads what the registry says about them, and fetches no package.
func MakeLock(ctx context.Context, spec packagelock.Spec) (*packagelock.Lock, error) {
	dir, err := os.MkdirTemp("", "switchboard-npm-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := writeManifest(dir, spec); err != nil {
		return nil, err
	}
	if _, err := run(ctx, dir, filepath.Join(dir, cacheName), "install", "--package-lock-only", "--save-exact", "--omit=dev", "--omit-lockfile-registry-resolved"); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("npm has written no lock: %w", err)
	}
	l, err := packagelock.Read(text)
	if err != nil {
		return nil, fmt.Errorf("the lock that npm has made for %s: %w", spec, err)
	}
	return l, nil
}

// Install installs the packages of the lock in an empty folder. npm checks their integrity values. cache is a folder for what npm has fetched; servers must not be able to
// write there, as some can in the cache of the user.
func Install(ctx context.Context, l *packagelock.Lock, dir, cache string) error {
	if err := writeManifest(dir, l.Spec); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, lockName), l.Text, 0o600); err != nil {
		return err
	}
	if _, err := run(ctx, dir, cache, "ci", "--omit=dev"); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "node_modules", ".package-lock.json"))
	if err != nil {
		return fmt.Errorf("npm does not say what it has installed: %w", err)
	}
	return l.Installed(text)
}

// writeManifest writes the package.json that names the package.
func writeManifest(dir string, spec packagelock.Spec) error {
	text, err := json.Marshal(map[string]any{"name": "switchboard-server", "private": true, "dependencies": map[string]string{spec.Name: spec.Version}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "package.json"), text, 0o600)
}

// run runs npm in a folder, and returns what it prints. The error has its words. The prefix is named, or npm would look for settings in the folders above.
func run(ctx context.Context, dir, cache string, args ...string) ([]byte, error) {
	program, err := exec.LookPath("npm")
	if err != nil {
		return nil, ErrNoClient
	}
	limited, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	cmd := exec.CommandContext(limited, program, slices.Concat(args, strict, []string{"--prefix=" + dir, "--cache=" + cache})...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, clientEnv(os.Environ()), 2*time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no answer within %s", installTimeout)
		}
		words := strings.TrimSpace(said.String())
		return nil, fmt.Errorf("npm %s: %w: %s", args[0], err, words[:min(len(words), maxSaid)])
	}
	return out.Bytes(), nil
}

// clientEnv returns the variables that npm gets: those of its own settings, and of the system's. No secret of a server is among them.
func clientEnv(environ []string) (env []string) {
	known := []string{
		"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "TEMP", "TMP", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "SYSTEMROOT", "COMSPEC", "PATHEXT", "PROGRAMFILES", "SYSTEMDRIVE",
	}
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if upper := strings.ToUpper(name); slices.Contains(known, upper) || strings.HasPrefix(upper, "NPM_CONFIG_") || strings.HasPrefix(upper, "LC_") {
			env = append(env, v)
		}
	}
	return env
}

// platform names what a folder was installed for: npm leaves out packages for other systems.
func platform() string { return runtime.GOOS + "-" + runtime.GOARCH }
