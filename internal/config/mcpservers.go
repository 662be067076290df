package config

import (
	"fmt"
	"net/textproto"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Mapping says what became of each server of another program's file.
type Mapping []Mapped

// Mapped is one server of another program's file.
type Mapped struct {
	Name string               `json:"name"`           // as the file spells it
	ID   switchboard.ServerID `json:"id,omitempty"`   // "" where the server was left out
	Note []string             `json:"note,omitempty"` // what was left out or changed, for people
}

func (m *Mapped) note(format string, args ...any) {
	m.Note = append(m.Note, fmt.Sprintf(format, args...))
}

// What is said of a server that keeps a secret where others see it. It is the
// user's own choice, and so no fault.
const (
	secretArgument = "an argument looks like a secret, which every user of the machine can see; hand it over in env, as ${env:NAME}, if the server lets you"
	secretAddress  = "the address looks as if it held a secret, which logs and status can show; hand it over in headers, as ${env:NAME}, if the server lets you"
)

// remark is note for what there may be several reasons to say.
func (m *Mapped) remark(text string) {
	if !slices.Contains(m.Note, text) {
		m.note("%s", text)
	}
}

// LoadMCPServers reads the file in which another program keeps its MCP servers
// ("mcpServers", "servers" or "context_servers", JSON with comments), and
// makes of it the configuration of one local user, who has every tool of every
// server. Secrets may stand in that file itself: it is the user's own. The
// error is Faults.
func LoadMCPServers(file string, opts Options) (*Config, Mapping, error) {
	l, found := readForeign(file, opts)
	defer l.close()
	mapping := make(Mapping, len(found))
	for i, f := range found {
		if f.use {
			l.cfg.Servers = append(l.cfg.Servers, l.foreignServer(f))
		}
		for _, fault := range f.sink.faults {
			l.sink.add(fault)
		}
		for _, w := range f.sink.warnings {
			l.sink.warn(w)
		}
		mapping[i] = f.Mapped
	}
	if err := l.sink.err(file); err != nil {
		return nil, mapping, err
	}
	slices.SortFunc(l.cfg.Servers, func(a, b switchboard.Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
	tenant := &switchboard.Tenant{
		ID: DefaultTenant, ByName: true, DefaultTask: LocalTask,
		Tasks: map[switchboard.TaskID]*switchboard.Task{LocalTask: localTask()},
	}
	for _, s := range l.cfg.Servers {
		tenant.Servers = append(tenant.Servers, s.ID)
	}
	l.cfg.Warnings = inOrder(l.sink.warnings)
	l.cfg.Implied = true
	l.cfg.Tenants[DefaultTenant] = tenant
	l.cfg.Taxonomy, _ = switchboard.NewTaxonomy(nil, nil) // the built-in terms fit together
	slices.Sort(l.cfg.Watch)
	l.cfg.Watch = slices.Compact(l.cfg.Watch)
	return l.cfg, mapping, nil
}

// A foreign is one server of another program's file, taken apart but with
// nothing put in where it refers to something.
type foreign struct {
	Mapped
	sink    *sink // its own faults
	use     bool  // it is not left out
	at      value // its name
	url     *setting
	headers []setting
	command []setting // the program and its arguments
	env     []setting
	dir     *setting
}

// A setting is a text with the references that editors know, taken apart.
type setting struct {
	name  string // of a header or variable
	at    value
	parts []part
}

// sections are the keys under which programs keep their servers.
var sections = []string{"mcpServers", "servers", "context_servers"}

// readForeign reads a file of another program.
func readForeign(file string, opts Options) (*loader, []*foreign) {
	l := newLoader(file, opts)
	data, err := l.readMain(MaxJSONBytes)
	if err != nil {
		l.sink.add(Fault{File: file, Text: "this cannot be read: " + why(err)})
		return l, nil
	}
	doc, ok := readJSON(file, data, l.sink)
	if !ok {
		return l, nil
	}
	doc.hidden = true
	var found []*foreign
	none := true
	for _, s := range sections {
		v, ok := doc.member(s)
		if !ok && s == "servers" {
			// The settings of VS Code hold them a step deeper.
			if mcp, has := doc.member("mcp"); has {
				v, ok = mcp.member(s)
			}
		}
		if !ok {
			continue
		}
		none = false
		for _, e := range v.about("%s: ", s).entries(maxServers, true) {
			e.key.sink = &sink{}
			e.val.sink = e.key.sink
			found = append(found, readServer(e))
		}
	}
	if none {
		doc.fault("there are no MCP servers in this file; they are looked for under %s", strings.Join(sections, ", "))
		return l, nil
	}
	nameThem(found)
	for _, f := range found {
		if f.use || len(f.sink.faults) > 0 {
			return l, found
		}
	}
	doc.fault("no server in this file is switched on")
	return l, found
}

// member returns what a map holds under a key, whatever else it holds.
func (v value) member(name string) (value, bool) {
	for _, p := range v.pairs {
		if p.key.text == name && p.val.kind != nullKind {
			v.node = p.val
			return v, true
		}
	}
	return v, false
}

// foreignKeys are the keys that are read; narrowing are keys with which a
// program holds tools back, so that to ignore them would show more than the
// user wants.
var (
	foreignKeys = []string{"type", "transport", "command", "args", "env", "cwd", "url", "httpUrl", "serverUrl", "headers", "http_headers", "disabled", "enabled", "source", "name", "description"}
	narrowing   = []string{"disabledTools", "disabled_tools", "excludeTools", "exclude_tools", "includeTools", "include_tools", "enabledTools", "enabled_tools", "allowedTools", "allowed_tools", "toolFilter"}
	notRead     = []string{"envFile", "env_file"}
)

func readServer(e entry) *foreign {
	f := &foreign{Mapped: Mapped{Name: e.name}, sink: e.val.sink, at: e.key}
	v := e.val.about("server %s: ", shown(e.name))
	f.at.ctx, f.at.hidden = v.ctx, true
	if v.kind != mapKind {
		v.fault("want an object, not %v", v.kind)
		return f
	}
	if off, ok := v.member("disabled"); ok && off.text == "true" {
		f.note("left out: it is switched off")
		return f
	}
	if on, ok := v.member("enabled"); ok && on.text == "false" {
		f.note("left out: it is switched off")
		return f
	}
	for _, p := range v.pairs {
		key := v
		key.node = p.key
		switch name := p.key.text; {
		case slices.Contains(foreignKeys, name):
		case slices.Contains(narrowing, name):
			key.fault("%q holds tools back, which is not supported yet; remove it, or write a task that names the tools", name)
		case slices.Contains(notRead, name):
			key.fault("%q is not supported yet; put the variables into env", name)
		case name == "settings" && !v.hasMember("command"):
		default:
			f.note("%s is not used here", shown(name))
		}
	}
	f.read(v)
	return f
}

func (v value) hasMember(name string) bool { _, ok := v.member(name); return ok }

// read takes the server apart.
func (f *foreign) read(v value) {
	kind := ""
	for _, k := range []string{"type", "transport"} {
		if t, ok := v.member(k); ok {
			t.ctx += k + ": "
			switch strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(t.text)) {
			case "stdio", "local":
				kind = "stdio"
			case "http", "streamablehttp", "remote", "sse": // which of the two it is shows when it is spoken to
				kind = "http"
			default:
				t.fault("%s is no transport; known transports: stdio, http", shown(t.text))
				return
			}
		}
	}
	var address value
	for _, k := range []string{"url", "httpUrl", "serverUrl"} {
		if u, ok := v.member(k); ok {
			address = u.about("%s%s: ", v.ctx, k)
		}
	}
	command, runs := v.member("command")
	switch {
	case kind == "" && runs && address.sink != nil:
		v.fault(`it has a command and an address; say which counts with "type"`)
	case kind == "stdio" && !runs:
		v.fault(`"command" is missing`)
	case kind == "http" && address.sink == nil:
		v.fault(`"url" is missing`)
	case runs && kind != "http":
		f.readProgram(v, command.about("%scommand: ", v.ctx))
	case address.sink != nil:
		f.readAddress(v, address)
	case v.hasMember("settings") || v.hasMember("source"):
		f.note("left out: it is an extension of the editor, which alone knows how to start it")
	default:
		v.fault(`it has neither "command" nor "url"`)
	}
}

func (f *foreign) readAddress(v, address value) {
	f.use = true
	if _, ok := address.str(); ok {
		if url := foreignParts(address, "", nil); len(url) > 0 {
			f.url = &url[0]
		}
	}
	for _, k := range []string{"headers", "http_headers"} {
		h, ok := v.member(k)
		if !ok {
			continue
		}
		for _, e := range h.about("%s%s: ", v.ctx, k).entries(maxItems, true) {
			canonical := textproto.CanonicalMIMEHeaderKey(e.name)
			switch {
			case !headerName(e.name):
				e.key.fault("%s is no name of a header", e.key.name())
			case slices.Contains(ownHeaders, canonical) || strings.HasPrefix(canonical, "Mcp-"):
				f.note("the header %s is left out: Switchboard sets it itself, or must never send it", e.name)
			case slices.ContainsFunc(f.headers, func(s setting) bool { return s.name == canonical }):
				e.key.fault("%s stands here twice, in another case", e.key.name())
			default:
				f.headers = append(f.headers, texts(e, canonical)...)
			}
		}
	}
}

// texts returns the setting of one header or variable; none where it is null.
func texts(e entry, name string) []setting {
	v := e.val.about("%s%s: ", e.val.ctx, e.key.name())
	switch v.kind {
	case nullKind:
		return nil
	case textKind, intKind, floatKind, boolKind:
		return foreignParts(v, name, nil)
	}
	v.fault("want text, not %v", v.kind)
	return nil
}

func (f *foreign) readProgram(v, command value) {
	f.use = true
	// Zed once kept the program and its arguments a step deeper.
	if path, ok := command.member("path"); ok {
		v, command = command, path
	}
	if e, ok := v.member("env"); ok {
		for _, e := range e.about("%senv: ", v.ctx).entries(maxItems, true) {
			switch why := switchboard.RefusedVariable(e.name); {
			case !variable(e.name):
				e.key.fault("%s is no name of a variable; use letters, digits and _", e.key.name())
			case why != "":
				f.note("the variable %s is left out: %s. If the server must have it, write it into env of a switchboard.yaml, with allow_env: [%s]", e.name, why, e.name)
			default:
				f.env = append(f.env, texts(e, e.name)...)
			}
		}
	}
	words := []value{command}
	if command.kind == listKind {
		words = command.list(maxArgs)
	}
	if a, ok := v.member("args"); ok {
		words = append(words, a.about("%sargs: ", v.ctx).list(maxArgs)...)
	}
	if len(words) == 0 || words[0].text == "" {
		command.fault("it names no program")
		return
	}
	for _, w := range words {
		if w.kind == listKind || w.kind == mapKind || w.kind == nullKind {
			w.fault("want text, not %v", w.kind)
			continue
		}
		f.command = append(f.command, foreignParts(w, "", f.env)...)
	}
	if secretIn(f.command) {
		f.remark(secretArgument)
	}
	if d, ok := v.member("cwd"); ok && d.text != "" {
		if dir := foreignParts(d.about("%scwd: ", v.ctx), "", nil); len(dir) > 0 {
			f.dir = &dir[0]
		}
	}
}

// foreignServer puts in what the settings refer to.
func (l *loader) foreignServer(f *foreign) switchboard.Server {
	s := switchboard.Server{ID: f.ID, Transport: switchboard.TransportStdio, Trust: switchboard.TrustDeclared, Share: switchboard.SharePrincipal}
	if f.url != nil {
		s.Transport = switchboard.TransportHTTP
		if url, ok := l.put(*f.url); ok {
			s.URL = url
			// A secret in the address is the user's own choice here.
			switch why := badURL(url); {
			case why != "" && why != secretInURL:
				f.url.at.fault("%s", why)
			case why != "" || switchboard.CredentialValue(url):
				f.remark(secretAddress)
			}
		}
		s.Headers = l.secrets(f.headers, headerValue, "the value holds a line break or a control character, which no header can")
		return s
	}
	base := l.workspace()
	if f.dir != nil {
		if dir, ok := l.put(*f.dir); ok {
			s.Dir = within(base, dir)
			base = s.Dir
		}
	}
	for i, c := range f.command {
		arg, ok := l.put(c)
		switch {
		case !ok:
			continue
		case strings.ContainsAny(arg, "\x00\n\r") || len(arg) > maxText:
			c.at.fault("it holds a line break or a NUL, or is longer than %d bytes", maxText)
		case i == 0 && strings.ContainsRune(filepath.ToSlash(arg), '/'):
			arg = within(base, arg)
		}
		if switchboard.CredentialValue(arg) {
			f.remark(secretArgument)
		}
		s.Command = append(s.Command, arg)
	}
	s.Env = l.secrets(f.env, func(s string) bool { return !strings.Contains(s, "\x00") }, "the value holds a NUL, which no variable can")
	return s
}

func (l *loader) secrets(settings []setting, fine func(string) bool, why string) map[string]switchboard.Secret {
	out := map[string]switchboard.Secret{}
	for _, h := range settings {
		text, ok := l.put(h)
		if ok && !fine(text) {
			h.at.fault("%s", why)
		}
		out[h.name] = switchboard.NewSecret(text)
	}
	return out
}

// put returns a setting with everything put in.
func (l *loader) put(s setting) (string, bool) {
	var b strings.Builder
	fine := true
	for _, p := range s.parts {
		text, err := l.foreignResolve(p)
		if err != nil {
			s.at.fault("%v", err)
			fine = false
		}
		b.WriteString(text)
	}
	return b.String(), fine
}

func (l *loader) foreignResolve(p part) (string, error) {
	switch p.kind {
	case "default":
		if text, ok := l.opts.Env(p.text); ok && text != "" {
			return text, nil
		}
		return p.fallback, nil
	case "workspace":
		return l.workspace(), nil
	}
	return l.resolve(p)
}

// workspace is the folder that an editor has open when it reads the file.
func (l *loader) workspace() string {
	if base := filepath.Base(l.abs); strings.HasPrefix(base, ".") && base != "." {
		return filepath.Dir(l.abs) // .vscode/mcp.json, .cursor/mcp.json
	}
	return l.abs
}

// within makes a path absolute.
func within(folder, p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(folder, p)
}
