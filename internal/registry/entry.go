package registry

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of one entry. Lengths of texts are in characters.
const (
	MaxTitle       = 100
	MaxDescription = 500

	maxName      = 200
	maxPackages  = 16
	maxRemotes   = 16
	maxVariables = 64
	maxIgnored   = 20 // members that are named in remarks
)

// An Entry is what is taken of one server.json. Each field is narrow: no text of the publisher can become a command, an argument or a value.
type Entry struct {
	Registry string // the id of the registry's row
	Name     string // such as io.github.user/weather; the registry has checked who may use the part before the slash
	Version  string // exact

	// Title and Description are the publisher's words, without hidden characters and line feeds, of at most MaxTitle and MaxDescription characters.
	// Each place that shows them spells them (scan.Spell).
	Title, Description string

	// Package is the npm package; the zero Spec if there is none. Nothing proves yet that it belongs to the name: see OwnsPackage.
	Package packagelock.Spec

	Obstacle string // why the server cannot be tried, for people; "" means that it can

	// Secrets are the variables that the server needs from the operator: those that are secret, and those that are required. Variables are the others.
	// Both are sorted, and of the npm package alone.
	Secrets, Variables []string

	Hosts []string // HOST:PORT of its hosted forms, sorted

	Remarks []Remark // at least one if something was ignored
}

// A RemarkRule names the reason of a Remark.
type RemarkRule string

// The rules.
const (
	RuleIgnored    RemarkRule = "ignored"    // the server.json has something that is never taken
	RuleCleaned    RemarkRule = "cleaned"    // hidden characters were taken out, or a text was cut
	RuleDeprecated RemarkRule = "deprecated" // the registry calls the entry deprecated
	RuleNamespace  RemarkRule = "namespace"  // the name's namespace does not own the package's scope
	RuleAlike      RemarkRule = "alike"      // its name is easily taken for another one
	RuleUnchecked  RemarkRule = "unchecked"  // its name was not compared with the other entries, since there are too many
	RuleImitates   RemarkRule = "imitates"   // like RuleAlike, and the other one is the original
)

// A Remark is something that people should know about an entry.
type Remark struct {
	Registry, Entry, Version string // the entry

	Rule  RemarkRule
	Other string // RuleAlike and RuleImitates: the other name
	Text  string // for people, with hidden characters spelt out
}

// server.json permits these names (name in server.schema.json), with letters or digits first.
var (
	namePattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)
	hostPattern     = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?$`)
	variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	kindPattern     = regexp.MustCompile(`^[a-z][a-z0-9-]{0,19}$`)
)

// The lengths of names. A regexp that counts takes memory for each count.
const (
	maxHost     = 253
	maxVariable = 128
)

// isVariable reports whether an environment may have a variable of that name.
func isVariable(name string) bool {
	return len(name) <= maxVariable && variablePattern.MatchString(name)
}

// entryReader is the state of reading one server.json.
type entryReader struct {
	Entry
	ignored []string // paths of members that are never taken
	hidden  int      // members that are not in ignored
}

// readEntry reads one item of a list: a server.json, or an object with one. The error says why it is refused. The entry then has the name alone, if it is valid.
func readEntry(raw jsontext.Value) (_ Entry, err error) {
	r := &entryReader{}
	item := openMembers(raw, "", &err)
	if wrapped, ok := item.take("server"); ok {
		r.readStatus(item)
		r.ignore(item)
		item = openMembers(wrapped, "", &err)
	}
	r.readServer(item)
	if err != nil {
		return Entry{Name: r.Name}, err
	}
	r.remarkIgnored()
	for i := range r.Remarks {
		r.Remarks[i].Entry, r.Remarks[i].Version = r.Name, r.Version
	}
	return r.Entry, nil
}

// readStatus reads what the official registry says about an entry.
func (r *entryReader) readStatus(item members) {
	m := item.object("_meta").object("io.modelcontextprotocol.registry/official")
	_, told := m.values["isLatest"]
	latest := m.isTrue("isLatest")
	switch status := m.text("status"); status {
	case "deleted":
		r.obstruct("the registry has deleted it")
	case "deprecated":
		r.remark(RuleDeprecated, "the registry calls it deprecated")
	}
	if told && !latest {
		r.obstruct("the registry lists a newer version of it")
	}
}

// obstruct notes why the server cannot be tried. The first reason counts.
func (r *entryReader) obstruct(why string) { r.Obstacle = cmp.Or(r.Obstacle, why) }

// readServer reads a server.json.
func (r *entryReader) readServer(m members) {
	name := m.text("name")
	if len(name) > maxName || !namePattern.MatchString(name) {
		m.refuse("name", "%s is not of the form io.github.user/server, in ASCII letters, digits, dots, hyphens and underscores", shown(name, 80))
		return
	}
	r.Name = name
	r.Version = readVersion(m)
	r.Title = r.readText(m, "title", MaxTitle)
	r.Description = r.readText(m, "description", MaxDescription)
	remotes := m.list("remotes", maxRemotes)
	r.readPackages(m.list("packages", maxPackages), len(remotes) > 0)
	for _, remote := range remotes {
		r.readRemote(remote)
	}
	slices.Sort(r.Hosts)
	r.Hosts = slices.Compact(r.Hosts)
	m.drop("$schema", "_meta", "repository", "websiteUrl", "icons", "status")
	r.ignore(m)
}

// readVersion takes an exact version out.
func readVersion(m members) string {
	switch version := m.text("version"); {
	case packagelock.IsVersion(version):
		return version
	case version == "":
		m.refuse("version", "is missing; only an exact version, such as 1.2.3, says which program is meant")
	default:
		m.refuse("version", "%s is not exact; a range or a tag would mean other programs later, and only a version such as 1.2.3 says which one is meant", shown(version, 40))
	}
	return ""
}

// readText takes a text for people out.
func (r *entryReader) readText(m members, name string, most int) string {
	clean, removed := scan.Clean(m.text(name))
	if removed > 0 {
		r.remark(RuleCleaned, "hidden characters were taken out of the %s: %d", name, removed)
	}
	clean = strings.Join(strings.Fields(clean), " ")
	if n := utf8.RuneCountInString(clean); n > most {
		clean = string([]rune(clean)[:most-1]) + "…"
		r.remark(RuleCleaned, "the %s has %d characters; %d are kept", name, n, most-1)
	}
	return clean
}

// readPackages takes the first npm package.
func (r *entryReader) readPackages(packages []members, hosted bool) {
	var others []string // types of packages
	for _, p := range packages {
		kind := p.text("registryType")
		if kind == "npm" && r.Package.Name == "" {
			r.readNPM(p)
		} else {
			others = append(others, kindOr(kind, "unknown"))
			p.drop("identifier", "version", "registryBaseUrl", "transport", "environmentVariables")
		}
		r.ignore(p)
	}
	slices.Sort(others)
	kinds := strings.Join(slices.Compact(others), ", ")
	switch {
	case r.Package.Name != "" && kinds != "":
		r.remark(RuleIgnored, "it has further packages, which are not taken: %s", kinds)
	case r.Package.Name != "":
	case kinds != "":
		r.obstruct("only npm packages can be tried, and it has another type: " + kinds)
	case hosted:
		r.obstruct("a hosted server cannot be tried in walls")
	default:
		r.obstruct("it names neither a package nor an address")
	}
}

// kindOr returns a type of a package or a transport; other if it has no narrow form.
func kindOr(kind, other string) string {
	if kindPattern.MatchString(kind) {
		return kind
	}
	return other
}

// readNPM takes an npm package: its name, its version, and the names of its variables.
func (r *entryReader) readNPM(p members) {
	name := p.text("identifier")
	if !packagelock.IsName(name) || strings.HasPrefix(name, "-") || strings.HasPrefix(name, "@-") || strings.Contains(name, "/-") {
		p.refuse("identifier", "%s is no name of an npm package", shown(name, 80))
	}
	r.Package = packagelock.Spec{Name: name, Version: readVersion(p)}
	if base := p.text("registryBaseUrl"); base != "" && strings.TrimRight(base, "/") != "https://registry.npmjs.org" {
		r.obstruct("its package is in a registry of packages other than https://registry.npmjs.org, and the same name may be another package elsewhere")
	}
	transport := p.object("transport")
	if kind := transport.text("type"); kind != "stdio" && kind != "" {
		r.obstruct("only a program that speaks MCP over stdio can be tried, and it speaks " + kindOr(kind, "something unknown"))
	}
	r.ignore(transport)
	for _, v := range p.list("environmentVariables", maxVariables) {
		r.readVariable(v)
	}
	slices.Sort(r.Secrets)
	slices.Sort(r.Variables)
	r.Secrets = slices.Compact(r.Secrets)
	r.Variables = slices.DeleteFunc(slices.Compact(r.Variables), func(name string) bool { return slices.Contains(r.Secrets, name) })
}

// readVariable takes the name of a variable.
func (r *entryReader) readVariable(v members) {
	name, secret, required := v.text("name"), v.isTrue("isSecret"), v.isTrue("isRequired")
	switch why := switchboard.RefusedVariable(name); {
	case !isVariable(name):
		v.refuse("name", "%s is no name of a variable", shown(name, 40))
	case why != "":
		r.remark(RuleIgnored, "it asks for the variable %s, which no server gets: %s", name, why)
	case secret || required:
		r.Secrets = append(r.Secrets, name)
	default:
		r.Variables = append(r.Variables, name)
	}
	v.drop("description", "format", "placeholder", "choices")
	r.ignore(v)
}

// readRemote takes the host of a hosted server.
func (r *entryReader) readRemote(m members) {
	if host, ok := hostOf(m.text("url")); ok {
		r.Hosts = append(r.Hosts, host.String())
	} else {
		r.remark(RuleIgnored, "%s names no host that can be read", m.place("url"))
	}
	m.drop("type")
	r.ignore(m)
}

// hostOf returns the host of an address, with its port.
func hostOf(address string) (switchboard.HostPort, bool) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return switchboard.HostPort{}, false
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme]), 10, 16)
	name := strings.ToLower(u.Hostname())
	if ip, bad := netip.ParseAddr(name); bad == nil {
		name = ip.WithZone("").String()
	} else if len(name) > maxHost || !hostPattern.MatchString(name) {
		return switchboard.HostPort{}, false
	}
	return switchboard.HostPort{Name: name, Port: uint16(port)}, err == nil
}

// ignore notes the members that are left: none of them is ever taken.
func (r *entryReader) ignore(m members) {
	for _, name := range slices.Sorted(maps.Keys(m.values)) {
		if len(r.ignored) == maxIgnored {
			r.hidden++
			continue
		}
		if !isVariable(name) {
			name = shown(name, 40)
		}
		r.ignored = append(r.ignored, m.place(name))
	}
}

func (r *entryReader) remarkIgnored() {
	if len(r.ignored) == 0 {
		return
	}
	text := strings.Join(r.ignored, ", ")
	if r.hidden > 0 {
		text += ", and " + strconv.Itoa(r.hidden) + " more"
	}
	r.remark(RuleIgnored, "a registry's words never become a command, so these are ignored: %s", text)
}

func (r *entryReader) remark(rule RemarkRule, format string, args ...any) {
	r.Remarks = append(r.Remarks, Remark{Rule: rule, Text: fmt.Sprintf(format, args...)})
}

// shown returns a stranger's text for a message: quoted, with hidden characters spelt out, and cut after most characters.
func shown(text string, most int) string {
	runes := []rune(text[:min(len(text), 4*most+4)])
	if len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return `"` + scan.Spell(text) + `"`
}
