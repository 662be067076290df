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

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of one file.
const (
	maxServers    = 2000
	maxTenants    = 1000
	maxItems      = 1000 // of a list, or of a map with names that the user chose
	maxArgs       = 256
	maxText       = 8 << 10 // bytes of an argument or address
	maxCallsLimit = 10_000  // in flight at one server

	longestTimeout = 24 * time.Hour // of a call that makes progress

	minTimeout = 100 * time.Millisecond // of a call
	maxTimeout = time.Hour
)

var mainShape = &mapShape{
	keys:  []string{"listen", "hosts", "origins", "start_deadline", "grace", "servers", "tenants", "token_budget", "lazy", "store", "durability", "cluster", "cache", "receipts", "policies"},
	later: []string{"identity", "telemetry", "defaults", "budgets", "limits", "admin", "capabilities", "approvals", "health"},
	hints: map[string]string{
		"mcpServers": "bring the servers of another program in with `switchboard import FILE`", "context_servers": "bring the servers of another program in with `switchboard import FILE`",
		"taxonomy": "it has a file of its own, taxonomy.yaml", "overlays": "they have a folder of their own, overlays/",
		"tasks": "they stand in tenants/<id>/tasks/", "tenant": `write "tenants"`, "server": `write "servers"`,
	},
}

var serverShape = &mapShape{
	keys:  []string{"transport", "url", "headers", "command", "env", "allow_env", "dir", "manifest", "class", "trust", "share", "timeout", "max_timeout", "max_calls", "max_waiting", "max_result", "health", "services", "instructions", "results", "check_input", "enabled"},
	later: []string{"oauth", "sandbox", "cache"},
	hints: map[string]string{
		"args": "put the arguments into \"command\", after the program", "type": `write "transport"`, "cwd": `write "dir"`,
		"httpUrl": `write "url"`, "serverUrl": `write "url"`, "endpoint": `write "url"`,
		"disabled": `write "enabled: false"`,
	},
}

var policiesShape = &mapShape{keys: []string{"veto"}}

var lazyShape = &mapShape{keys: []string{"tokenizer", "on_full"}, hints: map[string]string{"token_budget": "it stands beside \"lazy\""}}

var cacheShape = &mapShape{keys: []string{"ttl", "bytes"}, later: []string{"tools", "servers"}}

var (
	healthShape    = &mapShape{keys: []string{"every", "timeout", "path", "call"}, hints: map[string]string{"interval": `write "every"`, "url": `write "path"`, "tool": `write call: {tool: NAME}`}}
	probeCallShape = &mapShape{keys: []string{"tool", "arguments"}}
)

// A manifestRef is the manifest that a server names.
type manifestRef struct {
	server switchboard.ServerID
	at     value
	url    bool
	name   string // file or URL
}

// readMainFile reads switchboard.yaml.
func (l *loader) readMainFile() {
	l.cfg.Implied = true
	data, err := l.readMain(MaxFileBytes)
	if err != nil {
		l.sink.addFault(Fault{File: l.file, Text: "this cannot be read: " + errorText(err)})
		return
	}
	doc, ok := readYAML(l.file, data, l.sink)
	if !ok {
		return
	}
	top, ok := doc.readObject(mainShape)
	if !ok {
		return
	}
	l.readable = true
	if v, ok := top.lookup("listen"); ok {
		if s, ok := v.readText(); ok && v.isAddress(s) {
			l.cfg.Listen, l.listen = s, v
		}
	}
	if v, ok := top.lookup("hosts"); ok {
		for _, t := range v.readTexts() {
			if why := badHost(t.s); why != "" {
				t.fault("%s: %s", t.shownValue(), why)
			}
			l.cfg.Hosts = append(l.cfg.Hosts, t.s)
		}
	}
	if v, ok := top.lookup("origins"); ok {
		for _, t := range v.readTexts() {
			if why := badOrigin(t.s); why != "" {
				t.fault("%s: %s", t.shownValue(), why)
			}
			l.cfg.Origins = append(l.cfg.Origins, t.s)
		}
	}
	if v, ok := top.lookup("start_deadline"); ok {
		if d, ok := v.readDuration(100*time.Millisecond, 10*time.Minute); ok {
			l.cfg.StartDeadline = d
		}
	}
	if v, ok := top.lookup("grace"); ok {
		if d, ok := v.readDuration(time.Second, time.Hour); ok {
			l.cfg.Grace = d
		}
	}
	if v, ok := top.lookup("policies"); ok {
		if o, ok := v.readObject(policiesShape); ok {
			if v, ok := o.lookup("veto"); ok {
				scope, _ := v.oneOf("scope", "requirement", "task")
				l.vetoForTask = scope == "task"
			}
		}
	}
	if v, ok := top.require("servers", "name at least one MCP server"); ok {
		for _, e := range v.readEntries(maxServers, true) {
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
	if v, ok := top.lookup("token_budget"); ok {
		l.tokenBudget = v.readTokenBudget(0, "")
	}
	if v, ok := top.lookup("lazy"); ok {
		l.readLazy(v)
	}
	l.readStore(top)
	if v, ok := top.lookup("cache"); ok {
		l.readCache(v)
	}
	l.readReceipts(top)
	l.noTenantRows = !top.hasKey("tenants")
	if v, ok := top.lookup("tenants"); ok {
		l.readBounds(v)
	}
}

// readLazy reads the tokenizer, and the default of all tenants for a full budget.
func (l *loader) readLazy(v value) {
	o, ok := v.readObject(lazyShape)
	if !ok {
		return
	}
	if v, ok := o.lookup("tokenizer"); ok {
		l.cfg.Tokenizer, _ = v.oneOf("tokenizer", switchboard.Tokenizers...)
	}
	if v, ok := o.lookup("on_full"); ok {
		l.onFull = v.readOnFull()
	}
}

// readCache reads how long and how much of the results of deterministic tools is cached.
func (l *loader) readCache(v value) {
	o, ok := v.readObject(cacheShape)
	if !ok {
		return
	}
	l.cfg.Cache.Bytes = DefaultCacheBytes
	if v, ok := o.require("ttl", "say how long a result may be given again, such as 10m"); ok {
		l.cfg.Cache.TTL, _ = v.readDuration(time.Second, 24*time.Hour)
	}
	if v, ok := o.lookup("bytes"); ok {
		l.cfg.Cache.Bytes = v.readSize(1<<20, 1<<30)
	}
}

// readServer reads one server. The server counts as known even if its row has faults.
func (l *loader) readServer(e namedPair) {
	if err := switchboard.CheckID(e.name); err != nil {
		e.key.fault("%v", err)
		return
	}
	s := &switchboard.Server{ID: switchboard.ServerID(e.name), Trust: switchboard.TrustDeclared, Share: switchboard.SharePrincipal}
	l.servers[e.name] = s
	o, ok := e.val.withContext("server %q: ", e.name).readObject(serverShape)
	if !ok {
		return
	}
	// A missing key is reported at the server's name.
	o.line, o.col = e.key.line, e.key.col
	l.readTransport(s, o)
	if v, ok := o.lookup("enabled"); ok {
		l.disabled[e.name] = !v.readBool()
	}
	if v, ok := o.lookup("manifest"); ok && !l.disabled[e.name] {
		l.addManifestRef(s.ID, v)
	}
	if v, ok := o.lookup("class"); ok {
		if c, ok := v.readText(); ok && v.isTerm(c) {
			s.Class = c
		}
	}
	if v, ok := o.lookup("trust"); ok {
		t, _ := v.oneOf("trust", string(switchboard.TrustOperator), string(switchboard.TrustDeclared))
		s.Trust = switchboard.Trust(t)
	}
	if v, ok := o.lookup("share"); ok {
		sh, _ := v.oneOf("share", string(switchboard.SharePrincipal), string(switchboard.ShareTenant), string(switchboard.ShareAll))
		s.Share = switchboard.Share(sh)
	}
	if v, ok := o.lookup("timeout"); ok {
		s.Timeout, _ = v.readDuration(minTimeout, maxTimeout)
	}
	if v, ok := o.lookup("max_timeout"); ok {
		s.MaxTimeout, ok = v.readDuration(minTimeout, longestTimeout)
		if least := cmp.Or(s.Timeout, switchboard.DefaultTimeout); ok && s.MaxTimeout < least {
			v.fault("%v is less than the timeout, %v, which a call that makes progress has at least", s.MaxTimeout, least)
		}
	}
	if v, ok := o.lookup("max_calls"); ok {
		s.MaxCalls = v.readInteger(1, maxCallsLimit)
	}
	if v, ok := o.lookup("max_waiting"); ok {
		s.MaxWaiting = v.readInteger(0, maxCallsLimit)
	}
	if v, ok := o.lookup("max_result"); ok {
		s.MaxResult = v.readSize(64<<10, 1<<30)
	}
	if v, ok := o.lookup("health"); ok {
		s.Probe = v.readProbe(s.Transport)
	}
	if v, ok := o.lookup("instructions"); ok {
		word, _ := v.oneOf("instructions", "on", "off")
		s.NoInstructions = word == "off"
	}
	if v, ok := o.lookup("results"); ok {
		word, _ := v.oneOf("results", "as_sent", "clean")
		s.CleanResults = word == "clean"
	}
	if v, ok := o.lookup("check_input"); ok {
		word, _ := v.oneOf("check_input", string(switchboard.CheckDefault), string(switchboard.CheckStrict), string(switchboard.CheckOff))
		s.CheckInput = switchboard.InputCheck(word)
	}
	if v, ok := o.lookup("services"); ok {
		s.Services = v.readServices()
	}
}

// readServices reads how the tools of a server are divided into services, in the order of the file.
func (v value) readServices() (out []switchboard.Service) {
	if v.kind == mapKind && len(v.pairs) == 0 {
		v.fault("the map is empty; name a service and its tools, such as s3: [\"s3_*\"], or remove the key")
	}
	first := map[string]value{}
	for _, e := range v.readEntries(maxItems, false) {
		if err := switchboard.CheckID(e.name); err != nil {
			e.key.fault("%v", err)
			continue
		}
		e.val.ctx = v.ctx + e.name + ": "
		s := switchboard.Service{Name: e.name}
		if e.val.kind == listKind && len(e.val.items) == 0 {
			e.val.fault("the list is empty; name a tool, or remove the service")
		}
		for _, p := range e.val.readTexts() {
			at, again := first[p.s]
			switch why := badPattern(p.s); {
			case why != "":
				p.fault("%s: %s", p.shownValue(), why)
			case again:
				p.fault("%s stands at line %d already; a tool belongs to the first service that has it", p.shownValue(), at.line)
			default:
				first[p.s] = p.value
				s.Tools = append(s.Tools, p.s)
			}
		}
		out = append(out, s)
	}
	return out
}

// readProbe reads how a server is probed.
func (v value) readProbe(transport switchboard.Transport) (p switchboard.Probe) {
	o, ok := v.readObject(healthShape)
	if !ok {
		return p
	}
	if v, ok := o.lookup("every"); ok {
		p.Every, _ = v.readDuration(time.Second, time.Hour)
	}
	if v, ok := o.lookup("timeout"); ok {
		p.Timeout, _ = v.readDuration(100*time.Millisecond, time.Minute)
	}
	if v, ok := o.lookup("path"); ok {
		u, err := url.Parse(v.text)
		switch s, ok := v.readText(); {
		case !ok:
		case transport == switchboard.TransportStdio:
			v.fault("a program has no path; this is for transport: http")
		case err != nil || !strings.HasPrefix(s, "/") || strings.HasPrefix(s, "//") || u.Fragment != "":
			v.fault("%s is no path; write one such as /healthz, which is asked for at the server's address", v.shownValue())
		default:
			p.Path = s
		}
	}
	if v, ok := o.lookup("call"); ok {
		p.Tool, p.Arguments = v.readProbeCall()
	}
	return p
}

func (v value) readProbeCall() (tool string, arguments []byte) {
	o, ok := v.readObject(probeCallShape)
	if !ok {
		return "", nil
	}
	if v, ok := o.require("tool", "name a tool of the server's that only reads"); ok {
		if s, ok := v.readText(); ok {
			if why := badToolName(s); why != "" {
				v.fault("%s: %s", v.shownValue(), why)
			}
			tool = s
		}
	}
	if v, ok := o.lookup("arguments"); ok {
		arguments = v.readJSONMap()
	}
	return tool, arguments
}

// readTransport reads how to reach the server. If the transport is unknown, the keys of both
// transports are read, to report their faults too.
func (l *loader) readTransport(s *switchboard.Server, o fixedMap) {
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
			o.require(of.need, of.remedy)
		}
		for _, k := range of.keys {
			v, ok := o.lookup(k)
			switch {
			case !ok:
			case s.Transport != "" && s.Transport != of.transport:
				v.ctx = o.ctx
				v.fault("%q does not go with transport: %s; it is for transport: %s", k, s.Transport, of.transport)
			default:
				l.readTransportKey(s, k, v, o)
			}
		}
	}
}

// readTransportKind returns the transport, or "" after a fault.
func (l *loader) readTransportKind(o fixedMap) switchboard.Transport {
	v, ok := o.require("transport", "write transport: stdio for a program, or transport: http for an address")
	if !ok {
		return ""
	}
	if v.kind == textKind && v.text == "sse" {
		v.fault("%q is not written here; write http, and it is found out that the server speaks HTTP with SSE", v.text)
		return ""
	}
	t, _ := v.oneOf("transport", string(switchboard.TransportHTTP), string(switchboard.TransportStdio))
	return switchboard.Transport(t)
}

// readTransportKey reads one of the keys that belong to a transport. o is the server's row.
func (l *loader) readTransportKey(s *switchboard.Server, key string, v value, o fixedMap) {
	switch key {
	case "url":
		s.URL = v.readURL()
	case "headers":
		s.Headers = l.readHeaders(v)
	case "command":
		s.Command = l.readCommand(v)
	case "allow_env":
		env, _ := o.lookup("env")
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
	return absoluteIn(l.absDir, p)
}

// ownHeaders are headers that Switchboard sets itself, or must never send.
var ownHeaders = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Idempotency-Key", "Keep-Alive",
	"Last-Event-Id", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Idempotency-Key",
}

func (l *loader) readHeaders(v value) map[string]switchboard.Secret {
	v.hidden = true
	out := map[string]switchboard.Secret{}
	for _, e := range v.readEntries(maxItems, false) {
		name := textproto.CanonicalMIMEHeaderKey(e.name)
		e.val.ctx = v.ctx + e.key.shownName() + ": "
		switch {
		case !headerName(e.name):
			e.key.fault("%s is no name of a header", e.key.shownName())
			continue
		case slices.Contains(ownHeaders, name) || strings.HasPrefix(name, "Mcp-"):
			e.key.fault("%s is not for you to set: Switchboard sets it, or must never send it", e.key.shownName())
			continue
		}
		if _, ok := out[name]; ok {
			e.key.fault("%s stands here twice, in another case", e.key.shownName())
			continue
		}
		s, ok := l.readSecret(e.val, e.name)
		if ok && !headerValue(s.Reveal()) {
			e.val.fault("the value holds a line break or a control character, which no header can")
		}
		out[name] = s
	}
	return out
}

// shownName returns the name of a header or variable as faults show it.
func (v value) shownName() string {
	if v.hidden {
		return "a name that is not shown, since it may be a secret,"
	}
	return v.text
}

func (l *loader) readEnv(v value, allowed []string) map[string]switchboard.Secret {
	v.hidden = true
	out := map[string]switchboard.Secret{}
	for _, e := range v.readEntries(maxItems, false) {
		e.val.ctx = v.ctx + e.key.shownName() + ": "
		if !isVariableName(e.name) {
			e.key.fault("%s is no name of a variable; use letters, digits and _", e.key.shownName())
			continue
		}
		if why := switchboard.RefusedVariable(e.name); why != "" && !slices.Contains(allowed, e.name) {
			e.key.fault("%s is not handed to a server: %s. If this server must have it, write allow_env: [%s]", e.name, why, e.name)
			continue
		}
		s, ok := l.readSecret(e.val, e.name)
		if ok && strings.Contains(s.Reveal(), "\x00") {
			e.val.fault("the value holds a NUL, which no variable can")
		}
		out[e.name] = s
	}
	return out
}

// readAllowEnv reads the variables that the server receives although they are refused by default. A
// name without effect is a fault, because it would seem to have one.
func (l *loader) readAllowEnv(v, env value) (names []string) {
	for _, name := range v.readTexts() {
		switch {
		case switchboard.RefusedVariable(name.s) == "":
			name.fault("%s is not refused in env; remove it here", name.shownValue())
		case !env.hasMember(name.s):
			name.fault("%s is no variable of this server; write it into env in the same spelling, or remove it here", name.shownValue())
		default:
			names = append(names, name.s)
		}
	}
	slices.Sort(names)
	return names
}

func (l *loader) readCommand(v value) []string {
	v.hidden = true
	if v.kind == textKind {
		v.fault(`want a list, since no shell takes the text apart: command: [npx, -y, some-server]`)
		return nil
	}
	items := v.readList(maxArgs)
	if v.kind == listKind && len(v.items) == 0 {
		v.fault("the list is empty; its first item is the program")
	}
	var out []string
	for i, item := range items {
		item.ctx = fmt.Sprintf("%sitem %d: ", v.ctx, i+1)
		if i > 0 && item.kind == textKind && item.quoted && item.text == "" {
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
		v.warn("%s takes a text and runs it as a command, whatever it holds; name the program and its arguments in the list", flag)
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
func (l *loader) readArgument(v value) (string, bool) {
	v.hidden = true
	s, ok := v.readText()
	if !ok {
		return "", false
	}
	ps, err := splitText(s)
	if err != nil {
		v.fault("%v", err)
		return "", false
	}
	var b strings.Builder
	for _, p := range ps {
		switch p.kind {
		case "env", "file":
			v.fault("${%s:…} is not read here, since every user of the machine can see the arguments of a program; hand the value over in env", p.kind)
			return "", false
		case "workspace":
			b.WriteString(l.absDir)
		default:
			b.WriteString(p.text)
		}
	}
	s = b.String()
	if strings.ContainsAny(s, "\x00\n\r") || len(s) > maxText {
		v.fault("it holds a line break or a NUL, or is longer than %d bytes", maxText)
		return "", false
	}
	return s, true
}

// isTerm reports whether s can be the name of a class, resource or constraint. If it cannot, that is a
// fault.
func (v value) isTerm(s string) bool {
	if badTerm(s) {
		v.fault("%s: use at most 64 lower-case letters and digits, in words parted by _ or -", v.shownValue())
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
