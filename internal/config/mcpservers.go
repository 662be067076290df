package config

import (
	"fmt"
	"net/textproto"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Mapping says what happened to each server of another program's file.
type Mapping []Mapped

// Mapped says what happened to one server.
type Mapped struct {
	Name string               `json:"name"`           // as the file spells it
	ID   switchboard.ServerID `json:"id,omitempty"`   // "" where the server was left out
	Note []string             `json:"note,omitempty"` // what was left out or changed, for people
}

func (m *Mapped) addNote(format string, args ...any) {
	m.Note = append(m.Note, fmt.Sprintf(format, args...))
}

// Notes on a server whose secret is visible to others. The user has chosen that, and so they are not
// faults.
const (
	secretArgument = "an argument looks like a secret, which every user of the machine can see; hand it over in env, as ${env:NAME}, if the server lets you"
	secretAddress  = "the address looks as if it held a secret, which logs and status can show; hand it over in headers, as ${env:NAME}, if the server lets you"
)

// addRemark adds a note, but only once: several reasons can lead to the same note.
func (m *Mapped) addRemark(text string) {
	if !slices.Contains(m.Note, text) {
		m.addNote("%s", text)
	}
}

// LoadMCPServers reads the file in which another program keeps its MCP servers ("mcpServers",
// "servers" or "context_servers", JSON with comments). It returns the configuration of one local user
// who has every tool of every server. The file belongs to the user, and so it may contain secrets. The
// error is Faults.
func LoadMCPServers(file string, opts Options) (*Config, Mapping, error) {
	l, found := readForeign(file, opts)
	defer l.close()
	mapping := make(Mapping, len(found))
	for i, f := range found {
		if f.use {
			l.cfg.Servers = append(l.cfg.Servers, l.resolveServer(f))
		}
		for _, fault := range f.sink.faults {
			l.sink.addFault(fault)
		}
		for _, w := range f.sink.warnings {
			l.sink.addWarning(w)
		}
		mapping[i] = f.Mapped
	}
	if err := l.sink.sortedErr(file); err != nil {
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
	l.cfg.Warnings = sortFaults(l.sink.warnings)
	l.cfg.Implied = true
	l.cfg.Tenants[DefaultTenant] = tenant
	l.cfg.Taxonomy, _ = switchboard.NewTaxonomy(nil, nil) // the built-in terms are consistent
	slices.Sort(l.cfg.Watch)
	l.cfg.Watch = slices.Compact(l.cfg.Watch)
	return l.cfg, mapping, nil
}

// A foreignServer is one server of another program's file. Its references are split, but not resolved.
type foreignServer struct {
	Mapped
	sink    *sink // its own faults
	use     bool  // false if the server is left out
	at      value // its name
	url     *foreignSetting
	headers []foreignSetting
	command []foreignSetting // the program and its arguments
	env     []foreignSetting
	dir     *foreignSetting
}

// A foreignSetting is a text, split at the references that editors know.
type foreignSetting struct {
	name  string // of a header or variable
	at    value
	parts []textPiece
}

// serverSections are the keys that hold the servers in other programs' files.
var serverSections = []string{"mcpServers", "servers", "context_servers"}

// readForeign reads another program's file.
func readForeign(file string, opts Options) (*loader, []*foreignServer) {
	l := newLoader(file, opts)
	data, err := l.readMain(MaxJSONBytes)
	if err != nil {
		l.sink.addFault(Fault{File: file, Text: "this cannot be read: " + errorText(err)})
		return l, nil
	}
	doc, ok := readJSON(file, data, l.sink)
	if !ok {
		return l, nil
	}
	doc.hidden = true
	var found []*foreignServer
	none := true
	for _, s := range serverSections {
		v, ok := doc.findMember(s)
		if !ok && s == "servers" {
			// The settings of VS Code nest them one level deeper.
			if mcp, has := doc.findMember("mcp"); has {
				v, ok = mcp.findMember(s)
			}
		}
		if !ok {
			continue
		}
		none = false
		for _, e := range v.withContext("%s: ", s).readEntries(maxServers, true) {
			e.key.sink = &sink{}
			e.val.sink = e.key.sink
			found = append(found, readServer(e))
		}
	}
	if none {
		doc.fault("there are no MCP servers in this file; they are looked for under %s", strings.Join(serverSections, ", "))
		return l, nil
	}
	assignIDs(found)
	for _, f := range found {
		if f.use || len(f.sink.faults) > 0 {
			return l, found
		}
	}
	doc.fault("no server in this file is switched on")
	return l, found
}

// findMember returns the value under a key of a map. It does not check the other keys.
func (v value) findMember(name string) (value, bool) {
	for _, p := range v.pairs {
		if p.key.text == name && p.val.kind != nullKind {
			v.syntaxNode = p.val
			return v, true
		}
	}
	return v, false
}

// foreignKeys are the keys that are read. narrowingKeys restrict the tools of a server: if they were
// ignored, more tools would be shown than the user wants.
var (
	foreignKeys   = []string{"type", "transport", "command", "args", "env", "cwd", "url", "httpUrl", "serverUrl", "headers", "http_headers", "disabled", "enabled", "source", "name", "description"}
	narrowingKeys = []string{"disabledTools", "disabled_tools", "excludeTools", "exclude_tools", "includeTools", "include_tools", "enabledTools", "enabled_tools", "allowedTools", "allowed_tools", "toolFilter"}
	unreadKeys    = []string{"envFile", "env_file"}
)

func readServer(e namedPair) *foreignServer {
	f := &foreignServer{Mapped: Mapped{Name: e.name}, sink: e.val.sink, at: e.key}
	v := e.val.withContext("server %s: ", quoteShown(e.name))
	f.at.ctx, f.at.hidden = v.ctx, true
	if v.kind != mapKind {
		v.fault("want an object, not %v", v.kind)
		return f
	}
	if off, ok := v.findMember("disabled"); ok && off.text == "true" {
		f.addNote("left out: it is switched off")
		return f
	}
	if on, ok := v.findMember("enabled"); ok && on.text == "false" {
		f.addNote("left out: it is switched off")
		return f
	}
	for _, p := range v.pairs {
		key := v
		key.syntaxNode = p.key
		switch name := p.key.text; {
		case slices.Contains(foreignKeys, name):
		case slices.Contains(narrowingKeys, name):
			key.fault("%q holds tools back, which is not supported yet; remove it, or write a task that names the tools", name)
		case slices.Contains(unreadKeys, name):
			key.fault("%q is not supported yet; put the variables into env", name)
		case name == "settings" && !v.hasMember("command"):
		default:
			f.addNote("%s is not used here", quoteShown(name))
		}
	}
	f.readTransport(v)
	return f
}

func (v value) hasMember(name string) bool { _, ok := v.findMember(name); return ok }

// readTransport reads how to reach the server.
func (f *foreignServer) readTransport(v value) {
	kind := ""
	for _, k := range []string{"type", "transport"} {
		if t, ok := v.findMember(k); ok {
			t.ctx += k + ": "
			switch strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(t.text)) {
			case "stdio", "local":
				kind = "stdio"
			case "http", "streamablehttp", "remote", "sse": // the connection shows which of the two it is
				kind = "http"
			default:
				t.fault("%s is no transport; known transports: stdio, http", quoteShown(t.text))
				return
			}
		}
	}
	var address value
	for _, k := range []string{"url", "httpUrl", "serverUrl"} {
		if u, ok := v.findMember(k); ok {
			address = u.withContext("%s%s: ", v.ctx, k)
		}
	}
	command, runs := v.findMember("command")
	switch {
	case kind == "" && runs && address.sink != nil:
		v.fault(`it has a command and an address; say which counts with "type"`)
	case kind == "stdio" && !runs:
		v.fault(`"command" is missing`)
	case kind == "http" && address.sink == nil:
		v.fault(`"url" is missing`)
	case runs && kind != "http":
		f.readProgram(v, command.withContext("%scommand: ", v.ctx))
	case address.sink != nil:
		f.readAddress(v, address)
	case v.hasMember("settings") || v.hasMember("source"):
		f.addNote("left out: it is an extension of the editor, which alone knows how to start it")
	default:
		v.fault(`it has neither "command" nor "url"`)
	}
}

func (f *foreignServer) readAddress(v, address value) {
	f.use = true
	if _, ok := address.readText(); ok {
		if url := splitForeign(address, "", nil); len(url) > 0 {
			f.url = &url[0]
		}
	}
	for _, k := range []string{"headers", "http_headers"} {
		h, ok := v.findMember(k)
		if !ok {
			continue
		}
		for _, e := range h.withContext("%s%s: ", v.ctx, k).readEntries(maxItems, true) {
			canonical := textproto.CanonicalMIMEHeaderKey(e.name)
			switch {
			case !headerName(e.name):
				e.key.fault("%s is no name of a header", e.key.shownName())
			case slices.Contains(ownHeaders, canonical) || strings.HasPrefix(canonical, "Mcp-"):
				f.addNote("the header %s is left out: Switchboard sets it itself, or must never send it", e.name)
			case slices.ContainsFunc(f.headers, func(s foreignSetting) bool { return s.name == canonical }):
				e.key.fault("%s stands here twice, in another case", e.key.shownName())
			default:
				f.headers = append(f.headers, readSetting(e, canonical)...)
			}
		}
	}
}

// readSetting returns the setting of one header or variable, or none if its value is null.
func readSetting(e namedPair, name string) []foreignSetting {
	v := e.val.withContext("%s%s: ", e.val.ctx, e.key.shownName())
	switch v.kind {
	case nullKind:
		return nil
	case textKind, intKind, floatKind, boolKind:
		return splitForeign(v, name, nil)
	}
	v.fault("want text, not %v", v.kind)
	return nil
}

func (f *foreignServer) readProgram(v, command value) {
	f.use = true
	// Older versions of Zed nested the program and its arguments one level deeper.
	if path, ok := command.findMember("path"); ok {
		v, command = command, path
	}
	if e, ok := v.findMember("env"); ok {
		for _, e := range e.withContext("%senv: ", v.ctx).readEntries(maxItems, true) {
			switch why := switchboard.RefusedVariable(e.name); {
			case !isVariableName(e.name):
				e.key.fault("%s is no name of a variable; use letters, digits and _", e.key.shownName())
			case why != "":
				f.addNote("the variable %s is left out: %s. If the server must have it, write it into env of a switchboard.yaml, with allow_env: [%s]", e.name, why, e.name)
			default:
				f.env = append(f.env, readSetting(e, e.name)...)
			}
		}
	}
	words := []value{command}
	if command.kind == listKind {
		words = command.readList(maxArgs)
	}
	if a, ok := v.findMember("args"); ok {
		words = append(words, a.withContext("%sargs: ", v.ctx).readList(maxArgs)...)
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
		f.command = append(f.command, splitForeign(w, "", f.env)...)
	}
	if holdsSecret(f.command) {
		f.addRemark(secretArgument)
	}
	if d, ok := v.findMember("cwd"); ok && d.text != "" {
		if dir := splitForeign(d.withContext("%scwd: ", v.ctx), "", nil); len(dir) > 0 {
			f.dir = &dir[0]
		}
	}
}

// resolveServer returns the server with all references resolved.
func (l *loader) resolveServer(f *foreignServer) switchboard.Server {
	s := switchboard.Server{ID: f.ID, Transport: switchboard.TransportStdio, Trust: switchboard.TrustDeclared, Share: switchboard.SharePrincipal}
	if f.url != nil {
		s.Transport = switchboard.TransportHTTP
		if url, ok := l.resolveSetting(*f.url); ok {
			s.URL = url
			// The user has chosen to have a secret in the address.
			switch why := badURL(url); {
			case why != "" && why != secretInURL:
				f.url.at.fault("%s", why)
			case why != "" || switchboard.CredentialValue(url):
				f.addRemark(secretAddress)
			}
		}
		s.Headers = l.resolveSecrets(f.headers, headerValue, "the value holds a line break or a control character, which no header can")
		return s
	}
	base := l.workspace()
	if f.dir != nil {
		if dir, ok := l.resolveSetting(*f.dir); ok {
			s.Dir = absoluteIn(base, dir)
			base = s.Dir
		}
	}
	for i, c := range f.command {
		arg, ok := l.resolveSetting(c)
		switch {
		case !ok:
			continue
		case strings.ContainsAny(arg, "\x00\n\r") || len(arg) > maxText:
			c.at.fault("it holds a line break or a NUL, or is longer than %d bytes", maxText)
		case i == 0 && strings.ContainsRune(filepath.ToSlash(arg), '/'):
			arg = absoluteIn(base, arg)
		}
		if switchboard.CredentialValue(arg) {
			f.addRemark(secretArgument)
		}
		s.Command = append(s.Command, arg)
	}
	s.Env = l.resolveSecrets(f.env, func(s string) bool { return !strings.Contains(s, "\x00") }, "the value holds a NUL, which no variable can")
	return s
}

func (l *loader) resolveSecrets(settings []foreignSetting, fine func(string) bool, why string) map[string]switchboard.Secret {
	out := map[string]switchboard.Secret{}
	for _, h := range settings {
		text, ok := l.resolveSetting(h)
		if ok && !fine(text) {
			h.at.fault("%s", why)
		}
		out[h.name] = switchboard.NewSecret(text)
	}
	return out
}

// resolveSetting returns the text of a setting with all references resolved.
func (l *loader) resolveSetting(s foreignSetting) (string, bool) {
	var b strings.Builder
	fine := true
	for _, p := range s.parts {
		text, err := l.resolveForeignPiece(p)
		if err != nil {
			s.at.fault("%v", err)
			fine = false
		}
		b.WriteString(text)
	}
	return b.String(), fine
}

func (l *loader) resolveForeignPiece(p textPiece) (string, error) {
	switch p.kind {
	case "default":
		if text, ok := l.opts.Env(p.text); ok && text != "" {
			return text, nil
		}
		return p.fallback, nil
	case "workspace":
		return l.workspace(), nil
	}
	return l.resolvePiece(p)
}

// workspace returns the folder that an editor has open when it reads the file.
func (l *loader) workspace() string {
	if base := filepath.Base(l.absDir); strings.HasPrefix(base, ".") && base != "." {
		return filepath.Dir(l.absDir) // .vscode/mcp.json, .cursor/mcp.json
	}
	return l.absDir
}

// absoluteIn returns p as an absolute path, relative to folder.
func absoluteIn(folder, p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(folder, p)
}
