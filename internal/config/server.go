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

// Limits of one server.
const (
	maxCallsLimit = 10_000 // in flight at one server

	// MinTimeout and MaxTimeout bound the key timeout: the longest time without progress of a call.
	MinTimeout = 100 * time.Millisecond
	MaxTimeout = time.Hour

	longestTimeout = 24 * time.Hour // of a call that makes progress

	minResult = 64 << 10 // bytes of one message of a server
	maxResult = 1 << 30
)

// serverRow is the state of reading one server.
type serverRow struct {
	*loader
	server *switchboard.Server
	row    document.FixedMap
	pair   certificatePair // of tls:
}

func serverKeysForDocs() *document.Keys { return (&serverRow{server: &switchboard.Server{}}).keys() }

// keys are the keys of a server.
func (r *serverRow) keys() *document.Keys {
	s := r.server
	text := document.Schema{"type": "string", "minLength": 1}
	texts := document.Schema{"type": "array", "items": document.Schema{"type": "string"}, "minItems": 1, "maxItems": endpoint.MaxArgs}
	keys := &document.Keys{
		Rows: []document.Row{
			{Key: "transport", Type: document.Custom("one of `http`, `stdio`", document.Schema{"enum": []string{"http", "stdio"}}, r.readTransport), Required: "write transport: stdio for a program, or transport: http for an address", Doc: "`stdio` for a program; `http` for Streamable HTTP. Servers that speak only the older HTTP with SSE are detected."},
			{Key: "url", Type: r.forHTTP("url", document.Custom("an address", text, func(v document.Value) { s.URL = readURL(v) })), Doc: "For http: an `http://` or `https://` address, without user, fragment or secret. Required with http."},
			{Key: "headers", Type: r.forHTTP("headers", document.Custom("a map from header to text", document.Schema{"type": "object", "additionalProperties": text}, func(v document.Value) { s.Headers = r.readHeaders(v) })), Doc: "For http: headers of every request. A secret is a reference: `${env:NAME}`, `${file:PATH}` or `${secret:NAME}`."},
			{Key: "credential", Type: r.forHTTP("credential", document.Map(r.credentialKeys, r.checkCredential)), Late: true, Doc: "For http: how Switchboard gets the tokens for a server that demands a sign-in (OAuth). [Hosted servers](hosted-servers.md) shows each kind."},
			{Key: "command", Type: r.forStdio("command", document.Custom("a list of texts", texts, r.readCommand)), Doc: "For stdio: the program and its arguments; no shell reads them. Required with stdio. A program with a / in its name is relative to the folder of switchboard.yaml."},
			{Key: "package", Type: r.forStdio("package", document.Map(packageRow{r}.keys, nil)), Late: true, Doc: "For stdio: the [package](packages.md) that has the program. Switchboard installs it as its lock file says, and checks it before each start. `command` then names a program of the package and its arguments; it may be absent if there is one program and no argument."},
			{Key: "env", Type: r.forStdio("env", document.Custom("a map from variable to text", document.Schema{"type": "object", "additionalProperties": text}, r.readEnv)), Late: true, Doc: "For stdio: environment variables, added to a small safe base: the program does not inherit ours. A secret is a reference: `${env:NAME}`, `${file:PATH}` or `${secret:NAME}`."},
			{Key: "allow_env", Type: r.forStdio("allow_env", document.Texts("a list of variables", r.readAllowEnv)), Doc: "For stdio: names in env that are otherwise refused, because they change which code the server runs."},
			{Key: "dir", Type: r.forStdio("dir", document.Custom("a path", text, r.readDir)), Doc: "For stdio: the working folder, relative to the folder of switchboard.yaml."},
			{Key: "sandbox", Type: r.forStdio("sandbox", document.OneOf("level", func(x string) { s.Walls.Level = switchboard.Sandbox(x) }, string(switchboard.SandboxStandard), string(switchboard.SandboxOff), string(switchboard.SandboxStrict))), Doc: "For stdio: the [walls](walls.md) around the program. `standard` (the default): it reads no places of secrets, and writes few places. `strict`: only what `permissions` lists. `off`: no walls."},
			{Key: "permissions", Type: r.forStdio("permissions", document.Map(r.permissionKeys, r.checkPermissions)), Late: true, Doc: "For stdio: what the program may use besides what its level gives."},
			{Key: "manifest", Type: document.Text("a path or an address", r.readManifestRef).Wrap(func(document.Value) bool { return !r.disabled[string(s.ID)] }), Late: true, Doc: "The capabilities of its tools: a JSON file within the folder, an absolute path, or an address."},
			{Key: "class", Type: document.Text("a term", func(v document.Value, c string) {
				if isTerm(v, c) {
					s.Class = c
				}
			}), Doc: "A name by which tenants rank servers."},
			{Key: "trust", Type: trustType(&s.Trust), Doc: "`operator`: you vouch for the statements of the server, its manifest included; `declared` (the default): you do not."},
			{Key: "share", Type: document.OneOf("share", func(x string) { s.Share = switchboard.Share(x) }, string(switchboard.SharePrincipal), string(switchboard.ShareTenant), string(switchboard.ShareAll)), Doc: "Who shares a process or session: each principal has its own (the default), those of one tenant, or all, for servers without state."},
			{Key: "timeout", Type: document.Duration(MinTimeout, MaxTimeout, &s.Timeout), Doc: "The longest time without progress of a call; 60s if absent."},
			{Key: "max_timeout", Type: document.Duration(MinTimeout, longestTimeout, &s.MaxTimeout).With(r.readMaxTimeout), Doc: "The longest time of a call with progress, at least `timeout`; ten times the `timeout` if absent, and at most 1h."},
			{Key: "max_calls", Type: document.Integer(1, maxCallsLimit, &s.MaxCalls), Doc: "The most calls in flight at the server; 256 if absent."},
			{Key: "max_waiting", Type: document.Integer(0, maxCallsLimit, &s.MaxWaiting), Doc: "How many more calls wait for a slot; 0 if absent."},
			{Key: "max_result", Type: document.Size(minResult, maxResult, &s.MaxResult), Doc: "The largest message of the server, and so the largest result; 16MiB if absent."},
			{Key: "health", Type: document.Map(r.probeKeys, nil), Doc: "How Switchboard probes the server; an MCP ping every 30s if absent."},
			{Key: "services", Type: document.Custom("a map from service to a list of tools", document.Schema{"type": "object", "additionalProperties": document.Schema{"type": "array", "items": text, "minItems": 1}, "minProperties": 1}, func(v document.Value) { s.Services = readServices(v) }), Doc: "Groups its tools in on-demand lists: names of tools by service, in which * matches any text. A tool belongs to the first service with a match."},
			{Key: "instructions", Type: document.OneOf("instructions", func(x string) { s.NoInstructions = x == "off" }, "on", "off"), Doc: "`off`: Switchboard drops the server's instructions for models. `on` is the default."},
			{Key: "results", Type: document.OneOf("results", func(x string) { s.CleanResults = x == "clean" }, "as_sent", "clean"), Doc: "`clean`: Switchboard removes control characters and invisible characters from the texts of results. `as_sent` (the default): they stay unchanged."},
			{Key: "check_input", Type: document.OneOf("check_input", func(x string) { s.CheckInput = switchboard.InputCheck(x) }, string(switchboard.CheckDefault), string(switchboard.CheckStrict), string(switchboard.CheckOff)), Doc: "Which arguments Switchboard refuses before they reach the server."},
			{Key: "admission", Type: document.Map(admissionKeys(&s.Admission), nil), Doc: "What is let in of the server's offer without a person. A key that is absent is as at the top of the file."},
			{Key: "verify", Type: document.Map(func() *document.Keys { return verifyKeys(&s.Verify) }, nil), Doc: "How its tools are [verified](verify.md): how often, and with how many calls."},
			{Key: "enabled", Type: document.Custom("`true` or `false`", document.Schema{"type": "boolean"}, func(v document.Value) { r.disabled[string(s.ID)] = !v.ReadBool() }), Doc: "`false`: Switchboard does not start the server, and no task has its tools. `true` if absent."},
		},
		Later: []string{"oauth", "cache"},
		Hints: map[string]string{
			"args": "put the arguments into \"command\", after the program", "type": `write "transport"`, "cwd": `write "dir"`,
			"httpUrl": `write "url"`, "serverUrl": `write "url"`, "endpoint": `write "url"`,
			"disabled": `write "enabled: false"`,
		},
	}
	keys.Rows = slices.Insert(keys.Rows, 3, r.networkRows()...) // after headers
	return keys
}

// trustType is the type of a trust.
func trustType(to *switchboard.Trust) document.Type {
	return document.OneOf("trust", func(s string) { *to = switchboard.Trust(s) }, string(switchboard.TrustOperator), string(switchboard.TrustDeclared))
}

// readServers reads the servers.
func (f mainFile) readServers(v document.Value) {
	var servers []placedName
	for _, e := range v.ReadNamed(maxServers, true) {
		f.readServer(e)
		servers = append(servers, placedName{e.Key.WithContext(""), e.Name})
	}
	warnOfAlike("server", servers)
	warnOfAlike("package", f.packages)
}

// readServer reads one server. The server counts as known even if its row has faults.
func (l *loader) readServer(e document.NamedValue) {
	if err := switchboard.CheckID(e.Name); err != nil {
		e.Key.Fault("%v", err)
		return
	}
	r := &serverRow{loader: l, server: &switchboard.Server{ID: switchboard.ServerID(e.Name), Trust: switchboard.TrustDeclared, Share: switchboard.SharePrincipal}}
	l.servers[e.Name] = r.server
	var ok bool
	if r.row, ok = e.Value.WithContext("server %q: ", e.Name).Open(r.keys()); !ok {
		return
	}
	// A missing key is reported at the server's name.
	r.row.Line, r.row.Column = e.Key.Line, e.Key.Column
	r.row.Read()
	switch r.server.Transport {
	case switchboard.TransportHTTP:
		r.row.Require("url", "write the address of the server")
	case switchboard.TransportStdio:
		if !r.row.HasKey("package") {
			r.row.Require("command", "write the program and its arguments as a list")
		}
	}
	r.row.ReadLate()
}

// readTransport reads the transport, which stays "" after a fault. If it is unknown, the keys of both
// transports are read, to report their faults too.
func (r *serverRow) readTransport(v document.Value) {
	if v.Kind == document.KindText && v.Text == "sse" {
		v.Fault("%q is not written here; write http, and it is found out that the server speaks HTTP with SSE", v.Text)
		return
	}
	t, _ := v.OneOf("transport", string(switchboard.TransportHTTP), string(switchboard.TransportStdio))
	r.server.Transport = switchboard.Transport(t)
}

func (r *serverRow) forHTTP(key string, t document.Type) document.Type {
	return r.forTransport(switchboard.TransportHTTP, key, t)
}

func (r *serverRow) forStdio(key string, t document.Type) document.Type {
	return r.forTransport(switchboard.TransportStdio, key, t)
}

// forTransport returns t with a fault if the server has the other transport.
func (r *serverRow) forTransport(transport switchboard.Transport, key string, t document.Type) document.Type {
	return t.Wrap(func(v document.Value) bool {
		if is := r.server.Transport; is != "" && is != transport {
			v.Context = r.row.Context
			v.Fault("%q does not go with transport: %s; it is for transport: %s", key, is, transport)
			return false
		}
		return true
	})
}

// readHeaders reads the headers of a request. Their values are secrets.
func (f *configFolder) readHeaders(v document.Value) map[string]switchboard.Secret {
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
		s, ok := f.readSecret(e.Value, e.Name)
		if ok && !endpoint.HeaderValue(s.Reveal()) {
			e.Value.Fault("the value holds a line break or a control character, which no header can")
		}
		out[name] = s
	}
	return out
}

func (r *serverRow) readEnv(v document.Value) {
	v.Hidden = true
	out := map[string]switchboard.Secret{}
	for _, e := range v.ReadNamed(document.MaxItems, false) {
		e.Value.Context = v.Context + e.Key.ShownName() + ": "
		if !document.IsVariableName(e.Name) {
			e.Key.Fault("%s is no name of a variable; use letters, digits and _", e.Key.ShownName())
			continue
		}
		if why := switchboard.RefusedVariable(e.Name); why != "" && !slices.Contains(r.server.AllowEnv, e.Name) {
			e.Key.Fault("%s is not handed to a server: %s. If this server must have it, write allow_env: [%s]", e.Name, why, e.Name)
			continue
		}
		s, ok := r.readSecret(e.Value, e.Name)
		if ok && strings.Contains(s.Reveal(), "\x00") {
			e.Value.Fault("the value holds a NUL, which no variable can")
		}
		out[e.Name] = s
	}
	r.server.Env = out
}

// readAllowEnv reads the variables that the server receives although they are refused by default. A
// name without effect is a fault, because it would seem to have one.
func (r *serverRow) readAllowEnv(names []document.TextValue) {
	env, _ := r.row.Lookup("env")
	for _, name := range names {
		switch {
		case switchboard.RefusedVariable(name.String) == "":
			name.Fault("%s is not refused in env; remove it here", name.Shown())
		case !env.HasMember(name.String):
			name.Fault("%s is no variable of this server; write it into env in the same spelling, or remove it here", name.Shown())
		default:
			r.server.AllowEnv = append(r.server.AllowEnv, name.String)
		}
	}
	slices.Sort(r.server.AllowEnv)
}

func (r *serverRow) readCommand(v document.Value) {
	v.Hidden = true
	if v.Kind == document.KindText {
		v.Fault(`want a list, since no shell takes the text apart: command: [npx, -y, some-server]`)
		return
	}
	items := v.ReadList(endpoint.MaxArgs)
	if v.Kind == document.KindList && len(v.Items) == 0 {
		v.Fault("the list is empty; its first item is the program")
	}
	var out []string
	var places []placedName
	for i, item := range items {
		item.Context = fmt.Sprintf("%sitem %d: ", v.Context, i+1)
		if i > 0 && item.Kind == document.KindText && item.Quoted && item.Text == "" {
			out = append(out, "") // a quoted empty text is an argument
			continue
		}
		arg, ok := r.readArgument(item)
		if !ok {
			continue
		}
		// The path of a program is relative to the file, and not to the folder that Switchboard was
		// started in.
		if i > 0 {
			places = append(places, placedName{item, arg})
		}
		if i == 0 && strings.ContainsRune(filepath.ToSlash(arg), '/') {
			arg = endpoint.Absolute(r.absDir, arg)
		}
		out = append(out, arg)
	}
	if flag := shellFlag(out); flag != "" {
		v.Warn("%s takes a text and runs it as a command, whatever it holds; name the program and its arguments in the list", flag)
	} else if name, pinned := floatingPackage(out); name != "" {
		v.Warn("%s names no exact version, so each start may run another program; write %s", document.Shown(name), document.Shown(pinned))
	}
	if fetched, _ := fetchedPackage(out); fetched != "" {
		if i := slices.IndexFunc(places, func(p placedName) bool { return strings.HasSuffix(p.name, fetched) }); i >= 0 {
			r.packages = append(r.packages, placedName{places[i].at.WithContext("%s", v.Context), barePackage(fetched)})
		}
	}
	r.server.Command = out
}

func (r *serverRow) readDir(v document.Value) {
	if d, ok := r.readArgument(v); ok {
		r.server.Dir = endpoint.Absolute(r.absDir, d)
	}
}

// readArgument reads a command argument. Every user of the machine can see it.
func (r *serverRow) readArgument(v document.Value) (string, bool) {
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
		case "env", "file", "secret":
			v.Fault("${%s:…} is not read here, since every user of the machine can see the arguments of a program; hand the value over in env", p.Kind)
			return "", false
		case "workspace":
			b.WriteString(r.absDir)
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

func (r *serverRow) readMaxTimeout(v document.Value) {
	s, ok := r.server, false
	s.MaxTimeout, ok = v.ReadDuration(MinTimeout, longestTimeout)
	if least := cmp.Or(s.Timeout, switchboard.DefaultTimeout); ok && s.MaxTimeout < least {
		v.Fault("%v is less than the timeout, %v, which a call that makes progress has at least", s.MaxTimeout, least)
	}
}

// probeKeys are the keys of how a server is probed.
func (r *serverRow) probeKeys() *document.Keys {
	p := &r.server.Probe
	return &document.Keys{
		Rows: []document.Row{
			{Key: "every", Type: document.Duration(time.Second, time.Hour, &p.Every), Doc: "The interval of probes while no client calls the server; 30s if absent."},
			{Key: "timeout", Type: document.Duration(100*time.Millisecond, time.Minute, &p.Timeout), Doc: "The time limit of one probe; 5s if absent."},
			{Key: "path", Type: document.Text("a path", r.readProbePath), Doc: "For http: a probe also requests this path, at the address of `url` and without `headers`; a status of 200 to 299 is healthy."},
			{Key: "call", Type: document.Map(func() *document.Keys {
				return &document.Keys{Rows: []document.Row{
					{Key: "tool", Type: document.Text("the name of a tool", func(v document.Value, s string) {
						if why := badToolName(s); why != "" {
							v.Fault("%s: %s", v.Shown(), why)
						}
						p.Tool = s
					}), Required: "name a tool of the server's that only reads", Doc: "The tool. It must be readonly by your overlay, or by a server with `trust: operator`."},
					{Key: "arguments", Type: document.Custom("a map of any shape", document.Schema{"type": "object"}, func(v document.Value) { p.Arguments = v.ReadJSONMap() }), Doc: "Its arguments."},
				}}
			}, nil), Doc: "A probe also calls this tool. An answer with isError is not healthy."},
		},
		Hints: map[string]string{"interval": `write "every"`, "url": `write "path"`, "tool": `write call: {tool: NAME}`},
	}
}

func (r *serverRow) readProbePath(v document.Value, s string) {
	u, err := url.Parse(s)
	switch {
	case r.server.Transport == switchboard.TransportStdio:
		v.Fault("a program has no path; this is for transport: http")
	case err != nil || !strings.HasPrefix(s, "/") || strings.HasPrefix(s, "//") || u.Fragment != "":
		v.Fault("%s is no path; write one such as /healthz, which is asked for at the server's address", v.Shown())
	default:
		r.server.Probe.Path = s
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

// isTerm reports whether s can be the name of a class, resource or constraint. If it cannot, that is a
// fault.
func isTerm(v document.Value, s string) bool {
	if badTerm(s) {
		v.Fault("%s: use at most 64 lower-case letters and digits, in words parted by _ or -", v.Shown())
		return false
	}
	return true
}

// IsTerm reports whether s can be the name of a resource or of a constraint.
func IsTerm(s string) bool { return !badTerm(s) }

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
