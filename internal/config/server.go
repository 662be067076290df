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

// Bounds of what one file may hold.
const (
	maxServers = 2000
	maxTenants = 1000
	maxItems   = 1000 // of a list, or of a map of the user's own names
	maxArgs    = 256
	maxText    = 8 << 10 // bytes of an argument or address
	maxCalls   = 10_000  // at one server, at once

	longestTimeout = 24 * time.Hour // of a call that makes progress

	minTimeout = 100 * time.Millisecond // of a call
	maxTimeout = time.Hour
)

var mainShape = &shape{
	keys:  []string{"listen", "hosts", "origins", "start_deadline", "grace", "servers", "tenants", "token_budget", "lazy", "store", "durability", "cluster", "cache", "receipts", "policies"},
	later: []string{"identity", "telemetry", "defaults", "budgets", "limits", "admin", "capabilities", "approvals", "health"},
	hints: map[string]string{
		"mcpServers": "bring the servers of another program in with `switchboard import FILE`", "context_servers": "bring the servers of another program in with `switchboard import FILE`",
		"taxonomy": "it has a file of its own, taxonomy.yaml", "overlays": "they have a folder of their own, overlays/",
		"tasks": "they stand in tenants/<id>/tasks/", "tenant": `write "tenants"`, "server": `write "servers"`,
	},
}

var serverShape = &shape{
	keys:  []string{"transport", "url", "headers", "command", "env", "allow_env", "dir", "manifest", "class", "trust", "share", "timeout", "max_timeout", "max_calls", "max_waiting", "max_result", "health", "services", "instructions", "results", "check_input", "enabled"},
	later: []string{"oauth", "sandbox", "cache"},
	hints: map[string]string{
		"args": "put the arguments into \"command\", after the program", "type": `write "transport"`, "cwd": `write "dir"`,
		"httpUrl": `write "url"`, "serverUrl": `write "url"`, "endpoint": `write "url"`,
		"disabled": `write "enabled: false"`,
	},
}

var policiesShape = &shape{keys: []string{"veto"}}

var lazyShape = &shape{keys: []string{"tokenizer", "on_full"}, hints: map[string]string{"token_budget": "it stands beside \"lazy\""}}

var cacheShape = &shape{keys: []string{"ttl", "bytes"}, later: []string{"tools", "servers"}}

var (
	healthShape    = &shape{keys: []string{"every", "timeout", "path", "call"}, hints: map[string]string{"interval": `write "every"`, "url": `write "path"`, "tool": `write call: {tool: NAME}`}}
	probeCallShape = &shape{keys: []string{"tool", "arguments"}}
)

// A manifestRef is a manifest that a server names.
type manifestRef struct {
	server switchboard.ServerID
	at     value
	url    bool
	name   string // file or URL
}

// operator reads switchboard.yaml.
func (l *loader) operator() {
	l.cfg.Implied = true
	data, err := l.readMain(MaxFileBytes)
	if err != nil {
		l.sink.add(Fault{File: l.file, Text: "this cannot be read: " + why(err)})
		return
	}
	doc, ok := readYAML(l.file, data, l.sink)
	if !ok {
		return
	}
	top, ok := doc.object(mainShape)
	if !ok {
		return
	}
	l.readable = true
	if v, ok := top.get("listen"); ok {
		if s, ok := v.str(); ok && v.address(s) {
			l.cfg.Listen, l.listen = s, v
		}
	}
	if v, ok := top.get("hosts"); ok {
		for _, t := range v.texts() {
			if why := badHost(t.s); why != "" {
				t.fault("%s: %s", t.shown(), why)
			}
			l.cfg.Hosts = append(l.cfg.Hosts, t.s)
		}
	}
	if v, ok := top.get("origins"); ok {
		for _, t := range v.texts() {
			if why := badOrigin(t.s); why != "" {
				t.fault("%s: %s", t.shown(), why)
			}
			l.cfg.Origins = append(l.cfg.Origins, t.s)
		}
	}
	if v, ok := top.get("start_deadline"); ok {
		if d, ok := v.duration(100*time.Millisecond, 10*time.Minute); ok {
			l.cfg.StartDeadline = d
		}
	}
	if v, ok := top.get("grace"); ok {
		if d, ok := v.duration(time.Second, time.Hour); ok {
			l.cfg.Grace = d
		}
	}
	if v, ok := top.get("policies"); ok {
		if o, ok := v.object(policiesShape); ok {
			if v, ok := o.get("veto"); ok {
				scope, _ := v.one("scope", "requirement", "task")
				l.vetoForTask = scope == "task"
			}
		}
	}
	if v, ok := top.need("servers", "name at least one MCP server"); ok {
		for _, e := range v.entries(maxServers, true) {
			l.server(e)
		}
	}
	for id := range l.servers {
		l.ids = append(l.ids, id)
	}
	slices.Sort(l.ids)
	for _, id := range l.ids {
		if !l.disabled[id] {
			l.cfg.Servers = append(l.cfg.Servers, *l.servers[id])
		}
	}
	if v, ok := top.get("token_budget"); ok {
		l.tokens = v.tokens(0, "")
	}
	if v, ok := top.get("lazy"); ok {
		l.lazy(v)
	}
	l.store(top)
	if v, ok := top.get("cache"); ok {
		l.cache(v)
	}
	l.receipts(top)
	l.implicit = !top.has("tenants")
	if v, ok := top.get("tenants"); ok {
		l.readBounds(v)
	}
}

// lazy reads how tokens are counted, and what all tenants have that do not say
// otherwise.
func (l *loader) lazy(v value) {
	o, ok := v.object(lazyShape)
	if !ok {
		return
	}
	if v, ok := o.get("tokenizer"); ok {
		l.cfg.Tokenizer, _ = v.one("tokenizer", switchboard.Tokenizers...)
	}
	if v, ok := o.get("on_full"); ok {
		l.onFull = v.onFull()
	}
}

// cache reads how long and how much is kept of the results of deterministic tools.
func (l *loader) cache(v value) {
	o, ok := v.object(cacheShape)
	if !ok {
		return
	}
	l.cfg.Cache.Bytes = DefaultCacheBytes
	if v, ok := o.need("ttl", "say how long a result may be given again, such as 10m"); ok {
		l.cfg.Cache.TTL, _ = v.duration(time.Second, 24*time.Hour)
	}
	if v, ok := o.get("bytes"); ok {
		l.cfg.Cache.Bytes = v.size(1<<20, 1<<30)
	}
}

// server reads one server. It counts as known whatever is wrong with it.
func (l *loader) server(e entry) {
	if err := switchboard.CheckID(e.name); err != nil {
		e.key.fault("%v", err)
		return
	}
	s := &switchboard.Server{ID: switchboard.ServerID(e.name), Trust: switchboard.TrustDeclared, Share: switchboard.SharePrincipal}
	l.servers[e.name] = s
	o, ok := e.val.about("server %q: ", e.name).object(serverShape)
	if !ok {
		return
	}
	// Faults about what is missing stand best at the server's name.
	o.line, o.col = e.key.line, e.key.col
	l.transport(s, o)
	if v, ok := o.get("enabled"); ok {
		l.disabled[e.name] = !v.boolean()
	}
	if v, ok := o.get("manifest"); ok && !l.disabled[e.name] {
		l.manifest(s.ID, v)
	}
	if v, ok := o.get("class"); ok {
		if c, ok := v.str(); ok && v.term(c) {
			s.Class = c
		}
	}
	if v, ok := o.get("trust"); ok {
		t, _ := v.one("trust", string(switchboard.TrustOperator), string(switchboard.TrustDeclared))
		s.Trust = switchboard.Trust(t)
	}
	if v, ok := o.get("share"); ok {
		sh, _ := v.one("share", string(switchboard.SharePrincipal), string(switchboard.ShareTenant), string(switchboard.ShareAll))
		s.Share = switchboard.Share(sh)
	}
	if v, ok := o.get("timeout"); ok {
		s.Timeout, _ = v.duration(minTimeout, maxTimeout)
	}
	if v, ok := o.get("max_timeout"); ok {
		s.MaxTimeout, ok = v.duration(minTimeout, longestTimeout)
		if least := cmp.Or(s.Timeout, switchboard.DefaultTimeout); ok && s.MaxTimeout < least {
			v.fault("%v is less than the timeout, %v, which a call that makes progress has at least", s.MaxTimeout, least)
		}
	}
	if v, ok := o.get("max_calls"); ok {
		s.MaxCalls = v.integer(1, maxCalls)
	}
	if v, ok := o.get("max_waiting"); ok {
		s.MaxWaiting = v.integer(0, maxCalls)
	}
	if v, ok := o.get("max_result"); ok {
		s.MaxResult = v.size(64<<10, 1<<30)
	}
	if v, ok := o.get("health"); ok {
		s.Probe = v.probe(s.Transport)
	}
	if v, ok := o.get("instructions"); ok {
		word, _ := v.one("instructions", "on", "off")
		s.NoInstructions = word == "off"
	}
	if v, ok := o.get("results"); ok {
		word, _ := v.one("results", "as_sent", "clean")
		s.CleanResults = word == "clean"
	}
	if v, ok := o.get("check_input"); ok {
		word, _ := v.one("check_input", string(switchboard.CheckDefault), string(switchboard.CheckStrict), string(switchboard.CheckOff))
		s.CheckInput = switchboard.InputCheck(word)
	}
	if v, ok := o.get("services"); ok {
		s.Services = v.services()
	}
}

// services reads how a server's tools are split, in the order of the file.
func (v value) services() (out []switchboard.Service) {
	if v.kind == mapKind && len(v.pairs) == 0 {
		v.fault("the map is empty; name a service and its tools, such as s3: [\"s3_*\"], or remove the key")
	}
	first := map[string]value{}
	for _, e := range v.entries(maxItems, false) {
		if err := switchboard.CheckID(e.name); err != nil {
			e.key.fault("%v", err)
			continue
		}
		e.val.ctx = v.ctx + e.name + ": "
		s := switchboard.Service{Name: e.name}
		if e.val.kind == listKind && len(e.val.items) == 0 {
			e.val.fault("the list is empty; name a tool, or remove the service")
		}
		for _, p := range e.val.texts() {
			at, again := first[p.s]
			switch why := badPattern(p.s); {
			case why != "":
				p.fault("%s: %s", p.shown(), why)
			case again:
				p.fault("%s stands at line %d already; a tool belongs to the first service that has it", p.shown(), at.line)
			default:
				first[p.s] = p.value
				s.Tools = append(s.Tools, p.s)
			}
		}
		out = append(out, s)
	}
	return out
}

// probe reads how a server is asked whether it is well.
func (v value) probe(transport switchboard.Transport) (p switchboard.Probe) {
	o, ok := v.object(healthShape)
	if !ok {
		return p
	}
	if v, ok := o.get("every"); ok {
		p.Every, _ = v.duration(time.Second, time.Hour)
	}
	if v, ok := o.get("timeout"); ok {
		p.Timeout, _ = v.duration(100*time.Millisecond, time.Minute)
	}
	if v, ok := o.get("path"); ok {
		u, err := url.Parse(v.text)
		switch s, ok := v.str(); {
		case !ok:
		case transport == switchboard.TransportStdio:
			v.fault("a program has no path; this is for transport: http")
		case err != nil || !strings.HasPrefix(s, "/") || strings.HasPrefix(s, "//") || u.Fragment != "":
			v.fault("%s is no path; write one such as /healthz, which is asked for at the server's address", v.shown())
		default:
			p.Path = s
		}
	}
	if v, ok := o.get("call"); ok {
		p.Tool, p.Arguments = v.probeCall()
	}
	return p
}

func (v value) probeCall() (tool string, arguments []byte) {
	o, ok := v.object(probeCallShape)
	if !ok {
		return "", nil
	}
	if v, ok := o.need("tool", "name a tool of the server's that only reads"); ok {
		if s, ok := v.str(); ok {
			if why := badToolName(s); why != "" {
				v.fault("%s: %s", v.shown(), why)
			}
			tool = s
		}
	}
	if v, ok := o.get("arguments"); ok {
		arguments = v.json()
	}
	return tool, arguments
}

// transport reads how the server is reached. What belongs to a transport is
// read even where it is not known which one is meant: its faults are told too.
func (l *loader) transport(s *switchboard.Server, o object) {
	s.Transport = l.kind(o)
	for _, of := range []struct {
		transport switchboard.Transport
		need      string // the key that must be there
		remedy    string
		keys      []string
	}{
		{switchboard.TransportHTTP, "url", "write the address of the server", []string{"url", "headers"}},
		{switchboard.TransportStdio, "command", "write the program and its arguments as a list", []string{"command", "allow_env", "env", "dir"}},
	} {
		if s.Transport == of.transport {
			o.need(of.need, of.remedy)
		}
		for _, k := range of.keys {
			v, ok := o.get(k)
			switch {
			case !ok:
			case s.Transport != "" && s.Transport != of.transport:
				v.ctx = o.ctx
				v.fault("%q does not go with transport: %s; it is for transport: %s", k, s.Transport, of.transport)
			default:
				l.reach(s, k, v, o)
			}
		}
	}
}

// kind reads the transport, or gives "" where there is a fault.
func (l *loader) kind(o object) switchboard.Transport {
	v, ok := o.need("transport", "write transport: stdio for a program, or transport: http for an address")
	if !ok {
		return ""
	}
	if v.kind == textKind && v.text == "sse" {
		v.fault("%q is not written here; write http, and it is found out that the server speaks HTTP with SSE", v.text)
		return ""
	}
	t, _ := v.one("transport", string(switchboard.TransportHTTP), string(switchboard.TransportStdio))
	return switchboard.Transport(t)
}

// reach reads one of the keys that belong to a transport, of the server in o.
func (l *loader) reach(s *switchboard.Server, key string, v value, o object) {
	switch key {
	case "url":
		s.URL = v.url()
	case "headers":
		s.Headers = l.headers(v)
	case "command":
		s.Command = l.command(v)
	case "allow_env":
		env, _ := o.get("env")
		s.AllowEnv = l.allowEnv(v, env)
	case "env":
		s.Env = l.env(v, s.AllowEnv)
	case "dir":
		if d, ok := l.argument(v); ok {
			s.Dir = l.place(d)
		}
	}
}

// place makes a path in the configuration's folder absolute.
func (l *loader) place(p string) string {
	return within(l.abs, p)
}

// ownHeaders are set by Switchboard itself, or must never be sent.
var ownHeaders = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Idempotency-Key", "Keep-Alive",
	"Last-Event-Id", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Idempotency-Key",
}

func (l *loader) headers(v value) map[string]switchboard.Secret {
	v.hidden = true
	out := map[string]switchboard.Secret{}
	for _, e := range v.entries(maxItems, false) {
		name := textproto.CanonicalMIMEHeaderKey(e.name)
		e.val.ctx = v.ctx + e.key.name() + ": "
		switch {
		case !headerName(e.name):
			e.key.fault("%s is no name of a header", e.key.name())
			continue
		case slices.Contains(ownHeaders, name) || strings.HasPrefix(name, "Mcp-"):
			e.key.fault("%s is not for you to set: Switchboard sets it, or must never send it", e.key.name())
			continue
		}
		if _, ok := out[name]; ok {
			e.key.fault("%s stands here twice, in another case", e.key.name())
			continue
		}
		s, ok := l.secret(e.val, e.name)
		if ok && !headerValue(s.Reveal()) {
			e.val.fault("the value holds a line break or a control character, which no header can")
		}
		out[name] = s
	}
	return out
}

// name is the name of a header or variable as faults show it.
func (v value) name() string {
	if v.hidden {
		return "a name that is not shown, since it may be a secret,"
	}
	return v.text
}

func (l *loader) env(v value, allowed []string) map[string]switchboard.Secret {
	v.hidden = true
	out := map[string]switchboard.Secret{}
	for _, e := range v.entries(maxItems, false) {
		e.val.ctx = v.ctx + e.key.name() + ": "
		if !variable(e.name) {
			e.key.fault("%s is no name of a variable; use letters, digits and _", e.key.name())
			continue
		}
		if why := switchboard.RefusedVariable(e.name); why != "" && !slices.Contains(allowed, e.name) {
			e.key.fault("%s is not handed to a server: %s. If this server must have it, write allow_env: [%s]", e.name, why, e.name)
			continue
		}
		s, ok := l.secret(e.val, e.name)
		if ok && strings.Contains(s.Reveal(), "\x00") {
			e.val.fault("the value holds a NUL, which no variable can")
		}
		out[e.name] = s
	}
	return out
}

// allowEnv reads which variables the server gets although they are refused. A name that changes
// nothing is a fault: it would look as if it did.
func (l *loader) allowEnv(v, env value) (names []string) {
	for _, name := range v.texts() {
		switch {
		case switchboard.RefusedVariable(name.s) == "":
			name.fault("%s is not refused in env; remove it here", name.shown())
		case !env.hasMember(name.s):
			name.fault("%s is no variable of this server; write it into env in the same spelling, or remove it here", name.shown())
		default:
			names = append(names, name.s)
		}
	}
	slices.Sort(names)
	return names
}

func (l *loader) command(v value) []string {
	v.hidden = true
	if v.kind == textKind {
		v.fault(`want a list, since no shell takes the text apart: command: [npx, -y, some-server]`)
		return nil
	}
	items := v.list(maxArgs)
	if v.kind == listKind && len(v.items) == 0 {
		v.fault("the list is empty; its first item is the program")
	}
	var out []string
	for i, item := range items {
		item.ctx = fmt.Sprintf("%sitem %d: ", v.ctx, i+1)
		if i > 0 && item.kind == textKind && item.quoted && item.text == "" {
			out = append(out, "") // an empty argument is one
			continue
		}
		arg, ok := l.argument(item)
		if !ok {
			continue
		}
		// A program that is named by a path stands where the file says, not
		// where Switchboard happens to be started.
		if i == 0 && strings.ContainsRune(filepath.ToSlash(arg), '/') {
			arg = l.place(arg)
		}
		out = append(out, arg)
	}
	if flag := runsText(out); flag != "" {
		v.warn("%s takes a text and runs it as a command, whatever it holds; name the program and its arguments in the list", flag)
	}
	return out
}

// shells are programs that run a text that they are given, by the flags that say so.
var shells = map[string][]string{
	"sh": {"-c"}, "bash": {"-c"}, "zsh": {"-c"}, "dash": {"-c"}, "ash": {"-c"}, "ksh": {"-c"}, "fish": {"-c", "--command"},
	"npx": {"-c", "--call"}, "npm": {"-c", "--call"}, "pnpm": {"-c", "--shell-mode"},
	"powershell": {"-command", "-c", "-encodedcommand"}, "pwsh": {"-command", "-c", "-encodedcommand"},
}

// runsText names the program and the flag of a command with which a text is run, or is "".
func runsText(command []string) string {
	if len(command) == 0 {
		return ""
	}
	program := filepath.Base(filepath.ToSlash(command[0]))
	flags := shells[strings.TrimSuffix(strings.ToLower(program), ".exe")]
	for i := 1; i < len(command) && flags != nil; i++ {
		name, _, _ := strings.Cut(strings.ToLower(command[i]), "=")
		switch {
		case slices.Contains(flags, name) || isCluster(name):
			return program + " " + name
		case name == "-p" || name == "--package": // of npx, with a name behind it
			i++
		case !strings.HasPrefix(name, "-"): // what follows is for the program, or the script
			return ""
		}
	}
	return ""
}

// isCluster reports whether arg is short flags together, with c among them, such as -lc.
func isCluster(arg string) bool {
	return len(arg) > 2 && len(arg) <= 5 && arg[0] == '-' && arg[1] != '-' && strings.HasSuffix(arg, "c")
}

// argument reads a text that is shown to every user of the machine.
func (l *loader) argument(v value) (string, bool) {
	v.hidden = true
	s, ok := v.str()
	if !ok {
		return "", false
	}
	ps, err := parts(s)
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
			b.WriteString(l.abs)
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

// term reports whether s can be the name of a class, resource or constraint.
func (v value) term(s string) bool {
	if badTerm(s) {
		v.fault("%s: use at most 64 lower-case letters and digits, in words parted by _ or -", v.shown())
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
