package registry

import (
	"cmp"
	"errors"
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
	hostPattern     = regexp.MustCompile(`^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$`)
	variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	kindPattern     = regexp.MustCompile(`^[a-z][a-z0-9-]{0,19}$`)
)

// entryReader is the state of reading one server.json.
type entryReader struct {
	Entry
	ignored []string // paths of members that are never taken
	hidden  int      // members that are not in ignored
}

// readEntry reads one item of a list: a server.json, or an object with one. The error says why it is refused. The entry then has the name alone, if it is valid.
func readEntry(raw jsontext.Value) (Entry, error) {
	item, err := openObject(raw)
	if err != nil {
		return Entry{}, err
	}
	r := &entryReader{}
	server := item
	if wrapped, ok := item.take("server"); ok {
		if server, err = openObject(wrapped); err != nil {
			return Entry{}, fmt.Errorf("server: %w", err)
		}
		err = r.readStatus(item)
		item.drop("_meta")
		r.ignore("", item)
	}
	if err == nil {
		err = r.readServer(server)
	}
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
func (r *entryReader) readStatus(item members) error {
	raw, ok := item.take("_meta")
	if !ok {
		return nil
	}
	meta, err := openObject(raw)
	if err != nil {
		return fmt.Errorf("_meta: %w", err)
	}
	raw, ok = meta.take("io.modelcontextprotocol.registry/official")
	if !ok {
		return nil
	}
	official, err := openObject(raw)
	if err != nil {
		return fmt.Errorf("_meta: %w", err)
	}
	_, told := official["isLatest"]
	status, err1 := official.text("status")
	latest, err2 := official.truth("isLatest")
	switch {
	case status == "deleted":
		r.Obstacle = "the registry has deleted it"
	case status == "deprecated":
		r.remark(RuleDeprecated, "the registry calls it deprecated")
	}
	if told && !latest && r.Obstacle == "" {
		r.Obstacle = "the registry lists a newer version of it"
	}
	return errors.Join(err1, err2)
}

// readServer reads a server.json.
func (r *entryReader) readServer(m members) error {
	name, err := m.text("name")
	switch {
	case err != nil:
		return err
	case len(name) > maxName || !namePattern.MatchString(name):
		return fmt.Errorf("name %s is not of the form io.github.user/server, in ASCII letters, digits, dots, hyphens and underscores", shown(name, 80))
	}
	r.Name = name
	if r.Version, err = m.text("version"); err != nil {
		return err
	}
	if !packagelock.IsVersion(r.Version) {
		return badVersion("version", r.Version)
	}
	if r.Title, err = r.readText(m, "title", MaxTitle); err != nil {
		return err
	}
	if r.Description, err = r.readText(m, "description", MaxDescription); err != nil {
		return err
	}
	packages, err := m.list("packages", maxPackages)
	if err != nil {
		return err
	}
	remotes, err := m.list("remotes", maxRemotes)
	if err != nil {
		return err
	}
	if err := r.readPackages(packages, len(remotes) > 0); err != nil {
		return err
	}
	for i, remote := range remotes {
		if err := r.readRemote("remotes["+strconv.Itoa(i)+"]", remote); err != nil {
			return err
		}
	}
	slices.Sort(r.Hosts)
	r.Hosts = slices.Compact(r.Hosts)
	m.drop("$schema", "_meta", "repository", "websiteUrl", "icons", "status")
	r.ignore("", m)
	return nil
}

func badVersion(what, version string) error {
	if version == "" {
		return fmt.Errorf("%s is missing; only an exact version, such as 1.2.3, says which program is meant", what)
	}
	return fmt.Errorf("%s %s is not exact; a range or a tag would mean other programs later, and only a version such as 1.2.3 says which one is meant", what, shown(version, 40))
}

// readText takes a text for people out.
func (r *entryReader) readText(m members, name string, most int) (string, error) {
	text, err := m.text(name)
	if err != nil {
		return "", err
	}
	clean, removed := scan.Clean(text)
	if removed > 0 {
		r.remark(RuleCleaned, "hidden characters were taken out of the %s: %d", name, removed)
	}
	clean = strings.Join(strings.Fields(clean), " ")
	if n := utf8.RuneCountInString(clean); n > most {
		clean = string([]rune(clean)[:most-1]) + "…"
		r.remark(RuleCleaned, "the %s has %d characters; %d are kept", name, n, most-1)
	}
	return clean, nil
}

// readPackages takes the first npm package.
func (r *entryReader) readPackages(packages []members, hosted bool) error {
	var kinds []string // of the other packages
	for i, p := range packages {
		path := "packages[" + strconv.Itoa(i) + "]"
		kind, err := p.text("registryType")
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if kind == "npm" && r.Package.Name == "" {
			if err := r.readNPM(path, p); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			continue
		}
		if !kindPattern.MatchString(kind) {
			kind = "unknown"
		}
		kinds = append(kinds, kind)
		p.drop("identifier", "version", "registryBaseUrl", "transport", "environmentVariables")
		r.ignore(path+".", p)
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	why := ""
	switch {
	case r.Package.Name != "" && len(kinds) > 0:
		r.remark(RuleIgnored, "it has further packages, which are not taken: %s", strings.Join(kinds, ", "))
	case r.Package.Name != "":
	case len(kinds) > 0:
		why = "only npm packages can be tried, and it has another type: " + strings.Join(kinds, ", ")
	case hosted:
		why = "a hosted server cannot be tried in walls"
	default:
		why = "it names neither a package nor an address"
	}
	r.Obstacle = cmp.Or(r.Obstacle, why)
	return nil
}

// readNPM takes an npm package: its name, its version, and the names of its variables.
func (r *entryReader) readNPM(path string, p members) error {
	name, err1 := p.text("identifier")
	version, err2 := p.text("version")
	base, err3 := p.text("registryBaseUrl")
	variables, err4 := p.list("environmentVariables", maxVariables)
	if err := cmp.Or(err1, err2, err3, err4); err != nil {
		return err
	}
	switch {
	case !packagelock.IsName(name) || strings.HasPrefix(name, "-") || strings.HasPrefix(name, "@-") || strings.Contains(name, "/-"):
		return fmt.Errorf("identifier %s is no name of an npm package", shown(name, 80))
	case !packagelock.IsVersion(version):
		return badVersion("version", version)
	}
	r.Package = packagelock.Spec{Name: name, Version: version}
	if base != "" && strings.TrimRight(base, "/") != "https://registry.npmjs.org" {
		r.Obstacle = cmp.Or(r.Obstacle, "its package is in a registry of packages other than https://registry.npmjs.org, and the same name may be another package elsewhere")
	}
	if err := r.readTransport(path, p); err != nil {
		return err
	}
	for i, v := range variables {
		if err := r.readVariable(path+".environmentVariables["+strconv.Itoa(i)+"]", v); err != nil {
			return fmt.Errorf("environmentVariables[%d]: %w", i, err)
		}
	}
	slices.Sort(r.Secrets)
	slices.Sort(r.Variables)
	r.Secrets = slices.Compact(r.Secrets)
	r.Variables = slices.DeleteFunc(slices.Compact(r.Variables), func(name string) bool { return slices.Contains(r.Secrets, name) })
	r.ignore(path+".", p)
	return nil
}

// readTransport reads how the program of a package is spoken to.
func (r *entryReader) readTransport(path string, p members) error {
	raw, ok := p.take("transport")
	if !ok {
		return nil
	}
	m, err := openObject(raw)
	if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	kind, err := m.text("type")
	if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	if kind != "stdio" && kind != "" {
		if !kindPattern.MatchString(kind) {
			kind = "something unknown"
		}
		r.Obstacle = cmp.Or(r.Obstacle, "only a program that speaks MCP over stdio can be tried, and it speaks "+kind)
	}
	r.ignore(path+".transport.", m)
	return nil
}

// readVariable takes the name of a variable.
func (r *entryReader) readVariable(path string, v members) error {
	name, err1 := v.text("name")
	secret, err2 := v.truth("isSecret")
	required, err3 := v.truth("isRequired")
	if err := cmp.Or(err1, err2, err3); err != nil {
		return err
	}
	if !variablePattern.MatchString(name) {
		return fmt.Errorf("name %s is no name of a variable", shown(name, 40))
	}
	switch why := switchboard.RefusedVariable(name); {
	case why != "":
		r.remark(RuleIgnored, "it asks for the variable %s, which no server gets: %s", name, why)
	case secret || required:
		r.Secrets = append(r.Secrets, name)
	default:
		r.Variables = append(r.Variables, name)
	}
	v.drop("description", "format", "placeholder", "choices")
	r.ignore(path+".", v)
	return nil
}

// readRemote takes the host of a hosted server.
func (r *entryReader) readRemote(path string, m members) error {
	address, err := m.text("url")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	m.drop("type")
	r.ignore(path+".", m)
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		r.remark(RuleIgnored, "%s.url names no host that can be read", path)
		return nil
	}
	host := strings.ToLower(u.Hostname())
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
	number, err := strconv.ParseUint(port, 10, 16)
	if ip, bad := netip.ParseAddr(host); bad == nil {
		host = ip.WithZone("").String()
	} else if !hostPattern.MatchString(host) {
		err = bad
	}
	if err != nil {
		r.remark(RuleIgnored, "%s.url names no host that can be read", path)
		return nil
	}
	r.Hosts = append(r.Hosts, switchboard.HostPort{Name: host, Port: uint16(number)}.String())
	return nil
}

// ignore notes the members that are left: none of them is ever taken.
func (r *entryReader) ignore(path string, m members) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if len(r.ignored) == maxIgnored {
			r.hidden++
			continue
		}
		if !variablePattern.MatchString(name) {
			name = shown(name, 40)
		}
		r.ignored = append(r.ignored, path+name)
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
