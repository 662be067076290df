package doctor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
)

// A programCheck examines the programs that servers need.
type programCheck struct{ *examination }

// A knownProgram is a program that runs servers, and that says its version with --version. Doctor starts no other program to ask for its version: it
// might be a server that does something else.
type knownProgram struct {
	product string
	needs   []string // programs that it starts
	least   int      // the first number of the least version that servers of today run with; 0 means any
	get     string   // how to install it
}

var knownPrograms = map[string]knownProgram{
	"node":    {product: "Node.js", least: oldestNode, get: "https://nodejs.org, or the package nodejs of your system"},
	"npx":     {product: "npx", needs: []string{"node"}, get: "npx comes with Node.js: https://nodejs.org, or the packages nodejs and npm of your system"},
	"npm":     {product: "npm", needs: []string{"node"}, get: "npm comes with Node.js: https://nodejs.org, or the packages nodejs and npm of your system"},
	"uv":      {product: "uv", get: "https://docs.astral.sh/uv, or pipx install uv"},
	"uvx":     {product: "uvx", get: "uvx comes with uv: https://docs.astral.sh/uv, or pipx install uv"},
	"python3": {product: "Python", least: 3, get: "https://python.org, or the package python3 of your system"},
	"docker":  {product: "Docker", get: "https://docs.docker.com/get-docker, or the package docker.io of your system"},
	"podman":  {product: "Podman", get: "https://podman.io, or the package podman of your system"},
	"bun":     {product: "Bun", get: "https://bun.sh"},
	"bunx":    {product: "bunx", get: "bunx comes with Bun: https://bun.sh"},
	"deno":    {product: "Deno", get: "https://deno.com"},
	"pnpm":    {product: "pnpm", needs: []string{"node"}, get: "https://pnpm.io"},
	"yarn":    {product: "Yarn", needs: []string{"node"}, get: "https://yarnpkg.com"},
	"pipx":    {product: "pipx", get: "https://pipx.pypa.io, or the package pipx of your system"},
}

// oldestNode is the oldest Node.js that most servers run with: the SDK for TypeScript asks for it.
const oldestNode = 18

// Bounds of asking a program.
const (
	askTimeout = 10 * time.Second
	maxSaid    = 4 << 10 // bytes of its answer
	maxAsked   = 4       // programs that are asked at the same time
)

// A need is a program that servers need.
type need struct {
	program string
	servers []switchboard.ServerID
	row     *switchboard.Server // one of them
}

// isCommand reports whether the program is the one that the row names, and not one that it needs.
func (n *need) isCommand() bool { return n.row.Package.Name == "" && n.program == n.row.Command[0] }

// unusable says for each server that cannot start why. Nothing else is to be said about it.
type unusable map[switchboard.ServerID]string

// checkPrograms looks for the programs that the servers need, and asks those that it knows for their versions.
func (x programCheck) checkPrograms(ctx context.Context) unusable {
	out := unusable{}
	if x.cfg == nil {
		return out
	}
	var known []need
	all := x.needs()
	for _, n := range all {
		if !n.isCommand() {
			continue
		}
		if remedy := process.StartRemedy(n.row); remedy != "" {
			x.add(missingProgram(n, remedy))
			for _, id := range n.servers {
				out[id] = "it needs " + filepath.Base(n.program)
			}
		} else if _, ok := knownPrograms[filepath.Base(n.program)]; ok {
			known = append(known, n)
		} else {
			x.well(Programs, n.program, "it is there, for "+joinIDs(n.servers))
		}
	}
	for _, n := range all { // what installs npx installs node too
		n.servers = slices.DeleteFunc(n.servers, func(id switchboard.ServerID) bool { return out[id] != "" })
		if !n.isCommand() && len(n.servers) > 0 {
			known = append(known, n)
		}
	}
	var asked sync.WaitGroup
	var mu sync.Mutex // guards out
	slots := make(chan struct{}, maxAsked)
	for _, n := range known {
		asked.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			defer x.begin(n.program)()
			if why := x.askProgram(ctx, n); why != "" {
				mu.Lock()
				defer mu.Unlock()
				for _, id := range n.servers {
					out[id] = why
				}
			}
		})
	}
	asked.Wait()
	return out
}

// needs returns the programs of all servers on stdio, sorted, with those that they start themselves.
func (x programCheck) needs() []need {
	byName := map[string]*need{}
	add := func(program string, s *switchboard.Server) {
		key := program
		if filepath.Base(program) != program { // it may be relative to the server's folder
			key = s.Dir + "\x00" + program
		}
		n := byName[key]
		if n == nil {
			n = &need{program: program, row: s}
			byName[key] = n
		}
		if !slices.Contains(n.servers, s.ID) {
			n.servers = append(n.servers, s.ID)
		}
	}
	for i := range x.cfg.Servers {
		s := &x.cfg.Servers[i]
		if s.Package.Name != "" {
			add("npm", s)
			add("node", s)
			continue
		}
		if s.Transport != switchboard.TransportStdio || len(s.Command) == 0 {
			continue
		}
		add(s.Command[0], s)
		for _, other := range knownPrograms[filepath.Base(s.Command[0])].needs {
			add(other, s)
		}
	}
	out := make([]need, 0, len(byName))
	for _, n := range byName {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b need) int {
		if n := strings.Compare(a.program, b.program); n != 0 {
			return n
		}
		return strings.Compare(string(a.row.ID), string(b.row.ID))
	})
	return out
}

// missingProgram is the finding for a program that is not there, or may not be run.
func missingProgram(n need, remedy string) Diagnosis {
	f := Diagnosis{Area: Programs, Subject: n.program, State: Wrong, Cause: "program-missing", What: fmt.Sprintf("it was not found; %s %s it", joinIDs(n.servers), verb(len(n.servers), "needs", "need")), Remedy: remedy}
	if _, do, both := strings.Cut(remedy, ": "); both {
		f.Remedy = do
	}
	switch known := knownPrograms[n.program]; {
	case strings.Contains(remedy, "may not be run"):
		f.Cause, f.What = "program-forbidden", "it may not be run; "+joinIDs(n.servers)+" "+verb(len(n.servers), "needs", "need")+" it"
		if path := programFile(n); path != "" {
			f.Command = commandLine("chmod", "+x", path)
		}
	case strings.Contains(remedy, "there is no folder"):
		f.Cause, f.What = "folder-missing", fmt.Sprintf("the folder %s of %s is not there", n.row.Dir, n.row.ID)
		f.Command = commandLine("mkdir", "-p", n.row.Dir)
	case known.get != "":
		f.Remedy = "install it (" + known.get + "), or add its folder to the PATH with which Switchboard is started"
	}
	return f
}

// programFile returns the path of a program that is named with a folder or stands in a folder of the PATH, or "".
func programFile(n need) string {
	if filepath.Base(n.program) != n.program {
		if filepath.IsAbs(n.program) || n.row.Dir == "" {
			return n.program
		}
		return filepath.Join(n.row.Dir, n.program)
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		file := filepath.Join(dir, n.program)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file
		}
	}
	return ""
}

func verb(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// joinIDs returns the ids as one text.
func joinIDs(ids []switchboard.ServerID) string {
	const most = 5
	names := make([]string, 0, most+1)
	for i, id := range ids {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(ids)-i))
			break
		}
		names = append(names, string(id))
	}
	return strings.Join(names, ", ")
}

// versionNumber is the first version in the answer of a program.
var versionNumber = lazyExpression(`\d+(?:\.\d+)+`)

// askProgram asks a program for its version, and Docker also for its daemon. It returns why the servers that need the program cannot start, or "".
func (x programCheck) askProgram(ctx context.Context, n need) (why string) {
	base := filepath.Base(n.program)
	known := knownPrograms[base]
	path, err := exec.LookPath(n.program)
	if err != nil { // a program that another one starts
		x.add(missingProgram(n, fmt.Sprintf("the program %q was not found: install it", n.program)))
		return "it needs " + base
	}
	said, err := ask(ctx, n.row, path, "--version")
	version := versionNumber().FindString(said)
	if ctx.Err() != nil {
		return ""
	}
	if err != nil || version == "" {
		f := Diagnosis{
			Area: Programs, Subject: n.program, State: Wrong, Cause: "program-broken", What: fmt.Sprintf("%s --version does not say a version: %s", path, oneLine(said, err)),
			Remedy: "install " + known.product + " anew (" + known.get + ")",
		}
		if m, ok := ExplainOutput(strings.Split(said, "\n")); ok && m.Cause == "program-missing" {
			f.Cause, f.What, f.Remedy, f.Command = m.Cause, path+": "+m.Claim, m.Remedy, m.Command
		}
		x.add(f)
		return base + " does not work"
	}
	if first, _, _ := strings.Cut(version, "."); known.least > 0 && number(first) < known.least {
		x.add(Diagnosis{
			Area: Programs, Subject: n.program, State: Wrong, Cause: base + "-too-old",
			What:   fmt.Sprintf("%s is version %s, and most servers need %d or later; %s %s it", path, version, known.least, joinIDs(n.servers), verb(len(n.servers), "needs", "need")),
			Remedy: fmt.Sprintf("install a newer %s (%s), and make sure that its folder comes first in the PATH", known.product, known.get),
		})
		return ""
	}
	x.well(Programs, n.program, version+", "+path)
	if base != "docker" || !usesDaemon(n, x.cfg.Servers) {
		return ""
	}
	return x.askDaemon(ctx, n.row, path)
}

// usesDaemon reports whether one of the servers that need Docker starts a container here.
func usesDaemon(n need, servers []switchboard.Server) bool {
	return slices.ContainsFunc(servers, func(s switchboard.Server) bool {
		return slices.Contains(n.servers, s.ID) && len(s.Command) > 1 && filepath.Base(s.Command[0]) == "docker"
	})
}

// askDaemon asks the daemon of Docker for its version.
func (x programCheck) askDaemon(ctx context.Context, row *switchboard.Server, docker string) (why string) {
	said, err := ask(ctx, row, docker, "version", "--format", "{{.Server.Version}}")
	if version := versionNumber().FindString(said); err == nil && version != "" {
		x.well(Programs, "docker daemon", version)
		return ""
	}
	f := Diagnosis{Area: Programs, Subject: "docker daemon", State: Wrong, Cause: "docker-not-running", What: "it does not answer: " + oneLine(said, err), Remedy: "start Docker (Docker Desktop, or on Linux: sudo systemctl start docker)"}
	if m, ok := ExplainOutput(strings.Split(said, "\n")); ok {
		f.Cause, f.What, f.Remedy, f.Command = m.Cause, m.Claim+": "+oneLine(said, err), m.Remedy, m.Command
	}
	x.add(f)
	return "Docker does not answer"
}

// number returns the value of decimal digits.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// oneLine returns the last line that a program said, or else its error.
func oneLine(said string, err error) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return last[:min(len(last), 300)]
	}
	if err != nil {
		return err.Error()
	}
	return "it says nothing"
}

// ask runs a program with the variables that the server's program would have, without those that hold keys, and returns what it writes to stdout
// and stderr.
func ask(ctx context.Context, row *switchboard.Server, path string, args ...string) (said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	for _, name := range process.BaseEnv {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	for _, name := range []string{"DOCKER_HOST", "DOCKER_CONTEXT"} {
		if v, ok := row.Env[name]; ok {
			cmd.Env = append(cmd.Env, name+"="+v.Reveal())
		}
	}
	out := &boundedBuffer{left: maxSaid}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second // its own children may hold the pipes open
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer in %s", askTimeout)
	}
	return strings.ToValidUTF8(out.String(), "?"), err
}

// A boundedBuffer keeps the first bytes that are written to it. exec uses it from one goroutine, because stdout and stderr are the same.
type boundedBuffer struct {
	bytes.Buffer
	left int
}

// Write implements io.Writer. It takes everything.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	keep := p[:min(len(p), b.left)]
	b.left -= len(keep)
	_, _ = b.Buffer.Write(keep) // it cannot fail
	return len(p), nil
}
