package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/connect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A configCheck examines the configuration.
type configCheck struct{ *examination }

// maxFaults limits the faults that are listed one by one.
const maxFaults = 50

// checkConfig reads the configuration, and lists its faults and warnings.
func (x configCheck) checkConfig(ctx context.Context) {
	defer x.begin("the configuration")()
	if _, err := os.Stat(x.Config); errors.Is(err, fs.ErrNotExist) {
		x.add(x.absentConfig())
		return
	}
	cfg, err := x.Load(ctx)
	x.cfg = cfg
	var faults switchboard.Faults
	switch {
	case errors.As(err, &faults):
		for i, f := range faults {
			if i == maxFaults {
				x.add(Diagnosis{
					Area: Configuration, Subject: x.Config, State: Wrong, Cause: "fault", What: fmt.Sprintf("it has %d more faults", len(faults)-i),
					Remedy: "correct those above first", Command: x.ours("validate"),
				})
				break
			}
			x.add(x.explainFault(f))
		}
	case err != nil:
		x.add(Diagnosis{Area: Configuration, Subject: x.Config, State: Wrong, Cause: "unreadable", What: err.Error(), Remedy: "make the file readable, or name another one with --config"})
	default:
		x.well(Configuration, x.Config, describeConfig(cfg))
	}
	if cfg == nil {
		return
	}
	for _, w := range cfg.Warnings {
		x.add(Diagnosis{Area: Configuration, Subject: place(w), State: Note, What: w.Text})
	}
}

func describeConfig(cfg *config.Config) string {
	tasks := 0
	for _, t := range cfg.Tenants {
		tasks += len(t.Tasks)
	}
	text := count(len(cfg.Servers), "server")
	if !cfg.Implied {
		text += ", " + count(len(cfg.Tenants), "tenant") + ", " + count(tasks, "task")
	}
	if n := len(cfg.Keys); n > 0 {
		text += ", " + count(n, "key")
	}
	return text
}

// count returns "1 server" or "2 servers".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprint(n, " ", what)
}

// absentConfig is the finding if there is no configuration.
func (x configCheck) absentConfig() Diagnosis {
	f := Diagnosis{
		Area: Configuration, Subject: x.Config, State: Wrong, Cause: "no-configuration", What: "there is no such file",
		Remedy: "make it by adding a first server", Command: x.ours("server", "add", "files") + " -- npx -y @modelcontextprotocol/server-filesystem ~/Documents",
	}
	for _, c := range connect.Clients() {
		if names, err := connect.ListNames(c, x.Host); err == nil && len(names) > 0 {
			f.Remedy = fmt.Sprintf("move the servers of %s here: connect makes the file", c.Name)
			f.Command = x.ours("connect", c.ID)
			break
		}
	}
	return f
}

// place names the place of a fault.
func place(f switchboard.Fault) string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
}

// lazyExpression compiles a regular expression when it is first used, because every start of the program would pay for it.
func lazyExpression(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// Texts of faults that get a remedy of their own.
var (
	unsetVariable  = lazyExpression(`the variable ([A-Za-z_][A-Za-z0-9_]*) is (?:not set|empty)`)
	openedFile     = lazyExpression(`file ("[^"]+"): other users may \w+ it \(its mode is \d+\); chmod (\d+) `)
	missingSecret  = lazyExpression(`file ("[^"]+"): there is no such file`)
	unreadableFile = lazyExpression(`file ("[^"]+"): we may not read it`)
	emptySecret    = lazyExpression(`file ("[^"]+") is empty`)
)

// explainFault returns the finding of a fault.
func (x configCheck) explainFault(f switchboard.Fault) Diagnosis {
	out := Diagnosis{Area: Configuration, Subject: place(f), State: Wrong, Cause: "fault", What: f.Text}
	what, remedy, both := strings.Cut(f.Text, "; ")
	beside := func(name string) string { // the folder of the file that names it
		name = strings.Trim(name, `"`)
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(filepath.Dir(x.Config), filepath.FromSlash(name))
	}
	switch {
	case unsetVariable().MatchString(f.Text):
		name := unsetVariable().FindStringSubmatch(f.Text)[1]
		out.Cause, out.What = "variable-not-set", what
		out.Remedy = fmt.Sprintf("set %s in the environment that starts Switchboard (a client started from a desktop has none of your shell's variables), or write the value into a file for you alone and put ${file:secrets/NAME} in the place of ${env:%[1]s}", name)
		out.Command = "export " + name + "=VALUE"
	case openedFile().MatchString(f.Text):
		m := openedFile().FindStringSubmatch(f.Text)
		out.Cause, out.What, out.Remedy, out.Command = "file-rights", what, "let only its owner use it", commandLine("chmod", m[2], beside(m[1]))
	case missingSecret().MatchString(f.Text):
		name := beside(missingSecret().FindStringSubmatch(f.Text)[1])
		out.Cause = "secret-missing"
		out.Remedy = fmt.Sprintf("write the secret into %s, as a file for you alone (umask 077), or correct the path", name)
	case unreadableFile().MatchString(f.Text):
		name := beside(unreadableFile().FindStringSubmatch(f.Text)[1])
		out.Cause, out.Remedy, out.Command = "file-rights", "let the user of Switchboard read it", commandLine("chmod", "600", name)
	case emptySecret().MatchString(f.Text):
		name := beside(emptySecret().FindStringSubmatch(f.Text)[1])
		out.Cause, out.Remedy = "secret-empty", fmt.Sprintf("write the secret into %s", name)
	case both:
		out.What, out.Remedy = what, remedy
	default:
		out.Remedy = "correct this place; switchboard docs reference lists every key"
		if f.Line == 0 {
			out.Remedy = "correct this file; switchboard docs configuration describes it"
		}
	}
	return out
}

// expirySoon is how long before its end a key is worth a note.
const expirySoon = 14 * 24 * time.Hour

// checkKeys looks for keys that have expired or soon will.
func (x configCheck) checkKeys() {
	if x.cfg == nil || len(x.cfg.Keys) == 0 {
		return
	}
	now, good := time.Now(), 0
	for _, k := range x.cfg.Keys {
		subject := fmt.Sprintf("key %s of tenant %s", k.ID, k.Tenant)
		remedy := fmt.Sprintf("make a new key, and replace the row %q in tenants/%s/tenant.yaml by the lines that the command prints; or take the row out if nobody uses it", k.ID, k.Tenant)
		command := x.ours("key", "new", k.ID, "--tenant", string(k.Tenant))
		switch left := k.Expires.Sub(now); {
		case k.Expires.IsZero() || left > expirySoon:
			good++
		case left <= 0:
			x.add(Diagnosis{Area: Configuration, Subject: subject, State: Wrong, Cause: "key-expired", What: "it expired on " + k.Expires.Format(time.DateOnly) + ", and is refused", Remedy: remedy, Command: command})
		default:
			x.add(Diagnosis{Area: Configuration, Subject: subject, State: Note, Cause: "key-expires", What: "it expires on " + k.Expires.Format(time.DateOnly), Remedy: remedy, Command: command})
		}
	}
	if good > 0 {
		x.well(Configuration, "keys", count(good, "key")+" in force")
	}
}
