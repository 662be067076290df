package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/connect"
)

// A clientCheck examines the files of clients.
type clientCheck struct{ *examination }

// checkClients looks whether the files of the clients that are here lead to this Switchboard.
func (x clientCheck) checkClients(ctx context.Context, run servingProcesses) {
	if x.Host == nil {
		return
	}
	for _, c := range connect.Clients() {
		if ctx.Err() != nil || !c.Present(x.Host) {
			continue
		}
		end := x.begin(c.Name)
		x.checkClient(ctx, c, run)
		end()
	}
}

func (x clientCheck) checkClient(ctx context.Context, c *connect.Client, run servingProcesses) {
	v := connect.Look(c, x.Host)
	for _, err := range v.Problems {
		f := Diagnosis{Area: Clients, Subject: c.Name, State: Wrong, Cause: "client-file", What: err.Error(), Remedy: "correct that place; the client itself may not read the file either"}
		if what, remedy, both := strings.Cut(err.Error(), "; "); both {
			f.What, f.Remedy = what, remedy
		}
		x.add(f)
	}
	if len(v.Entries) == 0 {
		if len(v.Problems) > 0 {
			return
		}
		what := "it does not use Switchboard"
		if v.Others > 0 {
			what += fmt.Sprintf(", and starts %s itself", count(v.Others, "server"))
		}
		x.add(Diagnosis{Area: Clients, Subject: c.Name, State: Note, Cause: "not-connected", What: what, Remedy: "connect it, if you want that", Command: x.ours("connect", c.ID)})
		return
	}
	for _, e := range v.Entries {
		if e.URL != "" {
			x.add(x.checkURLEntry(ctx, c, e, run))
		} else {
			x.add(x.checkCommandEntry(c, e, run))
		}
	}
}

// checkCommandEntry looks at an entry that starts a Switchboard.
func (x clientCheck) checkCommandEntry(c *connect.Client, e connect.OwnEntry, run servingProcesses) Diagnosis {
	f := Diagnosis{Area: Clients, Subject: c.Name, State: Wrong}
	where := fmt.Sprintf("the entry %s in %s", e.Name, e.Place.File)
	again := x.ours("connect", c.ID)
	file := e.Config
	if file != "" && !filepath.IsAbs(file) {
		f.Cause, f.What = "relative-configuration", fmt.Sprintf("%s names the configuration %s, which depends on the folder where the client is started", where, file)
		f.Remedy = fmt.Sprintf("write the whole path into the entry: %s", x.Config)
		return f
	}
	if file != "" && file != x.Config && !isSameFile(file, x.Config) {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			f.Cause, f.What = "configuration-missing", fmt.Sprintf("%s starts Switchboard with the configuration %s, which is not there", where, file)
			f.Remedy = "take the entry out of that file, and connect the client again"
			f.Command = again
			return f
		}
		f.State, f.Cause, f.What = Note, "other-configuration", fmt.Sprintf("%s starts Switchboard with another configuration, %s", where, file)
		f.Remedy, f.Command = "examine that one", commandLine("switchboard", "doctor", "--config", file)
		return f
	}
	program, err := findProgram(x.Host, e.Command[0])
	switch {
	case errors.Is(err, fs.ErrPermission):
		f.Cause, f.What = "program-forbidden", fmt.Sprintf("%s starts %s, which may not be run", where, e.Command[0])
		f.Remedy, f.Command = "make it a program again, or connect the client again", commandLine("chmod", "+x", e.Command[0])
		return f
	case err != nil:
		f.Cause, f.What = "program-missing", fmt.Sprintf("%s starts %s, which is not there", where, e.Command[0])
		f.Remedy, f.Command = "connect the client again: the entry then starts this program", again
		return f
	}
	f.State, f.What = Well, where+" starts this Switchboard"
	if !isSameFile(program, x.Program) {
		f.State, f.Cause, f.What = Note, "other-program", fmt.Sprintf("%s starts %s, and not %s, which runs now", where, program, x.Program)
		f.Remedy, f.Command = "connect the client again, if that program is an old one", again
		return f
	}
	if c.Desktop() && filepath.Base(e.Command[0]) == e.Command[0] {
		f.State, f.Cause = Note, "desktop-path"
		f.What += ", if the client finds it: a client that is started from the desktop may not have the PATH of your shell"
		f.Remedy, f.Command = "connect the client again: the entry then names the whole path", again
		return f
	}
	if p := run.joinable(x.Identity); p != nil {
		f.What += fmt.Sprintf(", and joins the one that runs (pid %d)", p.PID)
	}
	return f
}

// findProgram returns the path of the program that a client starts.
func findProgram(h *connect.Host, program string) (string, error) {
	if filepath.IsAbs(program) {
		return exec.LookPath(program)
	}
	return h.LookPath(program)
}

func isSameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// checkURLEntry looks at an entry that calls a Switchboard.
func (x clientCheck) checkURLEntry(ctx context.Context, c *connect.Client, e connect.OwnEntry, run servingProcesses) Diagnosis {
	f := Diagnosis{Area: Clients, Subject: c.Name, State: Wrong}
	u, err := url.Parse(e.URL)
	if err != nil || u.Host == "" {
		f.Cause, f.What, f.Remedy = "address", fmt.Sprintf("the entry %s in %s has no valid address", e.Name, e.Place.File), "connect the client again"
		f.Command = x.ours("connect", c.ID, "--http")
		return f
	}
	base := u.Scheme + "://" + u.Host
	where := fmt.Sprintf("the entry %s in %s calls %s", e.Name, e.Place.File, base)
	if answers, _ := askReady(ctx, base); answers {
		f.State, f.What = Well, where+", where a Switchboard answers"
		return f
	}
	f.Cause, f.What = "not-served", where+", where no Switchboard answers"
	f.Remedy, f.Command = "start it, or let the client start one itself ("+x.ours("connect", c.ID)+")", x.ours("serve")
	for _, p := range run {
		if p.URL != "" && p.answers() {
			f.Cause, f.What = "address", fmt.Sprintf("%s, and Switchboard serves at %s", where, p.URL)
			f.Remedy, f.Command = "connect the client again", x.ours("connect", c.ID, "--http")
			return f
		}
	}
	if listen := config.ListenAddress(x.Config); listen != "" && !samePort(base, listen) {
		f.Remedy = fmt.Sprintf("the configuration says %s now: connect the client again (%s, and start %s), or let it start Switchboard itself", listen, x.ours("connect", c.ID, "--http"), x.ours("serve"))
		f.Command = x.ours("connect", c.ID)
	}
	return f
}
