package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/lockfile"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// AdmittedFile is the name of the file of pins beside the main file.
const AdmittedFile = lockfile.Name

// MaxBytes returns how many bytes the file may have at most. name is its path in the folder of the configuration.
func MaxBytes(name string) int {
	if name == AdmittedFile {
		return lockfile.MaxBytes
	}
	return document.MaxFileBytes
}

// admissionKeys are the keys of admission:.
func admissionKeys(r *switchboard.AdmissionRules) func() *document.Keys {
	return func() *document.Keys {
		return &document.Keys{
			Rows: []document.Row{
				{Key: "trust", Type: document.OneOf("trust", func(s string) { r.Trust = s }, switchboard.TrustFirstUse, switchboard.TrustStrict), Doc: "`first_use` (the default): what a server offers first is let in. `strict`: only what `admitted.lock` names is let in, and each change suspends."},
				{Key: "changed", Type: document.OneOf("way", func(s string) { r.Changed = s }, switchboard.ChangedFreeze, switchboard.ChangedSuspend), Doc: "With `first_use`, what happens to a tool whose definition changes without harm. `freeze` (the default): the admitted definition stays in use. `suspend`: the tool is suspended until a person accepts the change."},
				{Key: "volatile", Type: volatileType(&r.Volatile), Doc: "Keys of the `_meta` of definitions whose values change all the time, such as the time of a build. They do not count when definitions are compared, and clients do not get them with what is let in from then on. [Admission](admission.md#keys-that-change-all-the-time) explains it."},
			},
			Hints: map[string]string{"lock": "the file is always " + AdmittedFile + ", beside this one", "trial": "it stands in the row of a tenant"},
		}
	}
}

// volatileType is the type of a list of keys of _meta.
func volatileType(to *[]string) document.Type {
	schema := document.Schema{"type": "array", "items": document.Schema{"type": "string", "pattern": "^[A-Za-z0-9._/-]{1,128}$"}, "uniqueItems": true, "maxItems": switchboard.MaxVolatile}
	return document.Custom(fmt.Sprintf("a list of at most %d keys of `_meta`", switchboard.MaxVolatile), schema, func(v document.Value) {
		keys := []string{}
		for _, t := range v.ReadTexts() {
			if err := switchboard.CheckVolatileKey(t.String); err != nil {
				t.Fault("%s cannot be left out: %v", t.Shown(), err)
				continue
			}
			keys = append(keys, t.String)
		}
		if slices.Sort(keys); len(keys) > switchboard.MaxVolatile {
			v.Fault("%d keys are too many; at most %d are left out", len(keys), switchboard.MaxVolatile)
			return
		}
		*to = keys
	})
}

// effectiveRules returns the rules of a server, and those for all servers where it has none.
func effectiveRules(own, all switchboard.AdmissionRules) switchboard.AdmissionRules {
	if own.Volatile == nil {
		own.Volatile = all.Volatile
	}
	return switchboard.AdmissionRules{Trust: cmp.Or(own.Trust, all.Trust), Changed: cmp.Or(own.Changed, all.Changed), Volatile: own.Volatile}
}

// readAdmitted reads admitted.lock. A fault in it refuses the whole configuration, so that the pins in force stay in force.
func readAdmitted(l *loader) {
	if !l.exists(AdmittedFile) {
		return
	}
	text, err := l.readFile(AdmittedFile, lockfile.MaxBytes)
	if err != nil {
		l.fault(AdmittedFile, "this cannot be read: %s", document.ErrorText(err))
		return
	}
	file := l.displayPath(AdmittedFile)
	pins, err := lockfile.Read(file, text)
	faults, _ := errors.AsType[switchboard.Faults](err)
	for _, f := range faults {
		l.sink.Add(f)
	}
	if l.cfg.Admitted = pins; !l.readable {
		return
	}
	first := map[switchboard.ServerID]switchboard.PinID{} // of servers that are not here
	count := map[switchboard.ServerID]int{}
	for id := range pins {
		if l.servers[string(id.Server)] == nil {
			if was, ok := first[id.Server]; !ok || lockfile.ComparePins(id, was) < 0 {
				first[id.Server] = id
			}
			count[id.Server]++
		}
	}
	if len(first) == 0 {
		return
	}
	places := lockfile.Places(text)
	for server, id := range first {
		l.sink.Warn(Fault{File: file, Line: places[id], Column: 1, Text: fmt.Sprintf("%s is no server here%s; its lines (%d) stay, and count again when the server is back", server, suggestServer(l, server), count[server])})
	}
}

// Pins returns the pins of admitted.lock in the order of the file.
func (c *Config) Pins() []switchboard.AdmittedPin {
	return slices.SortedFunc(maps.Values(c.Admitted), func(a, b switchboard.AdmittedPin) int { return lockfile.ComparePins(a.PinID, b.PinID) })
}

// suggestServer returns the nearest server, for a warning.
func suggestServer(l *loader, id switchboard.ServerID) string {
	if near := document.Nearest(string(id), l.serverIDs); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// anyTool is the pattern of all tools of all servers.
const anyTool = "*/*"

// readTrial reads the tools that a tenant tries, of the servers.
func (n *vocabulary) readTrial(texts []document.TextValue, servers []string) (out []string) {
	for _, text := range texts {
		if p, ok := n.readTrialPattern(text, servers); ok {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// readTrialPattern reads one pattern. A server stands for all of its tools.
func (n *vocabulary) readTrialPattern(text document.TextValue, servers []string) (pattern string, ok bool) {
	server, name, named := strings.Cut(text.String, "/")
	if !named {
		name = "*"
	}
	switch {
	case server == "" || name == "":
		text.Fault("%s: want the form server or server/tool, in which * stands for any text", text.Shown())
	case badPattern(name) != "":
		text.Fault("%s: %s", text.Shown(), badPattern(name))
	default:
		return server + "/" + name, len(n.matchServers(text.Value, server, servers)) > 0
	}
	return "", false
}

// mostTrials returns what the operator lets a tenant try. A single user is the operator.
func mostTrials(l *loader, b *bound) []string {
	if l.noTenantRows {
		return []string{anyTool}
	}
	return b.trial
}

// readNarrowedTrial reads the tools that a tenant selects from those that the operator lets it try.
func (t *tenantFolder) readNarrowedTrial(texts []document.TextValue) {
	t.out.Trial = nil
	most := mostTrials(t.loader, t.bound)
	for _, text := range texts {
		p, ok := t.readTrialPattern(text, t.servers)
		if !ok {
			continue
		}
		within := intersectTrials([]string{p}, most)
		if within == nil && !t.bound.rowUnreadable {
			text.Fault("%s is not within what the operator lets this tenant try; %s", text.Shown(), document.ListKnown("tools that it may try", most))
		}
		t.out.Trial = append(t.out.Trial, within...)
	}
	slices.Sort(t.out.Trial)
	t.out.Trial = slices.Compact(t.out.Trial)
}

// intersectTrials returns patterns that match only tools that both lists match. It does not find all of them: "read_*" and "*_all" give no pattern.
func intersectTrials(a, b []string) (out []string) {
	for _, p := range a {
		for _, q := range b {
			server, name, _ := strings.Cut(p, "/")
			otherServer, otherName, _ := strings.Cut(q, "/")
			server, ok := narrowerPattern(server, otherServer)
			name, too := narrowerPattern(name, otherName)
			if ok && too {
				out = append(out, server+"/"+name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// narrowerPattern returns the one of two patterns that matches only what the other one matches too. A * in a pattern can only be matched by a * in the
// other one.
func narrowerPattern(a, b string) (string, bool) {
	if switchboard.MatchPattern(b, a) {
		return a, true
	}
	return b, switchboard.MatchPattern(a, b)
}
