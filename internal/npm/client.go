// Package npm installs the npm packages that servers are programs of, and checks what it has installed before each start.
//
// A lock file beside the configuration names the packages of a program: npm's own package-lock.json, with the integrity value of each. A person has it written
// (switchboard server update), so a new version of a package comes in no other way. npm itself fetches and unpacks the packages, runs no
// script of theirs, and compares what it gets with the lock. A [Keeper] has them installed below the data folder, and keeps the digest of the folder in the store: a
// program of a folder that has changed since then is not started.
package npm

import (
	"bytes"
	"cmp"
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

	factsTimeout = 30 * time.Second

	maxSaid    = 4 << 10 // bytes of npm's words
	maxPrinted = 1 << 20 // bytes that npm prints as its answer
	maxMcpName = 200
	maxReason  = 500 // characters

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

// PackageFacts are what the registry says about one version of a package. They are the words of the publisher.
type PackageFacts struct {
	packagelock.Spec

	Integrity  string // of its file, as in a lock; npm checks what it fetches by it
	McpName    string // the MCP server that it says it is, such as io.github.user/weather; "" if it does not say. To be spelt like Deprecated
	Deprecated string // why it should not be used; "" if it is not deprecated. It is to be spelt where it is shown (scan.Spell)
}

// Facts asks the registry about one version of a package. Nothing is installed.
func Facts(ctx context.Context, spec packagelock.Spec) (PackageFacts, error) {
	if parsed, err := packagelock.ParseSpec(spec.String()); err != nil || parsed != spec || strings.HasPrefix(spec.Name, "-") {
		return PackageFacts{}, fmt.Errorf("%q is no package with an exact version", spec)
	}
	dir, err := os.MkdirTemp("", "switchboard-npm-")
	if err != nil {
		return PackageFacts{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeoutCause(ctx, factsTimeout, fmt.Errorf("no answer within %s", factsTimeout))
	defer cancel()
	out, err := run(ctx, dir, filepath.Join(dir, cacheName), "view", "--json", spec.String(), "name", "version", "dist.integrity", "mcpName", "deprecated")
	if err != nil {
		return PackageFacts{}, cmp.Or(context.Cause(ctx), err)
	}
	var said struct {
		Name, Version       string
		Integrity           string `json:"dist.integrity"`
		McpName, Deprecated string
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return PackageFacts{}, fmt.Errorf("npm does not say what %s is: %w", spec, err)
	}
	switch {
	case said.Name != spec.Name || said.Version != spec.Version:
		return PackageFacts{}, fmt.Errorf("npm was asked about %s, and speaks of %.200q", spec, said.Name+"@"+said.Version)
	case !packagelock.IsIntegrity(said.Integrity):
		return PackageFacts{}, fmt.Errorf("%s has no integrity value of the form sha512-…, so nothing would check what is fetched", spec)
	case len(said.McpName) > maxMcpName:
		return PackageFacts{}, fmt.Errorf("the mcpName of %s is longer than %d bytes", spec, maxMcpName)
	}
	if reason := []rune(said.Deprecated); len(reason) > maxReason {
		said.Deprecated = string(reason[:maxReason-1]) + "…"
	}
	return PackageFacts{spec, said.Integrity, said.McpName, said.Deprecated}, nil
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
	out, said := boundedText{most: maxPrinted}, boundedText{most: maxSaid}
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no answer within %s", installTimeout)
		}
		return nil, fmt.Errorf("npm %s: %w: %s", args[0], err, strings.TrimSpace(said.text.String()))
	}
	if out.over {
		return nil, fmt.Errorf("npm %s prints more than %d bytes", args[0], maxPrinted)
	}
	return out.text.Bytes(), nil
}

// A boundedText keeps the first bytes that are written to it.
type boundedText struct {
	text bytes.Buffer
	most int
	over bool // there were more
}

func (b *boundedText) Write(p []byte) (int, error) {
	kept := p[:min(len(p), b.most-b.text.Len())]
	b.over = b.over || len(kept) < len(p)
	_, _ = b.text.Write(kept) // it never fails
	return len(p), nil
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
