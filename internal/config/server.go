package config

import (
	"cmp"
	"fmt"
	"net/textproto"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/endpoint"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of one file.
const (
	maxServers    = 2000
	maxTenants    = 1000
	maxCallsLimit = 10_000 // in flight at one server

	longestTimeout = 24 * time.Hour // of a call that makes progress

	minTimeout = 100 * time.Millisecond // of a call
	maxTimeout = time.Hour
)

var mainShape = &document.Shape{
	Keys:  []string{"listen", "hosts", "origins", "start_deadline", "grace", "servers", "tenants", "token_budget", "lazy", "store", "durability", "cluster", "cache", "receipts", "policies"},
	Later: []string{"identity", "telemetry", "defaults", "budgets", "limits", "admin", "capabilities", "approvals", "health"},
	Hints: map[string]string{
		"mcpServers": "bring the servers of another program in with `switchboard import FILE`", "context_servers": "bring the servers of another program in with `switchboard import FILE`",
		"taxonomy": "it has a file of its own, taxonomy.yaml", "overlays": "they have a folder of their own, overlays/",
		"tasks": "they stand in tenants/<id>/tasks/", "tenant": `write "tenants"`, "server": `write "servers"`,
	},
}

var serverShape = &document.Shape{
	Keys:  []string{"transport", "url", "headers", "command", "env", "allow_env", "dir", "manifest", "class", "trust", "share", "timeout", "max_timeout", "max_calls", "max_waiting", "max_result", "health", "services", "instructions", "results", "check_input", "enabled"},
	Later: []string{"oauth", "sandbox", "cache"},
	Hints: map[string]string{
		"args": "put the arguments into \"command\", after the program", "type": `write "transport"`, "cwd": `write "dir"`,
		"httpUrl": `write "url"`, "serverUrl": `write "url"`, "endpoint": `write "url"`,
		"disabled": `write "enabled: false"`,
	},
}

var policiesShape = &document.Shape{Keys: []string{"veto"}}

var lazyShape = &document.Shape{Keys: []string{"tokenizer", "on_full"}, Hints: map[string]string{"token_budget": "it stands beside \"lazy\""}}

var cacheShape = &document.Shape{Keys: []string{"ttl", "bytes"}, Later: []string{"tools", "servers"}}

var (
	healthShape    = &document.Shape{Keys: []string{"every", "timeout", "path", "call"}, Hints: map[string]string{"interval": `write "every"`, "url": `write "path"`, "tool": `write call: {tool: NAME}`}}
	probeCallShape = &document.Shape{Keys: []string{"tool", "arguments"}}
)

// A manifestRef is the manifest that a server names.
type manifestRef struct {
	server switchboard.ServerID
	at     document.Value
	url    bool
	name   string // file or URL
}

// readMainFile reads switchboard.yaml.
func (l *loader) readMainFile() {
	l.cfg.Implied = true
	data, err := l.readMain(document.MaxFileBytes)
	if err != nil {
		l.sink.Add(Fault{File: l.file, Text: "this cannot be read: " + document.ErrorText(err)})
		return
	}
	doc, ok := document.ReadYAML(l.file, data, l.sink)
	if !ok {
		return
	}
	top, ok := doc.ReadMap(mainShape)
	if !ok {
		return
	}
	l.readable = true
	if v, ok := top.Lookup("listen"); ok {
		if s, ok := v.ReadText(); ok && isAddress(v, s) {
			l.cfg.Listen, l.listen = s, v
		}
	}
	if v, ok := top.Lookup("hosts"); ok {
		for _, t := range v.ReadTexts() {
			if why := badHost(t.String); why != "" {
				t.Fault("%s: %s", t.Shown(), why)
			}
			l.cfg.Hosts = append(l.cfg.Hosts, t.String)
		}
	}
	if v, ok := top.Lookup("origins"); ok {
		for _, t := range v.ReadTexts() {
			if why := badOrigin(t.String); why != "" {
				t.Fault("%s: %s", t.Shown(), why)
			}
			l.cfg.Origins = append(l.cfg.Origins, t.String)
		}
	}
	if v, ok := top.Lookup("start_deadline"); ok {
		if d, ok := v.ReadDuration(100*time.Millisecond, 10*time.Minute); ok {
			l.cfg.StartDeadline = d
		}
	}
	if v, ok := top.Lookup("grace"); ok {
		if d, ok := v.ReadDuration(time.Second, time.Hour); ok {
			l.cfg.Grace = d
		}
	}
	if v, ok := top.Lookup("policies"); ok {
		if o, ok := v.ReadMap(policiesShape); ok {
			if v, ok := o.Lookup("veto"); ok {
				scope, _ := v.OneOf("scope", "requirement", "task")
				l.vetoForTask = scope == "task"
			}
		}
	}
	if v, ok := top.Require("servers", "name at least one MCP server"); ok {
		for _, e := range v.ReadNamed(maxServers, true) {
			l.readServer(e)
		}
	}
	for id := range l.servers {
		l.serverIDs = append(l.serverIDs, id)
	}
	slices.Sort(l.serverIDs)
	for _, id := range l.serverIDs {
		if !l.disabled[id] {
			l.cfg.Servers = append(l.cfg.Servers, *l.servers[id])
		}
	}
	if v, ok := top.Lookup("token_budget"); ok {
		l.tokenBudget = readTokenBudget(v, 0, "")
	}
	if v, ok := top.Lookup("lazy"); ok {
		l.readLazy(v)
	}
	l.readStore(top)
	if v, ok := top.Lookup("cache"); ok {
		l.readCache(v)
	}
	l.readReceipts(top)
	l.noTenantRows = !top.HasKey("tenants")
	if v, ok := top.Lookup("tenants"); ok {
		l.readBounds(v)
	}
}

// readLazy reads the tokenizer, and the default of all tenants for a full budget.
func (l *loader) readLazy(v document.Value) {
	o, ok := v.ReadMap(lazyShape)
	if !ok {
		return
	}
	if v, ok := o.Lookup("tokenizer"); ok {
		l.cfg.Tokenizer, _ = v.OneOf("tokenizer", switchboard.Tokenizers...)
	}
	if v, ok := o.Lookup("on_full"); ok {
		l.onFull = readOnFull(v)
	}
}

// readCache reads how long and how much of the results of deterministic tools is cached.
func (l *loader) readCache(v document.Value) {
	o, ok := v.ReadMap(cacheShape)
	if !ok {
		return
	}
	l.cfg.Cache.Bytes = DefaultCacheBytes
	if v, ok := o.Require("ttl", "say how long a result may be given again, such as 10m"); ok {
		l.cfg.Cache.TTL, _ = v.ReadDuration(time.Second, 24*time.Hour)
	}
	if v, ok := o.Lookup("bytes"); ok {
		l.cfg.Cache.Bytes = v.ReadSize(1<<20, 1<<30)
	}
}

// readServer reads one server. The server counts as known even if its row has faults.
func (l *loader) readServer(e document.NamedValue) {
	if err := switchboard.CheckID(e.Name); err != nil {
		e.Key.Fault("%v", err)
		return
	}
	s := &switchboard.Server{ID: switchboard.ServerID(e.Name), Trust: switchboard.TrustDeclared, Share: switchboard.SharePrincipal}
	l.servers[e.Name] = s
	o, ok := e.Value.WithContext("server %q: ", e.Name).ReadMap(serverShape)
	if !ok {
		return
	}
	// A missing key is reported at the server's name.
	o.Line, o.Column = e.Key.Line, e.Key.Column
	l.readTransport(s, o)
	if v, ok := o.Lookup("enabled"); ok {
		l.disabled[e.Name] = !v.ReadBool()
	}
	if v, ok := o.Lookup("manifest"); ok && !l.disabled[e.Name] {
		l.addManifestRef(s.ID, v)
	}
	if v, ok := o.Lookup("class"); ok {
		if c, ok := v.ReadText(); ok && isTerm(v, c) {
			s.Class = c
		}
	}
	if v, ok := o.Lookup("trust"); ok {
		t, _ := v.OneOf("trust", string(switchboard.TrustOperator), string(switchboard.TrustDeclared))
		s.Trust = switchboard.Trust(t)
	}
	if v, ok := o.Lookup("share"); ok {
		sh, _ := v.OneOf("share", string(switchboard.SharePrincipal), string(switchboard.ShareTenant), string(switchboard.ShareAll))
		s.Share = switchboard.Share(sh)
	}
	if v, ok := o.Lookup("timeout"); ok {
		s.Timeout, _ = v.ReadDuration(minTimeout, maxTimeout)
	}
	if v, ok := o.Lookup("max_timeout"); ok {
		s.MaxTimeout, ok = v.ReadDuration(minTimeout, longestTimeout)
		if least := cmp.Or(s.Timeout, switchboard.DefaultTimeout); ok && s.MaxTimeout < least {
			v.Fault("%v is less than the timeout, %v, which a call that makes progress has at least", s.MaxTimeout, least)
		}
	}
	if v, ok := o.Lookup("max_calls"); ok {
		s.MaxCalls = v.ReadInteger(1, maxCallsLimit)
	}
	if v, ok := o.Lookup("max_waiting"); ok {
		s.MaxWaiting = v.ReadInteger(0, maxCallsLimit)
	}
	if v, ok := o.Lookup("max_result"); ok {
		s.MaxResult = v.ReadSize(64<<10, 1<<30)
	}
	if v, ok := o.Lookup("health"); ok {
		s.Probe = readProbe(v, s.Transport)
	}
	if v, ok := o.Lookup("instructions"); ok {
		word, _ := v.OneOf("instructions", "on", "off")
		s.NoInstructions = word == "off"
	}
	if v, ok := o.Lookup("results"); ok {
		word, _ := v.OneOf("results", "as_sent", "clean")
		s.CleanResults = word == "clean"
	}
	if v, ok := o.Lookup("check_input"); ok {
		word, _ := v.OneOf("check_input", string(switchboard.CheckDefault), string(switchboard.CheckStrict), string(switchboard.CheckOff))
		s.CheckInput = switchboard.InputCheck(word)
	}
	if v, ok := o.Lookup("services"); ok {
		s.Services = readServices(v)
	}
}

// readServices reads how the tools of a server are divided into services, in the order of the file.
func readServices(v document.Value) (out []switchboard.Service) {
	if v.Kind == document.KindMap && len(v.Pairs) == 0 {
		v.Fault("the map is empty; name a service and its tools, such as s3: [\"s3_*\"], or remove the key")
	}
	first := map[string]document.Value{}
	for _, e := range v.ReadNamed(document.MaxItems, false) {
		if err := switchboard.CheckID(e.Name); err != nil {
			e.Key.Fault("%v", err)
			continue
		}
		e.Value.Context = v.Context + e.Name + ": "
		s := switchboard.Service{Name: e.Name}
		if e.Value.Kind == document.KindList && len(e.Value.Items) == 0 {
			e.Value.Fault("the list is empty; name a tool, or remove the service")
		}
		for _, p := range e.Value.ReadTexts() {
			at, again := first[p.String]
			switch why := badPattern(p.String); {
			case why != "":
				p.Fault("%s: %s", p.Shown(), why)
			case again:
				p.Fault("%s stands at line %d already; a tool belongs to the first service that has it", p.Shown(), at.Line)
			default:
				first[p.String] = p.Value
				s.Tools = append(s.Tools, p.String)
			}
		}
		out = append(out, s)
	}
	return out
}

// readProbe reads how a server is probed.
func readProbe(v document.Value, transport switchboard.Transport) (p switchboard.Probe) {
	o, ok := v.ReadMap(healthShape)
	if !ok {
		return p
	}
	if v, ok := o.Lookup("every"); ok {
		p.Every, _ = v.ReadDuration(time.Second, time.Hour)
	}
	if v, ok := o.Lookup("timeout"); ok {
		p.Timeout, _ = v.ReadDuration(100*time.Millisecond, time.Minute)
	}
	if v, ok := o.Lookup("path"); ok {
		u, err := url.Parse(v.Text)
		switch s, ok := v.ReadText(); {
		case !ok:
		case transport == switchboard.TransportStdio:
			v.Fault("a program has no path; this is for transport: http")
		case err != nil || !strings.HasPrefix(s, "/") || strings.HasPrefix(s, "//") || u.Fragment != "":
			v.Fault("%s is no path; write one such as /healthz, which is asked for at the server's address", v.Shown())
		default:
			p.Path = s
		}
	}
	if v, ok := o.Lookup("call"); ok {
		p.Tool, p.Arguments = readProbeCall(v)
	}
	return p
}

func readProbeCall(v document.Value) (tool string, arguments []byte) {
	o, ok := v.ReadMap(probeCallShape)
	if !ok {
		return "", nil
	}
	if v, ok := o.Require("tool", "name a tool of the server's that only reads"); ok {
		if s, ok := v.ReadText(); ok {
			if why := badToolName(s); why != "" {
				v.Fault("%s: %s", v.Shown(), why)
			}
			tool = s
		}
	}
	if v, ok := o.Lookup("arguments"); ok {
		arguments = v.ReadJSONMap()
	}
	return tool, arguments
}

// readTransport reads how to reach the server. If the transport is unknown, the keys of both
// transports are read, to report their faults too.
func (l *loader) readTransport(s *switchboard.Server, o document.FixedMap) {
	s.Transport = l.readTransportKind(o)
	for _, of := range []struct {
		transport switchboard.Transport
		need      string // the required key
		remedy    string
		keys      []string
	}{
		{switchboard.TransportHTTP, "url", "write the address of the server", []string{"url", "headers"}},
		{switchboard.TransportStdio, "command", "write the program and its arguments as a list", []string{"command", "allow_env", "env", "dir"}},
	} {
		if s.Transport == of.transport {
			o.Require(of.need, of.remedy)
		}
		for _, k := range of.keys {
			v, ok := o.Lookup(k)
			switch {
			case !ok:
			case s.Transport != "" && s.Transport != of.transport:
				v.Context = o.Context
				v.Fault("%q does not go with transport: %s; it is for transport: %s", k, s.Transport, of.transport)
			default:
				l.readTransportKey(s, k, v, o)
			}
		}
	}
}

// readTransportKind returns the transport, or "" after a fault.
func (l *loader) readTransportKind(o document.FixedMap) switchboard.Transport {
	v, ok := o.Require("transport", "write transport: stdio for a program, or transport: http for an address")
	if !ok {
		return ""
	}
	if v.Kind == document.KindText && v.Text == "sse" {
		v.Fault("%q is not written here; write http, and it is found out that the server speaks HTTP with SSE", v.Text)
		return ""
	}
	t, _ := v.OneOf("transport", string(switchboard.TransportHTTP), string(switchboard.TransportStdio))
	return switchboard.Transport(t)
}

// readTransportKey reads one of the keys that belong to a transport. o is the server's row.
func (l *loader) readTransportKey(s *switchboard.Server, key string, v document.Value, o document.FixedMap) {
	switch key {
	case "url":
		s.URL = readURL(v)
	case "headers":
		s.Headers = l.readHeaders(v)
	case "command":
		s.Command = l.readCommand(v)
	case "allow_env":
		env, _ := o.Lookup("env")
		s.AllowEnv = l.readAllowEnv(v, env)
	case "env":
		s.Env = l.readEnv(v, s.AllowEnv)
	case "dir":
		if d, ok := l.readArgument(v); ok {
			s.Dir = l.inConfigFolder(d)
		}
	}
}

// inConfigFolder returns the absolute form of a path that is relative to the configuration's folder.
func (l *loader) inConfigFolder(p string) string {
	return endpoint.Absolute(l.absDir, p)
}

func (l *loader) readHeaders(v document.Value) map[string]switchboard.Secret {
	v.Hidden = true
	out := map[string]switchboard.Secret{}
	for _, e := range v.ReadNamed(document.MaxItems, false) {
		name := textproto.CanonicalMIMEHeaderKey(e.Name)
		e.Value.Context = v.Context + e.Key.ShownName() + ": "
		switch {
		case !endpoint.HeaderName(e.Name):
			e.Key.Fault("%s is no name of a header", e.Key.ShownName())
			continue
		case endpoint.ReservedHeader(name):
			e.Key.Fault("%s is not for you to set: Switchboard sets it, or must never send it", e.Key.ShownName())
			continue
		}
		if _, ok := out[name]; ok {
			e.Key.Fault("%s stands here twice, in another case", e.Key.ShownName())
			continue
		}
		s, ok := l.readSecret(e.Value, e.Name)
		if ok && !endpoint.HeaderValue(s.Reveal()) {
			e.Value.Fault("the value holds a line break or a control character, which no header can")
		}
		out[name] = s
	}
	return out
}

func (l *loader) readEnv(v document.Value, allowed []string) map[string]switchboard.Secret {
	v.Hidden = true
	out := map[string]switchboard.Secret{}
	for _, e := range v.ReadNamed(document.MaxItems, false) {
		e.Value.Context = v.Context + e.Key.ShownName() + ": "
		if !document.IsVariableName(e.Name) {
			e.Key.Fault("%s is no name of a variable; use letters, digits and _", e.Key.ShownName())
			continue
		}
		if why := switchboard.RefusedVariable(e.Name); why != "" && !slices.Contains(allowed, e.Name) {
			e.Key.Fault("%s is not handed to a server: %s. If this server must have it, write allow_env: [%s]", e.Name, why, e.Name)
			continue
		}
		s, ok := l.readSecret(e.Value, e.Name)
		if ok && strings.Contains(s.Reveal(), "\x00") {
			e.Value.Fault("the value holds a NUL, which no variable can")
		}
		out[e.Name] = s
	}
	return out
}

// readAllowEnv reads the variables that the server receives although they are refused by default. A
// name without effect is a fault, because it would seem to have one.
func (l *loader) readAllowEnv(v, env document.Value) (names []string) {
	for _, name := range v.ReadTexts() {
		switch {
		case switchboard.RefusedVariable(name.String) == "":
			name.Fault("%s is not refused in env; remove it here", name.Shown())
		case !env.HasMember(name.String):
			name.Fault("%s is no variable of this server; write it into env in the same spelling, or remove it here", name.Shown())
		default:
			names = append(names, name.String)
		}
	}
	slices.Sort(names)
	return names
}

func (l *loader) readCommand(v document.Value) []string {
	v.Hidden = true
	if v.Kind == document.KindText {
		v.Fault(`want a list, since no shell takes the text apart: command: [npx, -y, some-server]`)
		return nil
	}
	items := v.ReadList(endpoint.MaxArgs)
	if v.Kind == document.KindList && len(v.Items) == 0 {
		v.Fault("the list is empty; its first item is the program")
	}
	var out []string
	for i, item := range items {
		item.Context = fmt.Sprintf("%sitem %d: ", v.Context, i+1)
		if i > 0 && item.Kind == document.KindText && item.Quoted && item.Text == "" {
			out = append(out, "") // a quoted empty text is an argument
			continue
		}
		arg, ok := l.readArgument(item)
		if !ok {
			continue
		}
		// The path of a program is relative to the file, and not to the folder that Switchboard was
		// started in.
		if i == 0 && strings.ContainsRune(filepath.ToSlash(arg), '/') {
			arg = l.inConfigFolder(arg)
		}
		out = append(out, arg)
	}
	if flag := shellFlag(out); flag != "" {
		v.Warn("%s takes a text and runs it as a command, whatever it holds; name the program and its arguments in the list", flag)
	}
	return out
}

// shells are the programs that run a text as a command, with the flags that request it.
var shells = map[string][]string{
	"sh": {"-c"}, "bash": {"-c"}, "zsh": {"-c"}, "dash": {"-c"}, "ash": {"-c"}, "ksh": {"-c"}, "fish": {"-c", "--command"},
	"npx": {"-c", "--call"}, "npm": {"-c", "--call"}, "pnpm": {"-c", "--shell-mode"},
	"powershell": {"-command", "-c", "-encodedcommand"}, "pwsh": {"-command", "-c", "-encodedcommand"},
}

// shellFlag returns the program and the flag that runs a text as a command, or "".
func shellFlag(command []string) string {
	if len(command) == 0 {
		return ""
	}
	program := filepath.Base(filepath.ToSlash(command[0]))
	flags := shells[strings.TrimSuffix(strings.ToLower(program), ".exe")]
	for i := 1; i < len(command) && flags != nil; i++ {
		name, _, _ := strings.Cut(strings.ToLower(command[i]), "=")
		switch {
		case slices.Contains(flags, name) || isFlagCluster(name):
			return program + " " + name
		case name == "-p" || name == "--package": // a flag of npx, followed by a name
			i++
		case !strings.HasPrefix(name, "-"): // the words from here on belong to the program or script
			return ""
		}
	}
	return ""
}

// isFlagCluster reports whether arg is a group of short flags that ends in c, such as -lc.
func isFlagCluster(arg string) bool {
	return len(arg) > 2 && len(arg) <= 5 && arg[0] == '-' && arg[1] != '-' && strings.HasSuffix(arg, "c")
}

// readArgument reads a command argument. Every user of the machine can see it.
func (l *loader) readArgument(v document.Value) (string, bool) {
	v.Hidden = true
	s, ok := v.ReadText()
	if !ok {
		return "", false
	}
	ps, err := document.SplitReferences(s)
	if err != nil {
		v.Fault("%v", err)
		return "", false
	}
	var b strings.Builder
	for _, p := range ps {
		switch p.Kind {
		case "env", "file":
			v.Fault("${%s:…} is not read here, since every user of the machine can see the arguments of a program; hand the value over in env", p.Kind)
			return "", false
		case "workspace":
			b.WriteString(l.absDir)
		default:
			b.WriteString(p.Text)
		}
	}
	s = b.String()
	if strings.ContainsAny(s, "\x00\n\r") || len(s) > endpoint.MaxText {
		v.Fault("it holds a line break or a NUL, or is longer than %d bytes", endpoint.MaxText)
		return "", false
	}
	return s, true
}

// isTerm reports whether s can be the name of a class, resource or constraint. If it cannot, that is a
// fault.
func isTerm(v document.Value, s string) bool {
	if badTerm(s) {
		v.Fault("%s: use at most 64 lower-case letters and digits, in words parted by _ or -", v.Shown())
		return false
	}
	return true
}

func badTerm(s string) bool {
	if len(s) > 64 {
		return true
	}
	for word := range strings.SplitSeq(strings.ReplaceAll(s, "-", "_"), "_") {
		if word == "" || strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return true
		}
	}
	return false
}
