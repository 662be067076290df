package config

import (
	"maps"
	"path"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// fileKeys are the keys of tenant.yaml.
func (t *tenantFolder) fileKeys() *document.Keys {
	out := t.out
	return &document.Keys{
		Rows: []document.Row{
			{Key: "tenant", Type: document.Text("the name of the folder", func(v document.Value, s string) {
				if id := string(out.ID); s != id {
					v.Fault("%s stands in the folder of %q; they must be the same", v.Shown(), id)
				}
			}), Doc: "The id of the tenant, as the folder."},
			{Key: "servers", Type: document.Texts("a list of servers", func(texts []document.TextValue) {
				t.servers = t.readNarrowedServers(texts, t.bound)
				out.Servers = t.enabledServers(t.servers)
			}), Doc: "The servers that the tenant uses, within its bound; * matches any text. All of the bound if absent."},
			{Key: "trial", Type: document.Texts("a list of tools", t.readNarrowedTrial), Doc: "The tools in state `testing` that the tenant's runs may use, within the operator's bound: `SERVER` or `SERVER/TOOL`, in which * matches any text. All of the bound if absent."},
			{Key: "mode", Type: modeType(func(v document.Value) { out.Mode = readMode(v, "") }), Doc: "How much agents may do alone: `observe` (only read), `assist` (changes need approval) or `autopilot` (everything that policies allow; the default)."},
			{Key: "flows", Type: flowsType(func(v document.Value) { out.Flows = readFlows(v, t.bound.flows) }), Doc: "What happens to a call that carries data out, in a run that has touched private data and text of strangers: `record` (the default: the receipt says it, and the mode decides), `ask` (a person is asked) or `never`. At least as strict as the operator's."},
			{Key: "default_task", Type: document.Custom("a task", document.Schema{"type": "string"}, func(v document.Value) { out.DefaultTask = t.readTaskName(v) }), Late: true, Doc: "The task of clients that name none."},
			{Key: "ranking", Type: document.Map(t.rankingKeys, nil), Late: true, Doc: "Which of the candidates come first."},
			{Key: "limits", Type: document.MapList("a list of maps", func() *document.Keys { return t.limitKeys(&switchboard.Limit{}, nil) }, t.readLimits), Late: true, Doc: "The rate limit of each tool with a constraint. Without a limit for `rate_limited`, 60/min with a burst of 10 counts."},
			{Key: "budgets", Type: budgetsType(func(v document.Value) {
				out.Budgets = slices.Concat(out.Budgets, t.readBudgets(v, switchboard.OwnerTenant, t.servers))
			}), Late: true, Doc: "The tenant's own budgets. Those of the operator count besides."},
			{Key: "approvals", Type: document.Map(func() *document.Keys { return tighterApprovalKeys(&out.Approvals) }, nil), Doc: "How people are asked for their approval. The tenant may only tighten what the operator says."},
			{Key: "policy", Type: document.Custom("a map of any shape", document.Schema{"type": "object"}, func(v document.Value) { out.Policy = v.ReadJSONMap() }), Doc: "Settings of the tenant for policies, `input.tenant_policy`: at most 64 KiB and 16 deep."},
			{Key: "record", Type: document.OneOf("kind of record", func(s string) { out.RecordInputs = s == "policy_inputs" }, "policy_inputs"), Doc: "Records the arguments that rules of policies read, so that policy diff can judge the calls again. If absent, only a digest is recorded."},
			{Key: "receipt_ids", Type: document.Bool(&out.ReceiptIDs), Doc: "`true`: each result of a call names its receipt in `_meta`. If absent, only if the call asks for it."},
			{Key: "keys", Type: document.MapList("a list of maps", func() *document.Keys { return (&keyReader{tenantFolder: t}).keys() }, t.readKeys), Late: true, Doc: "The API keys. `switchboard key new` makes a key and prints its row."},
			{Key: "members", Type: document.MapList("a list of maps", func() *document.Keys { return (&personReader{loader: t.loader, bound: t.bound}).keys() }, t.readMembers), Late: true, Doc: "Who holds an office here, and who may call tools on the page. `switchboard key new --office viewer` makes a person's key and prints its row."},
			{Key: "token_budget", Type: budgetType(func(v document.Value) {
				out.TokenBudget = readTokenBudget(v, out.TokenBudget, "the operator gives this tenant")
			}), Doc: "The most tokens of a task's tool list, at most the operator's bound, which counts if this is absent."},
			{Key: "result_bytes", Type: resultBytesType(func(v document.Value) {
				out.ResultBytes = readResultBytes(v, out.ResultBytes, "the operator gives this tenant")
			}), Doc: "The most bytes of text that a client gets of one result at once, at most the operator's bound, which counts if this is absent."},
			{Key: "lazy", Type: document.Map(func() *document.Keys {
				return &document.Keys{
					Rows:  []document.Row{{Key: "on_full", Type: onFullType(&out.OnFull), Doc: "What happens to an expansion that exceeds the budget; as the operator says if absent."}},
					Hints: map[string]string{"tokenizer": hintOperator},
				}
			}, nil), Doc: "What happens if the budget is full."},
		},
		Later: []string{"obligations", "cache", "redact"},
		Hints: map[string]string{"admission": hintOperator, "allow": hintOperator, "declare": hintOperator, "request": hintOperator, "trust": hintOperator + "; what a tenant asks of trust stands under policy: trust", "permissions": hintOperator, "models": hintOperator, "tasks": "they stand in tenants/<id>/tasks/", "id": `write "tenant"`, "policies": "they stand in tenants/<id>/policies/", "roles": "the operator says it, in switchboard.yaml; a key names its own", "tier": "the operator says it, in switchboard.yaml; a key names its own"},
	}
}

const hintOperator = "only the operator says it, in switchboard.yaml"

// readTenantFolder reads the folder of one tenant into its part.
func (l *loader) readTenantFolder(id, folder string, p *partState) {
	b, ok := l.bounds[id]
	if !ok {
		b = &bound{rowUnreadable: true}
		if l.readable {
			l.fault(folder, "the tenant has nothing, since switchboard.yaml has no row for it; add tenants: {%s: {servers: [%s]}}%s", id, "…", suggestTenant(id, l.bounds))
			// Without this, each other fault would say that the tenant asks for more than nothing.
			b.servers, b.byName = l.serverIDs, true
		}
	}
	t := &tenantFolder{loader: l, part: p, bound: b, servers: b.servers, tasks: map[string]document.Value{}, tools: map[switchboard.ToolID]document.Value{}}
	l.tenantFolders = append(l.tenantFolders, t)
	if t.out = l.cfg.Tenants[switchboard.TenantID(id)]; t.out == nil {
		t.out = &switchboard.Tenant{ID: switchboard.TenantID(id), Tasks: map[switchboard.TaskID]*switchboard.Task{}, Overlays: map[switchboard.ToolID]switchboard.Overlay{}}
	}
	t.keysUnknown = true // until its file is read
	defer l.enterFolder(folder)()
	names, _ := l.listFolder(folder)
	for _, n := range names {
		if !slices.Contains(tenantFiles, n) {
			l.fault(path.Join(folder, n), "this is not read%s", document.Suggestion(n, "names", tenantFiles))
		}
	}
	t.policies = l.readPolicies(path.Join(folder, "policies"))
	l.checkPolicies(t)

	// tenant.yaml comes first, because it narrows what tasks may use. Its references to tasks are late: they are
	// checked after the tasks.
	var top document.FixedMap
	file := path.Join(folder, "tenant.yaml")
	t.keysUnknown = l.exists(file)
	if t.keysUnknown {
		if doc, ok := l.readDocument(file); ok {
			top, ok = doc.Open(t.fileKeys())
			t.keysUnknown = !ok || top.HasKey("keys")
		}
	}
	top.Read()
	for _, doc := range l.readDocuments(path.Join(folder, "tasks")) {
		t.readTask(doc)
	}
	for _, doc := range l.readDocuments(path.Join(folder, overlaysFolder)) {
		r := overlayReader{loader: l, source: switchboard.FromTenantOverlay, known: t.servers, seen: t.tools, out: t.out.Overlays}
		r.readFile(doc)
	}
	top.ReadLate()
}

// limitKeys are the keys of a rate limit. first holds where each constraint has its limit.
func (t *tenantFolder) limitKeys(limit *switchboard.Limit, first map[switchboard.Constraint]document.Value) *document.Keys {
	match := func() *document.Keys {
		return &document.Keys{
			Rows: []document.Row{
				{Key: "constraint", Type: document.Custom("a constraint", document.Schema{"type": "string"}, func(v document.Value) {
					limit.Constraint = t.readConstraint(v)
					if at, ok := first[limit.Constraint]; ok {
						v.Fault("%s has a limit already, at line %d", v.Shown(), at.Line)
					}
					first[limit.Constraint] = v
				}), Required: "name the constraint of the tools that are counted", Doc: "The constraint of the tools that are counted."},
			},
			Later: []string{"cost_class", "side_effects", "risk_level", "verb", "resource", "server", "tool", "capability"},
		}
	}
	return &document.Keys{
		Rows: []document.Row{
			{Key: "match", Type: document.Map(match, nil), Required: "say which calls are counted: match: {constraint: rate_limited}", Doc: "Which calls are counted."},
			{Key: "rate", Type: document.Custom("a rate such as `60/min`", document.Schema{"type": "string", "pattern": `^[1-9][0-9]*/(s|min|h|d)$`}, func(v document.Value) { limit.Every = readRate(v) }), Required: "write a number of calls in a time, such as 60/min", Doc: "A number of calls per `s`, `min`, `h` or `d`."},
			{Key: "burst", Type: document.Integer(1, 1_000_000, &limit.Burst).With(func(v document.Value) {
				limit.Burst = v.ReadInteger(1, 1_000_000)
				if most := switchboard.MaxRefill / max(limit.Every, 1); limit.Burst > int(most) {
					v.Fault("so many calls take more than ten years to be earned at that rate; at most %d", most)
				}
			}), Doc: "The most calls at once; 1 if absent."},
		},
		Hints: map[string]string{"limit": "a limit in each window of time is a budget; write it under \"budgets\"", "window": "a limit in each window of time is a budget; write it under \"budgets\""},
	}
}

// readLimits reads how often a tenant may call.
func (t *tenantFolder) readLimits(v document.Value) {
	first := map[switchboard.Constraint]document.Value{}
	for _, item := range v.ReadList(document.MaxItems) {
		limit := switchboard.Limit{Burst: 1}
		if m, ok := item.Open(t.limitKeys(&limit, first)); ok {
			m.Read()
			t.out.Limits = append(t.out.Limits, limit)
		}
	}
}

// keyReader is the state of reading one API key.
type keyReader struct {
	*tenantFolder
	key  Key
	next [32]byte
	seen map[string]document.Value // ids of the tenant's keys
}

// keys are the keys of an API key's row.
func (r *keyReader) keys() *document.Keys {
	k, t := &r.key, r.tenantFolder
	return &document.Keys{
		Rows: []document.Row{
			{Key: "id", Type: document.Text("an id", r.readID), Required: "name who calls with the key", Doc: "The caller; not `local`, the id of callers without a key."},
			{Key: "hash", Type: document.Custom("`sha256:` and 64 hexadecimal digits", document.Schema{"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}, func(v document.Value) {
				v.Hidden = true
				if h, ok := readKeyHash(v); ok && t.assignKey(h, v, t) {
					k.Hash = h
				}
			}), Required: "make a key with `switchboard key new`, which prints its hash", Doc: "The SHA-256 of the key. The key itself stands in no file."},
			{Key: "next", Type: document.Custom("`sha256:` and 64 hexadecimal digits", document.Schema{"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}, func(v document.Value) {
				v.Hidden = true
				if h, ok := readKeyHash(v); ok && t.assignKey(h, v, t) {
					r.next = h
				}
			}), Doc: "The hash of the key that replaces this one, from `switchboard key rotate`. Both count."},
			{Key: "tasks", Type: document.Texts("a list of tasks", func(texts []document.TextValue) { k.Tasks = t.readTaskNames(texts) }), Doc: "The tasks that it may bind; only the default task if absent."},
			{Key: "roles", Type: document.Texts("a list of roles", func(texts []document.TextValue) { k.Roles = t.readGivenRoles(texts) }), Doc: "Its roles, out of those that the operator gives the tenant; none if absent."},
			{Key: "tier", Type: document.Text("a tier", func(v document.Value, s string) {
				if t.bound.checkGiven(v, s, "tier", t.bound.tiers) {
					k.Tier = s
				}
			}), Doc: "Its tier, out of those that the operator gives the tenant; the first if absent."},
			{Key: "mode", Type: modeType(func(v document.Value) { k.Mode = readMode(v, k.Mode) }), Doc: "How much agents may do alone with this key, at most the tenant's mode."},
			{Key: "expires", Type: document.Custom("a day or a time", document.Schema{"type": "string"}, func(v document.Value) { k.Expires = readExpiry(v) }), Doc: "The last day of the key, in UTC, or a time such as `2027-03-31T18:00:00Z`."},
		},
		Hints: map[string]string{"key": "write the hash of the key, as `switchboard key new` prints it; the key itself stands in no file", "principal": `write "id"`},
	}
}

func (r *keyReader) readID(v document.Value, s string) {
	r.key.ID = s
	if err := switchboard.CheckID(s); err != nil {
		v.Fault("%v", err)
	} else if s == switchboard.LocalID {
		v.Fault("%s is whoever calls without a key, over stdio or while there are none; name the key otherwise", v.Shown())
	} else if at, ok := r.seen[s]; ok {
		v.Fault("%s is the id of another key, at line %d", v.Shown(), at.Line)
	}
	r.seen[s] = v
}

// readKeys reads the hashes of a tenant's API keys.
func (t *tenantFolder) readKeys(v document.Value) {
	seen := map[string]document.Value{}
	for _, item := range v.ReadList(document.MaxItems) {
		r := &keyReader{tenantFolder: t, seen: seen, key: Key{Tenant: t.out.ID, Tier: t.bound.defaultTier(), Mode: t.out.Mode.Narrower(switchboard.Autopilot)}}
		m, ok := item.Open(r.keys())
		if !ok {
			continue
		}
		m.Read()
		if r.key.ID != "" && r.key.Hash != ([32]byte{}) {
			t.keys = append(t.keys, r.key) // even if the rest is faulty, so that its caller is told so
		}
		if r.key.ID != "" && r.next != ([32]byte{}) {
			r.key.Hash = r.next
			t.keys = append(t.keys, r.key)
		}
	}
}

// flowsType is the type of what happens to calls that carry data out.
func flowsType(read func(document.Value)) document.Type {
	return document.OneOf("flows value", nil, textsOf(switchboard.AllFlowsSettings)...).With(read)
}

// modeType is the type of a mode.
func modeType(read func(v document.Value)) document.Type {
	known := make([]string, len(switchboard.Modes))
	for i, m := range switchboard.Modes {
		known[i] = string(m)
	}
	return document.OneOf("mode", nil, known...).With(read)
}

// verbType is the type of a verb.
func verbType(to *switchboard.Verb) document.Type {
	known := make([]string, len(switchboard.Verbs))
	for i, verb := range switchboard.Verbs {
		known[i] = string(verb)
	}
	return document.OneOf("verb", func(s string) { *to = switchboard.Verb(s) }, known...)
}

// tenantKeys are the keys of a tenant's row in switchboard.yaml.
func (f mainFile) tenantKeys(id switchboard.TenantID, b *bound) *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "servers", Type: document.Texts("a list of servers", nil).With(func(v document.Value) { b.servers = f.readServerPatterns(v, f.serverIDs) }), Required: `name the servers that it may use at most; servers: ["*"] for all`, Doc: "All servers that the tenant may use; * matches any text."},
			{Key: "trial", Type: document.Texts("a list of tools", func(texts []document.TextValue) { b.trial = f.readTrial(texts, b.servers) }), Doc: "The tools in state `testing` that the tenant's runs may use: `SERVER` or `SERVER/TOOL`, in which * matches any text. None if absent."},
			{Key: "allow", Type: document.Texts("a list of `by_name`", func(texts []document.TextValue) {
				for _, t := range texts {
					if s, ok := t.OneOf("permission", "by_name"); ok {
						b.byName = b.byName || s == "by_name"
					}
				}
			}), Doc: "`[by_name]`: its tasks may name tools, and need no capability."},
			{Key: "tier", Type: document.Custom("a text, or a list of texts", document.Schema{"type": []string{"string", "array"}, "items": document.Schema{"type": "string"}}, func(v document.Value) { b.tiers = readTiers(v) }), Doc: "The tier of its principals, an input of policies; or a list of tiers from which its keys choose one. A key without a tier has the first."},
			{Key: "roles", Type: document.Texts("a list of roles", func(texts []document.TextValue) { b.roles = sortedTexts(texts) }), Doc: "The roles that its keys may have, an input of policies."},
			{Key: "offices", Type: document.Texts("a list of offices", b.readGivenOffices), Doc: "The offices that the tenant's file may give to members: `admin`, `author`, `viewer`. None if absent."},
			{Key: "approvers", Type: document.MapList("a list of maps", func() *document.Keys { return (&personReader{loader: f.loader}).keys() }, func(v document.Value) { f.readApprovers(v, id) }), Doc: "Who decides about waiting calls of the tenant: holders of persons' keys, and people for whom an issuer states a claim. Only this row says who does."},
			{Key: "issuers", Type: document.Texts("a list of issuers", func(texts []document.TextValue) {
				for _, t := range texts {
					if s := f.readIssuerName(t.Value, t.String, nil); s != "" {
						b.issuers = append(b.issuers, s)
					}
				}
			}), Doc: "The issuers that the tenant's file may name in `members`. None if absent."},
			{Key: "token_budget", Type: budgetType(func(v document.Value) { b.tokenBudget = readTokenBudget(v, 0, "") }), Doc: "The most tokens of a task's tool list. If absent, the value at the top of the file."},
			{Key: "result_bytes", Type: resultBytesType(func(v document.Value) { b.resultBytes = readResultBytes(v, 0, "") }), Doc: "The most bytes of text that a client gets of one result at once. A longer result becomes a preview. If absent there is no bound, and 64KiB for keyless use."},
			{Key: "declare", Type: document.MapList("a list of maps", func() *document.Keys { return f.declaredKeys(&switchboard.Requirement{}) }, func(v document.Value) { b.declare = v }), Doc: "The bound of tasks that clients declare. If absent, clients may declare none."},
			{Key: "request", Type: document.MapList("a list of maps", func() *document.Keys { return requestKeys(f, &switchboard.RequestRow{}) }, func(v document.Value) { b.request = v }), Doc: "The capabilities that agents may ask a person for, with switchboard_request_capability. If absent, they may ask for none."},
			{Key: "budgets", Type: budgetsType(func(v document.Value) { b.budgetRows = v }), Doc: "The operator's budgets of this tenant. Those at the top of the file and those in the tenant's file count besides."},
			{Key: "approvals", Type: approvalsType(&b.approvals), Doc: "How people are asked for their approval. A key that is absent is as at the top of the file."},
			{Key: "permissions", Type: document.Texts("a list of permissions", func(texts []document.TextValue) { b.permissions, b.permissionTexts = readPermissions(texts), texts }), Doc: "Permissions such as `fs:read`. A capability that needs another one does not exist in this tenant. None if absent."},
			{Key: "models", Type: document.Texts("a list of models", func(texts []document.TextValue) { b.models = sortedTexts(texts) }), Doc: "The models in use. A capability that needs one of others does not exist in this tenant. None if absent."},
			{Key: "flows", Type: flowsType(func(v document.Value) { b.flows = readFlows(v, "") }), Doc: "What happens at least to a call that carries data out, in a run that has touched private data and text of strangers: `record` (the default), `ask` or `never`. The tenant may only be stricter."},
			{Key: "trust", Type: trustType(&b.trust), Doc: "Whether a server's own claim that a tool is readonly counts for keys of this tenant. `operator` (the default): only the claim of a server with `trust: operator`, or of an overlay."},
		},
		Later: []string{"self"},
		Hints: map[string]string{"admission": "it is for all tenants: write it at the top, or at a server", "ranking": "it stands in tenants/<id>/tenant.yaml", "keys": "they stand in tenants/<id>/tenant.yaml", "default_task": "it stands in tenants/<id>/tenant.yaml", "members": "they stand in tenants/<id>/tenant.yaml", "office": `write "offices"`, "mode": "it stands in tenants/<id>/tenant.yaml", "policy": "it stands in tenants/<id>/tenant.yaml", "lazy": "it stands in tenants/<id>/tenant.yaml, and for all tenants at the top", "tiers": `write "tier"`},
	}
}

// readBounds reads the operator's rows of the tenants.
func (f mainFile) readBounds(v document.Value) {
	for _, e := range v.ReadNamed(maxTenants, true) {
		if err := switchboard.CheckID(e.Name); err != nil {
			e.Key.Fault("%v", err)
			continue
		}
		b := &bound{approvals: f.approvals}
		f.bounds[e.Name] = b
		m, ok := e.Value.WithContext("tenant %q: ", e.Name).Open(f.tenantKeys(switchboard.TenantID(e.Name), b))
		if !ok {
			continue
		}
		m.Line, m.Column = e.Key.Line, e.Key.Column
		b.tokenBudget = f.tokenBudget
		m.Read()
	}
}

// readCeilings reads the most that clients of each tenant may declare.
func (f mainFile) readCeilings() {
	for _, id := range slices.Sorted(maps.Keys(f.bounds)) {
		f.readCeiling(f.bounds[id])
	}
}

func (f mainFile) readCeiling(b *bound) {
	if b.declare.Sink == nil {
		return
	}
	if b.declare.Kind == document.KindList && len(b.declare.Items) == 0 {
		b.declare.Fault("the list is empty; name a capability, such as {verb: search, resource: internet}, or remove the key")
	}
	type term struct {
		verb     switchboard.Verb
		resource switchboard.Resource
	}
	first := map[term]document.Value{}
	for _, v := range b.declare.ReadList(document.MaxItems) {
		var r switchboard.Requirement
		if m, ok := v.Open(f.declaredKeys(&r)); ok {
			m.Read()
		}
		is := term{r.Verb, r.Resource}
		if at, ok := first[is]; ok && r.Resource != "" {
			v.Fault("%s %s has a row already, at line %d; join them", r.Verb, r.Resource, at.Line)
		}
		first[is] = v
		b.ceiling = append(b.ceiling, r)
	}
}

// declaredKeys are the keys of a declared capability.
func (f mainFile) declaredKeys(r *switchboard.Requirement) *document.Keys {
	const remedy = "a row is a verb and a resource, and constraints that each such requirement gets"
	return &document.Keys{
		Rows: []document.Row{
			{Key: "verb", Type: verbType(&r.Verb), Required: remedy, Doc: "The verb of the capability."},
			{Key: "resource", Type: f.resourceType(&r.Resource), Required: remedy, Doc: "The resource of the capability."},
			{Key: "constraints", Type: f.constraintsType(&r.Constraints), Doc: "Constraints that each such requirement gets."},
		},
		Later: []string{"capability"},
		Hints: map[string]string{"tools": "a task that a client declares names no tools"},
	}
}
