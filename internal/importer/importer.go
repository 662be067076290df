// Package importer reads the MCP servers of other programs: Claude, VS Code, Zed and others.
//
// Load serves such a file unchanged; Convert makes a switchboard.yaml of it. The package decides which servers of
// the file can be served, and lists in a Mapping everything that it left out or changed. Package config decides
// the meaning of a configuration; package document reads the JSON with its comments.
package importer

import (
	"fmt"
	"io/fs"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/endpoint"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Mapping says what happened to each server of another program's file.
type Mapping []Mapped

// Mapped says what happened to one server.
type Mapped struct {
	Name    string               `json:"name"`              // as the file spells it
	ID      switchboard.ServerID `json:"id,omitempty"`      // "" where the server was left out
	Present bool                 `json:"present,omitempty"` // the configuration has the server already, under ID

	// NeedsConnection says that the server demands a sign-in at its provider. Package importer asks no server, so the caller sets it.
	NeedsConnection bool `json:"needs_connection,omitempty"`

	Notes []string `json:"note,omitempty"` // what was left out or changed, for people
}

func (m *Mapped) addNote(format string, args ...any) {
	m.Notes = append(m.Notes, fmt.Sprintf(format, args...))
}

// Notes on a secret that other users of the machine can see. It is the choice of the user, and so no fault.
const (
	secretArgument = "an argument looks like a secret, which every user of the machine can see; hand it over in env, as ${env:NAME}, if the server lets you"
	secretAddress  = "the address looks as if it held a secret, which logs and status can show; hand it over in headers, as ${env:NAME}, if the server lets you"
)

// switchboardItself is the note on a server that is Switchboard: if Switchboard served it, it would call or start itself without end.
const switchboardItself = "left out: it is Switchboard itself"

// addRemark adds a note, but only once: several reasons can lead to the same note.
func (m *Mapped) addRemark(text string) {
	if !slices.Contains(m.Notes, text) {
		m.addNote("%s", text)
	}
}

// Load reads another program's file of MCP servers ("mcpServers", "servers" or "context_servers", JSON with
// comments). It returns the configuration of one local user who has every tool of every server. The file
// belongs to the user, and so it may contain secrets. The error is switchboard.Faults.
func Load(file string, opts config.Options) (*config.Config, Mapping, error) {
	r := newReader(file, opts)
	found := r.readServers()
	mapping := make(Mapping, len(found))
	var servers []switchboard.Server
	for i, f := range found {
		if f.use {
			servers = append(servers, r.resolveServer(f))
		}
		r.sink.AddAll(f.sink)
		mapping[i] = f.Mapped
	}
	if err := r.sink.Err(file); err != nil {
		return nil, mapping, err
	}
	c := config.SingleUser(servers)
	c.Warnings = document.SortFaults(r.sink.Warnings)
	c.Watch = slices.Compact(slices.Sorted(slices.Values(r.watched)))
	c.Folder = r.folder
	c.Variables = slices.Compact(slices.Sorted(slices.Values(r.variables)))
	return c, mapping, nil
}

// reader is the state of reading one file.
type reader struct {
	opts    config.Options
	sink    *document.Sink
	file    string   // as it was given
	folder  string   // of file, absolute
	watched []string // the paths that were looked at

	variables []string // that were looked up
}

func newReader(file string, opts config.Options) *reader {
	r := &reader{opts: opts, sink: &document.Sink{}, file: file}
	if r.opts.Env == nil {
		r.opts.Env = os.LookupEnv
	}
	var err error
	if r.folder, err = filepath.Abs(filepath.Dir(file)); err != nil {
		r.folder = filepath.Dir(file)
	}
	return r
}

// watch records a path that was read, for Config.Watch.
func (r *reader) watch(path string) {
	r.watched = append(r.watched, path)
	if r.opts.Watch != nil {
		r.opts.Watch(path)
	}
}

// readFile returns the content of the file.
func (r *reader) readFile() ([]byte, error) {
	if r.opts.Text != nil {
		return r.opts.Text, nil
	}
	r.watch(filepath.Dir(r.file))
	r.watch(filepath.Join(filepath.Dir(r.file), filepath.Base(r.file)))
	stat := func() (fs.FileInfo, error) { return os.Stat(r.file) }
	open := func() (fs.File, error) { return os.Open(r.file) }
	if fsys := r.opts.FS; fsys != nil {
		name := filepath.Base(r.file)
		stat = func() (fs.FileInfo, error) { return fs.Stat(fsys, name) }
		open = func() (fs.File, error) { return fsys.Open(name) }
	}
	return document.ReadBounded(stat, open, document.MaxJSONBytes, document.AnyFile)
}

// A foreignServer is one server of another program's file. Its references are split, but not resolved.
type foreignServer struct {
	Mapped
	sink    *document.Sink // its own faults
	use     bool           // false if the server is left out
	at      document.Value // its name
	url     *foreignSetting
	headers []foreignSetting
	oauth   *foreignOAuth
	command []foreignSetting // the program and its arguments
	env     []foreignSetting
	dir     *foreignSetting
	sandbox switchboard.Sandbox
	timeout time.Duration // of calls; 0 means the default
}

// A foreignSetting is a text, split at the references that editors know.
type foreignSetting struct {
	name  string // of a header or variable
	at    document.Value
	parts []document.Piece
}

// maxServers limits the servers of one file.
const maxServers = 2000

// serverSections are the keys that hold the servers in other programs' files.
var serverSections = []string{"mcpServers", "servers", "context_servers"}

// readServers reads the servers in the file.
func (r *reader) readServers() []*foreignServer {
	data, err := r.readFile()
	if err != nil {
		r.sink.Add(switchboard.Fault{File: r.file, Text: "this cannot be read: " + document.ErrorText(err)})
		return nil
	}
	doc, ok := document.ReadJSON(r.file, data, r.sink)
	if !ok {
		return nil
	}
	doc.Hidden = true
	var found []*foreignServer
	none := true
	for _, s := range serverSections {
		v, ok := doc.FindMember(s)
		if !ok && s == "servers" {
			// The settings of VS Code nest them one level deeper.
			if mcp, has := doc.FindMember("mcp"); has {
				v, ok = mcp.FindMember(s)
			}
		}
		if !ok {
			continue
		}
		none = false
		for _, e := range v.WithContext("%s: ", s).ReadNamed(maxServers, true) {
			e.Key.Sink = &document.Sink{}
			e.Value.Sink = e.Key.Sink
			found = append(found, readServer(e))
		}
	}
	if none {
		doc.Fault("there are no MCP servers in this file; they are looked for under %s", strings.Join(serverSections, ", "))
		return nil
	}
	assignIDs(found)
	for _, f := range found {
		if f.use || len(f.sink.Faults) > 0 {
			return found
		}
	}
	doc.Fault("no server in this file is switched on")
	return found
}

// foreignKeys are the keys that are read, besides toolLists. unreadKeys cannot be ignored: without them, a server would lack variables.
var (
	foreignKeys = []string{"type", "transport", "command", "args", "env", "cwd", "url", "httpUrl", "serverUrl", "headers", "http_headers", "oauth", "disabled", "enabled", "source", "name", "description", "timeout", "tool_timeout_sec"}
	unreadKeys  = []string{"envFile", "env_file"}
)

func readServer(e document.NamedValue) *foreignServer {
	f := &foreignServer{Mapped: Mapped{Name: e.Name}, sink: e.Value.Sink, at: e.Key}
	v := e.Value.WithContext("server %s: ", document.Shown(e.Name))
	f.at.Context, f.at.Hidden = v.Context, true
	if v.Kind != document.KindMap {
		v.Fault("want an object, not %v", v.Kind)
		return f
	}
	if off, ok := v.FindMember("disabled"); ok && off.Text == "true" {
		f.addNote("left out: it is switched off")
		return f
	}
	if on, ok := v.FindMember("enabled"); ok && on.Text == "false" {
		f.addNote("left out: it is switched off")
		return f
	}
	for _, p := range v.Pairs {
		key := v
		key.Node = p.Key
		switch name := p.Key.Text; {
		case slices.Contains(foreignKeys, name):
		case toolLists[name] != "":
			checkToolList(key, p.Value)
		case name == "sandbox" && p.Value.Kind == document.KindText:
			f.readSandbox(key, p.Value.Text)
		case slices.Contains(unreadKeys, name):
			key.Fault("%q is not supported yet; put the variables into env", name)
		case name == "settings" && !v.HasMember("command"):
		default:
			f.addNote("%s is not used here", document.Shown(name))
		}
	}
	f.readTimeout(v)
	f.readTransport(v)
	return f
}

// readSandbox reads the level of the walls around the program. The file may come from anywhere, so it cannot take them away.
func (f *foreignServer) readSandbox(at document.Value, level string) {
	switch level {
	case string(switchboard.SandboxStandard), string(switchboard.SandboxStrict):
		f.sandbox = switchboard.Sandbox(level)
	case string(switchboard.SandboxOff):
		at.Fault(`"sandbox": off counts in your own switchboard.yaml alone; remove it here, bring the server in with "switchboard import FILE", and write sandbox: off there`)
	default:
		f.addNote("%s is not used here", document.Shown("sandbox"))
	}
}

// readTransport reads how to reach the server.
func (f *foreignServer) readTransport(v document.Value) {
	kind := ""
	for _, k := range []string{"type", "transport"} {
		if t, ok := v.FindMember(k); ok {
			t.Context += k + ": "
			switch strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(t.Text)) {
			case "stdio", "local":
				kind = "stdio"
			case "http", "streamablehttp", "remote", "sse": // the connection shows which of the two it is
				kind = "http"
			default:
				t.Fault("%s is no transport; known transports: stdio, http", document.Shown(t.Text))
				return
			}
		}
	}
	var address document.Value
	for _, k := range []string{"url", "httpUrl", "serverUrl"} {
		if u, ok := v.FindMember(k); ok {
			address = u.WithContext("%s%s: ", v.Context, k)
		}
	}
	command, runs := v.FindMember("command")
	switch {
	case kind == "" && runs && address.Sink != nil:
		v.Fault(`it has a command and an address; say which counts with "type"`)
	case kind == "stdio" && !runs:
		v.Fault(`"command" is missing`)
	case kind == "http" && address.Sink == nil:
		v.Fault(`"url" is missing`)
	case runs && kind != "http":
		f.readProgram(v, command.WithContext("%scommand: ", v.Context))
	case address.Sink != nil:
		f.readAddress(v, address)
	case v.HasMember("settings") || v.HasMember("source"):
		f.addNote("left out: it is an extension of the editor, which alone knows how to start it")
	default:
		v.Fault(`it has neither "command" nor "url"`)
	}
}

func (f *foreignServer) readAddress(v, address document.Value) {
	f.use = true
	if _, ok := address.ReadText(); ok {
		if url := splitForeign(address, "", nil); len(url) > 0 {
			f.url = &url[0]
		}
	}
	for _, k := range []string{"headers", "http_headers"} {
		h, ok := v.FindMember(k)
		if !ok {
			continue
		}
		for _, e := range h.WithContext("%s%s: ", v.Context, k).ReadNamed(document.MaxItems, true) {
			canonical := textproto.CanonicalMIMEHeaderKey(e.Name)
			switch {
			case !endpoint.HeaderName(e.Name):
				e.Key.Fault("%s is no name of a header", e.Key.ShownName())
			case endpoint.ReservedHeader(canonical):
				f.addNote("the header %s is left out: Switchboard sets it itself, or must never send it", e.Name)
			case slices.ContainsFunc(f.headers, func(s foreignSetting) bool { return s.name == canonical }):
				e.Key.Fault("%s stands here twice, in another case", e.Key.ShownName())
			default:
				f.headers = append(f.headers, readSetting(e, canonical)...)
			}
		}
	}
	f.readOAuth(v)
}

// readSetting returns the setting of one header or variable, or none if its value is null.
func readSetting(e document.NamedValue, name string) []foreignSetting {
	v := e.Value.WithContext("%s%s: ", e.Value.Context, e.Key.ShownName())
	switch v.Kind {
	case document.KindNull:
		return nil
	case document.KindText, document.KindInt, document.KindFloat, document.KindBool:
		return splitForeign(v, name, nil)
	}
	v.Fault("want text, not %v", v.Kind)
	return nil
}

func (f *foreignServer) readProgram(v, command document.Value) {
	f.use = true
	if v.HasMember("oauth") {
		f.addNote("%s is not used here", document.Shown("oauth"))
	}
	// Older versions of Zed nested the program and its arguments one level deeper.
	if path, ok := command.FindMember("path"); ok {
		v, command = command, path
	}
	if e, ok := v.FindMember("env"); ok {
		for _, e := range e.WithContext("%senv: ", v.Context).ReadNamed(document.MaxItems, true) {
			switch why := switchboard.RefusedVariable(e.Name); {
			case !document.IsVariableName(e.Name):
				e.Key.Fault("%s is no name of a variable; use letters, digits and _", e.Key.ShownName())
			case why != "":
				f.addNote("the variable %s is left out: %s. If the server must have it, write it into env of a switchboard.yaml, with allow_env: [%s]", e.Name, why, e.Name)
			default:
				f.env = append(f.env, readSetting(e, e.Name)...)
			}
		}
	}
	words := []document.Value{command}
	if command.Kind == document.KindList {
		words = command.ReadList(endpoint.MaxArgs)
	}
	if a, ok := v.FindMember("args"); ok {
		words = append(words, a.WithContext("%sargs: ", v.Context).ReadList(endpoint.MaxArgs)...)
	}
	if len(words) == 0 || words[0].Text == "" {
		command.Fault("it names no program")
		return
	}
	for _, w := range words {
		if w.Kind == document.KindList || w.Kind == document.KindMap || w.Kind == document.KindNull {
			w.Fault("want text, not %v", w.Kind)
			continue
		}
		f.command = append(f.command, splitForeign(w, "", f.env)...)
	}
	if f.isSwitchboard() {
		f.use = false
		f.addNote(switchboardItself)
	}
	if holdsSecret(f.command) {
		f.addRemark(secretArgument)
	}
	if d, ok := v.FindMember("cwd"); ok && d.Text != "" {
		if dir := splitForeign(d.WithContext("%scwd: ", v.Context), "", nil); len(dir) > 0 {
			f.dir = &dir[0]
		}
	}
}

// isSwitchboard reports whether the server is Switchboard itself. If Switchboard served this entry, it would start itself
// without end.
func (f *foreignServer) isSwitchboard() bool {
	if len(f.command) < 2 {
		return false
	}
	program := filepath.Base(filepath.ToSlash(f.command[0].literalText()))
	return strings.TrimSuffix(program, ".exe") == "switchboard" && f.command[1].literalText() == "stdio"
}

// resolveServer returns the server with all references resolved.
func (r *reader) resolveServer(f *foreignServer) switchboard.Server {
	s := switchboard.Server{ID: f.ID, Transport: switchboard.TransportStdio, Trust: switchboard.TrustDeclared, Share: switchboard.SharePrincipal, Timeout: f.timeout}
	if f.url != nil {
		s.Transport = switchboard.TransportHTTP
		if url, ok := r.resolveSetting(*f.url); ok {
			s.URL = url
			// The user has chosen to have a secret in the address.
			switch why := endpoint.BadURL(url); {
			case why != "" && why != endpoint.SecretInURL:
				f.url.at.Fault("%s", why)
			case why != "" || switchboard.CredentialValue(url):
				f.addRemark(secretAddress)
			}
		}
		if f.oauth != nil {
			s.Credential = resolveOAuth(f.oauth)
		}
		s.Headers = r.resolveSecrets(f.headers, endpoint.HeaderValue, "the value holds a line break or a control character, which no header can")
		return s
	}
	s.Walls.Level = f.sandbox
	base := r.workspace()
	if f.dir != nil {
		if dir, ok := r.resolveSetting(*f.dir); ok {
			s.Dir = endpoint.Absolute(base, dir)
			base = s.Dir
		}
	}
	for i, c := range f.command {
		arg, ok := r.resolveSetting(c)
		switch {
		case !ok:
			continue
		case strings.ContainsAny(arg, "\x00\n\r") || len(arg) > endpoint.MaxText:
			c.at.Fault("it holds a line break or a NUL, or is longer than %d bytes", endpoint.MaxText)
		case i == 0 && strings.ContainsRune(filepath.ToSlash(arg), '/'):
			arg = endpoint.Absolute(base, arg)
		}
		if switchboard.CredentialValue(arg) {
			f.addRemark(secretArgument)
		}
		s.Command = append(s.Command, arg)
	}
	s.Env = r.resolveSecrets(f.env, func(s string) bool { return !strings.Contains(s, "\x00") }, "the value holds a NUL, which no variable can")
	return s
}

func (r *reader) resolveSecrets(settings []foreignSetting, fine func(string) bool, why string) map[string]switchboard.Secret {
	out := map[string]switchboard.Secret{}
	for _, h := range settings {
		text, ok := r.resolveSetting(h)
		if ok && !fine(text) {
			h.at.Fault("%s", why)
		}
		out[h.name] = switchboard.NewSecret(text)
	}
	return out
}

// resolveSetting returns the text of a setting with all references resolved.
func (r *reader) resolveSetting(s foreignSetting) (string, bool) {
	var b strings.Builder
	fine := true
	for _, p := range s.parts {
		text, err := r.resolveForeignPiece(p)
		if err != nil {
			s.at.Fault("%v", err)
			fine = false
		}
		b.WriteString(text)
	}
	return b.String(), fine
}

func (r *reader) resolveForeignPiece(p document.Piece) (string, error) {
	if p.Kind == "default" || p.Kind == "env" {
		r.variables = append(r.variables, p.Text)
	}
	switch p.Kind {
	case "default":
		if text, ok := r.opts.Env(p.Text); ok && text != "" {
			return text, nil
		}
		return p.Fallback, nil
	case "workspace":
		return r.workspace(), nil
	}
	if p.Kind == "env" {
		return document.LookupVariable(r.opts.Env, p.Text)
	}
	return p.Text, nil
}

// workspace returns the folder that an editor has open when it reads the file.
func (r *reader) workspace() string {
	if base := filepath.Base(r.folder); strings.HasPrefix(base, ".") && base != "." {
		return filepath.Dir(r.folder) // .vscode/mcp.json, .cursor/mcp.json
	}
	return r.folder
}
