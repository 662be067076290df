package config

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of switchboard.yaml.
const (
	maxServers = 2000
	maxTenants = 1000
)

// mainFile is the state of reading switchboard.yaml.
type mainFile struct{ *loader }

// keys are the keys of switchboard.yaml.
func (f mainFile) keys() *document.Keys {
	cfg := f.cfg
	return &document.Keys{
		Rows: []document.Row{
			// secrets is the first row, because references in the others are resolved with it.
			{Key: "secrets", Type: document.Named("a map from name to command", "NAME", secretKeysForDocs, (&printedReader{f.loader}).read), Doc: "Secrets that commands print, such as the client of a KMS. `${secret:NAME}` refers to one, wherever `${env:NAME}` and `${file:PATH}` may stand."},
			{Key: "listen", Type: document.Text("an address and a port", f.readListen), Doc: "The address of the HTTP endpoint, `" + DefaultListen + "` if absent. Any address but a loopback one needs a key of a tenant. It is read at the start."},
			{Key: "tls", Type: document.Map(f.listenerKeys(&cfg.TLS)), Doc: "The certificate of the HTTP endpoint at `listen`, which is then served with TLS only. The files are read again when they change."},
			{Key: "hosts", Type: document.Texts("a list of host names", f.readHosts), Doc: "Further accepted values of the Host header, besides the loopback names."},
			{Key: "origins", Type: document.Texts("a list of origins", f.readOrigins), Doc: "Further accepted values of the Origin header."},
			{Key: "start_deadline", Type: document.Duration(100*time.Millisecond, 10*time.Minute, &cfg.StartDeadline), Doc: "How long /readyz and a reload wait for servers; 10s if absent."},
			{Key: "grace", Type: document.Duration(time.Second, time.Hour, &cfg.Grace), Doc: "The time limit for stopping; 10s if absent."},
			{Key: "servers", Type: document.Named("a map from id to server", "ID", serverKeysForDocs, f.readServers), Required: "name at least one MCP server", Doc: "The MCP servers."},
			{Key: "tenants", Type: document.Named("a map from id to tenant", "ID", func() *document.Keys { return f.tenantKeys("", &bound{}) }, f.readBounds), Late: true, Doc: "What each tenant may use at most. Without this key there is one tenant, `default`, with every server."},
			{Key: "admission", Type: document.Map(admissionKeys(&cfg.Admission), nil), Doc: "What is let in of the servers' offers without a person. [Admission](admission.md) explains it. A server may say something else."},
			{Key: "token_budget", Type: budgetType(func(v document.Value) { f.tokenBudget = readTokenBudget(v, 0, "") }), Doc: "The most tokens of a task's tool list, for tenants without a token_budget in their row."},
			{Key: "currency", Type: currencyType(&cfg.Currency), Doc: "The currency of all prices and budgets, three letters such as `EUR`. It is only shown: nothing is converted."},
			{Key: "budgets", Type: budgetsType(func(v document.Value) { f.budgetRows = v }), Doc: "Budgets of all tenants. Each tenant has the whole limit of each."},
			{Key: "approvals", Type: approvalsType(&f.approvals), Doc: "How people are asked for their approval, for tenants that say nothing else in their row."},
			{Key: "lazy", Type: document.Map(f.lazyKeys, nil), Doc: "How tokens are counted, and what happens if the budget is full."},
			{Key: "store", Type: document.Custom("`file:PATH`, `memory:` or the address of a Redis", document.Schema{"type": "string", "minLength": 1}, f.readStore), Doc: "Where the data is that must survive the process. A password in it is a secret: write the whole address as `${file:PATH}` or `${env:NAME}`."},
			{Key: "durability", Type: document.Custom("one of `strict`, `relaxed`", document.Schema{"enum": []string{"strict", "relaxed"}}, f.readDurability), Doc: "`strict` (the default) refuses a Redis that may lose acknowledged writes; `relaxed` accepts the loss."},
			{Key: "cluster", Type: document.Map(f.clusterKeys, f.checkCluster), Doc: "How replicas that share a Redis reach each other: required with a Redis, and a fault without one."},
			{Key: "cache", Type: document.Map(f.cacheKeys, nil), Doc: "Caches results of deterministic tools; without this key there is no cache."},
			{Key: "vault", Type: document.Map(vaultReader(f).keys, nil), Doc: "How the tokens for servers are sealed in the store. Without this key, Switchboard makes a key file in the data folder; with a Redis it is required where a server has a `credential`."},
			{Key: "receipts", Type: document.Map(f.receiptKeys, nil), Doc: "How long receipts are kept, and where checkpoints are written. It is read at the start."},
			{Key: "log", Type: document.Map(f.logKeys, nil), Doc: "The form of the log output, how much there is of it, and where it goes."},
			{Key: "policies", Type: document.Map(f.policyKeys, nil), Doc: "How policies apply."},
			{Key: "issuers", Type: document.Named("a map from id to issuer", "ID", func() *document.Keys { return (&issuerReader{loader: f.loader}).keys() }, (&issuerReader{loader: f.loader}).read), Doc: "The OpenID providers at which people sign in."},
			{Key: "operators", Type: document.MapList("a list of maps", func() *document.Keys { return (&personReader{loader: f.loader}).keys() }, f.readOperators), Doc: "Who may do everything at the admin side, except approve: holders of persons' keys, and people for whom an issuer states a claim. Without any, whoever can read the data folder is the operator, and stays so."},
			{Key: "notify", Type: document.Named("a map from name to recipient", "NAME", func() *document.Keys { return (&recipientReader{loader: f.loader}).keys() }, (&recipientReader{loader: f.loader}).read), Late: true, Doc: "Who is told, by webhooks, of calls that wait for an approval, of budgets and of what policies oblige to. [Notices](notices.md) says what they contain."},
			{Key: "registries", Type: document.MapList("a list of maps", func() *document.Keys { return (&listReader{loader: f.loader}).keys() }, (&listReader{loader: f.loader}).read), Doc: "The registries of MCP servers in which servers are looked for, at most 8. Without this key there is none, and no registry is asked. What a registry says never becomes a command."},
			{Key: "admin", Type: document.Map(f.adminKeys, nil), Doc: "How people reach the admin side, and what they may change there."},
		},
		Later: []string{"identity", "telemetry", "defaults", "limits", "url", "capabilities", "health"},
		Hints: map[string]string{
			"operator": `write "operators"`, "webhooks": `write "notify"`, "registry": `write "registries"`, "admins": `write "operators"; the admins of a tenant are members in its file`, "approvers": "they stand in the row of their tenant", "members": "they stand in tenants/<id>/tenant.yaml",
			"mcpServers": "bring the servers of another program in with `switchboard import FILE`", "context_servers": "bring the servers of another program in with `switchboard import FILE`",
			"taxonomy": "it has a file of its own, taxonomy.yaml", "overlays": "they have a folder of their own, overlays/",
			"tasks": "they stand in tenants/<id>/tasks/", "tenant": `write "tenants"`, "server": `write "servers"`,
		},
	}
}

// read reads switchboard.yaml.
func (f mainFile) read(ctx context.Context) {
	l := f.loader
	l.printed.ctx = ctx
	defer l.printed.wait()
	l.cfg.Implied = true
	data, err := l.readMain(document.MaxFileBytes)
	if err != nil {
		l.sink.Add(Fault{File: l.file, Text: "this cannot be read: " + document.ErrorText(err)})
		return
	}
	l.printed.text = data
	doc, ok := document.ReadYAML(l.file, data, l.sink)
	if !ok {
		return
	}
	top, ok := doc.Open(f.keys())
	if !ok {
		return
	}
	l.readable = true
	top.Read()
	for id := range l.servers {
		l.serverIDs = append(l.serverIDs, id)
	}
	slices.Sort(l.serverIDs)
	for _, id := range l.serverIDs {
		if !l.disabled[id] {
			s := *l.servers[id]
			s.Admission = effectiveRules(s.Admission, l.cfg.Admission)
			l.cfg.Servers = append(l.cfg.Servers, s)
		}
	}
	if at, ok := top.Lookup("store"); ok && l.cfg.Store.Shared() && !top.HasKey("cluster") {
		at.Hidden = true
		at.Fault("replicas that share a store reach each other, and have to know that they may: cluster: {secret: \"${file:/path}\"}")
	}
	if at, ok := top.Lookup("store"); ok && l.cfg.Store.Shared() && !top.HasKey("vault") && slices.ContainsFunc(l.cfg.Servers, func(s switchboard.Server) bool { return s.Credential.Kind != "" }) {
		at.Hidden = true
		at.Fault("the tokens for servers with a credential are kept in the Redis that replicas share, sealed with a secret that it does not have: vault: {key: \"${file:/path}\"}")
	}
	checkPermitted(f)
	l.noTenantRows = !top.HasKey("tenants")
	top.ReadLate()
	f.checkAdmin()
}

func (f mainFile) readListen(v document.Value, s string) {
	if isAddress(v, s) {
		f.cfg.Listen, f.listens.agents = s, v
	}
}

func (f mainFile) readHosts(texts []document.TextValue) {
	for _, t := range texts {
		if why := badHost(t.String); why != "" {
			t.Fault("%s: %s", t.Shown(), why)
		}
		f.cfg.Hosts = append(f.cfg.Hosts, t.String)
	}
}

func (f mainFile) readOrigins(texts []document.TextValue) {
	for _, t := range texts {
		if why := badOrigin(t.String); why != "" {
			t.Fault("%s: %s", t.Shown(), why)
		}
		f.cfg.Origins = append(f.cfg.Origins, t.String)
	}
}

func (f mainFile) lazyKeys() *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "tokenizer", Type: document.OneOf("tokenizer", func(s string) { f.cfg.Tokenizer = s }, switchboard.Tokenizers...), Doc: "The vocabulary that counts tokens; the first one if absent."},
			{Key: "on_full", Type: onFullType(&f.onFull), Doc: "What happens to an expansion that exceeds the budget: it is refused (the default), or the expanded tools with the oldest last use are collapsed."},
		},
		Hints: map[string]string{"token_budget": "it stands beside \"lazy\""},
	}
}

func (f mainFile) cacheKeys() *document.Keys {
	c := &f.cfg.Cache
	return &document.Keys{
		Rows: []document.Row{
			{Key: "ttl", Type: document.Duration(time.Second, 24*time.Hour, &c.TTL).With(func(v document.Value) {
				c.Bytes = DefaultCacheBytes
				c.TTL, _ = v.ReadDuration(time.Second, 24*time.Hour)
			}), Required: "say how long a result may be given again, such as 10m", Doc: "How long the cache may return a result of a deterministic tool again."},
			{Key: "bytes", Type: document.Size(1<<20, 1<<30, &c.Bytes), Doc: "The size of the cache for each tenant; 64MiB if absent."},
		},
		Later: []string{"tools", "servers"},
	}
}

func (f mainFile) logKeys() *document.Keys {
	l := &f.cfg.Log
	return &document.Keys{
		Rows: []document.Row{
			{Key: "format", Type: document.OneOf("format", func(s string) { l.Format = s }, LogText, LogJSON), Doc: "`text` (the default), or `json`: one JSON object a line."},
			{Key: "level", Type: document.OneOf("level", func(s string) { _ = l.Level.UnmarshalText([]byte(s)) }, "debug", "info", "warn", "error"), Doc: "Records below this level are left out; `info` if absent. With the flag -v it is `debug`."},
			{Key: "to", Type: document.Text("`stderr` or a path", func(_ document.Value, s string) {
				switch {
				case s == "stderr":
					s = ""
				case !filepath.IsAbs(s):
					s = filepath.Join(f.absDir, s)
				}
				l.To = s
			}), Doc: "`stderr` (the default), or a file to append to. It is rotated once, at 64 MiB; another program may rotate it too."},
		},
		Hints: map[string]string{"file": `write "to"`, "path": `write "to"`, "output": `write "to"`},
	}
}

func (f mainFile) policyKeys() *document.Keys {
	return &document.Keys{Rows: []document.Row{
		{Key: "veto", Type: document.OneOf("scope", func(s string) { f.vetoForTask = s == "task" }, "requirement", "task"), Doc: "The scope of a veto: the requirement that policy was asked about (the default), or the whole task."},
	}}
}

func (f mainFile) clusterKeys() *document.Keys {
	c := &f.cfg.Cluster
	return &document.Keys{Rows: []document.Row{
		{Key: "secret", Type: document.Custom("a text with a reference", document.Schema{"type": "string", "minLength": 1}, func(v document.Value) {
			v.Hidden = true
			secret, ok := f.readSecret(v, "secret")
			if ok && len(secret.Reveal()) < minClusterSecret {
				v.Fault("the secret is shorter than %d bytes", minClusterSecret)
			}
			c.Secret = secret
		}), Required: "make one that all replicas get, such as with openssl rand -hex 32, and write ${file:/path} or ${env:NAME}", Doc: "At least 16 bytes, known to all replicas and to no other program. Replicas authenticate each other with it, and seal their values in Redis."},
		{Key: "listen", Type: document.Text("an address and a port", func(v document.Value, s string) {
			if isAddress(v, s) {
				c.Listen = s
			}
		}), Doc: "The address at which this replica listens for the others; `" + DefaultClusterListen + "` if absent."},
		{Key: "advertise", Type: document.Text("`HOST:PORT`", func(v document.Value, s string) {
			if host, port, err := net.SplitHostPort(s); err != nil || host == "" || port == "" {
				v.Fault("%s: want HOST:PORT, by which the other replicas reach this one", v.Shown())
			}
			c.Advertise = s
		}), Doc: "The address at which the others reach this replica. If absent, the address in `listen`; if that means every address of the machine, the first one that is not loopback."},
	}}
}

// checkCluster reports a fault if the store is not shared.
func (f mainFile) checkCluster(m document.FixedMap) {
	if !f.cfg.Store.Shared() {
		m.Fault("this is of replicas that share a store, and this store has room for one: store: redis://…")
	}
	if f.cfg.Cluster.Listen == "" {
		f.cfg.Cluster.Listen = DefaultClusterListen
	}
}

func (f mainFile) receiptKeys() *document.Keys {
	r := &f.cfg.Receipts
	return &document.Keys{Rows: []document.Row{
		{Key: "keep", Type: document.Duration(time.Hour, 10*365*24*time.Hour, &r.Keep), Doc: "How long receipts are kept; 720h if absent."},
		{Key: "max_size", Type: document.Size(1<<20, 1<<40, new(int)).With(func(v document.Value) {
			if n := v.ReadSize(1<<20, 1<<40); n > 0 {
				r.MaxSize = int64(n)
			}
		}), Doc: "The largest size of a chain; 4GiB if absent."},
		{Key: "anchor", Type: document.Text("a path", func(_ document.Value, s string) {
			if !filepath.IsAbs(s) {
				s = filepath.Join(f.absDir, s)
			}
			r.Anchor = s
		}), Doc: "A file outside the store to which checkpoints are appended. If absent, they are only in the log."},
	}}
}

// readStore reads the URL of the store. Faults repeat only its scheme.
func (f mainFile) readStore(v document.Value) {
	v.Hidden = true
	url, ok := f.readSecret(v, "store")
	text := url.Reveal()
	scheme, known := "", false
	for _, s := range storeSchemes {
		if strings.HasPrefix(text, s) {
			scheme, known = s, true
		}
	}
	switch {
	case !ok:
	case !known:
		v.Fault("want file:PATH, memory: or an address that begins with redis:// or rediss://")
	case scheme == "memory:" && text != scheme, scheme == "file:" && text == scheme:
		v.Fault("want file:PATH, with a path, or memory: alone")
	case scheme == "file:":
		path := strings.TrimPrefix(text, scheme)
		if !filepath.IsAbs(path) {
			path = filepath.Join(f.absDir, path)
		}
		f.cfg.Store.URL = switchboard.NewSecret(scheme + path)
	default:
		f.cfg.Store.URL = url
		warnAboutRedis(v, text)
	}
}

func (f mainFile) readDurability(v document.Value) {
	switch s, ok := v.ReadText(); {
	case !ok:
	case s == "relaxed":
		f.cfg.Store.Relaxed = true
	case s != "strict":
		v.Fault("%s: want strict, or relaxed: then a Redis will do that may lose what it has acknowledged", v.Shown())
	}
}

// onFullType is the type of on_full.
func onFullType(to *switchboard.OnFull) document.Type {
	return document.OneOf("way", func(s string) { *to = switchboard.OnFull(s) }, string(switchboard.OnFullRefuse), string(switchboard.OnFullCollapse))
}

// budgetType is the type of a token budget.
func budgetType(read func(v document.Value)) document.Type {
	return document.Integer(1, maxBudget, new(int)).With(read)
}

// resultBytesType is the type of a limit of results.
func resultBytesType(read func(v document.Value)) document.Type {
	return document.Size(minResultBytes, maxResultBytes, new(int)).With(read)
}
