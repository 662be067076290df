package config

import (
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var (
	boundShape = &mapShape{
		keys:  []string{"servers", "allow", "tier", "roles", "token_budget", "result_bytes", "declare", "trust"},
		later: []string{"budgets", "models", "permissions"},
		hints: map[string]string{"ranking": "it stands in tenants/<id>/tenant.yaml", "keys": "they stand in tenants/<id>/tenant.yaml", "default_task": "it stands in tenants/<id>/tenant.yaml", "mode": "it stands in tenants/<id>/tenant.yaml", "policy": "it stands in tenants/<id>/tenant.yaml", "lazy": "it stands in tenants/<id>/tenant.yaml, and for all tenants at the top", "tiers": `write "tier"`},
	}
	tenantShape = &mapShape{
		keys:  []string{"tenant", "servers", "mode", "default_task", "ranking", "limits", "policy", "record", "receipt_ids", "keys", "token_budget", "result_bytes", "lazy"},
		later: []string{"budgets", "obligations", "approvals", "cache", "redact"},
		hints: map[string]string{"allow": hintOperator, "declare": hintOperator, "trust": hintOperator + "; what a tenant asks of trust stands under policy: trust", "tasks": "they stand in tenants/<id>/tasks/", "id": `write "tenant"`, "policies": "they stand in tenants/<id>/policies/", "roles": "the operator says it, in switchboard.yaml; a key names its own", "tier": "the operator says it, in switchboard.yaml; a key names its own"},
	}
	tenantLazyShape = &mapShape{keys: []string{"on_full"}, hints: map[string]string{"tokenizer": hintOperator}}
	declareShape    = &mapShape{keys: []string{"verb", "resource", "constraints"}, later: []string{"capability"}, hints: map[string]string{"tools": "a task that a client declares names no tools"}}

	keyShape = &mapShape{
		keys:  []string{"id", "hash", "tasks", "roles", "tier", "mode", "expires"},
		later: []string{"next"},
		hints: map[string]string{"key": "write the hash of the key, as `switchboard key new` prints it; the key itself stands in no file", "principal": `write "id"`},
	}
	limitShape = &mapShape{keys: []string{"match", "rate", "burst"}, later: []string{"limit", "window", "currency"}}
	matchShape = &mapShape{keys: []string{"constraint"}, later: []string{"cost_class", "side_effects", "risk_level", "verb", "resource", "server", "tool", "capability"}}
)

const hintOperator = "only the operator says it, in switchboard.yaml"

// A bound holds the most that the operator grants a tenant.
type bound struct {
	servers     []string // sorted
	byName      bool
	trust       switchboard.Trust
	tiers       []string // the first is the tier of keys that name none
	roles       []string // sorted
	tokenBudget int      // 0 if the operator sets none

	resultBytes int   // 0 if the operator sets none
	declare     value // read after the taxonomy
	ceiling     []switchboard.Requirement

	// rowUnreadable means that the operator's row could not be read. Then no request of the tenant
	// counts as too large.
	rowUnreadable bool
}

// defaultTier returns the tier of principals that name none.
func (b *bound) defaultTier() string {
	if len(b.tiers) == 0 {
		return ""
	}
	return b.tiers[0]
}

// tenantFolder is the state of reading one tenant's folder.
type tenantFolder struct {
	part    *partState
	bound   *bound
	tasks   map[string]value
	tools   map[switchboard.ToolID]value
	servers []string // out.Servers

	tenantReading
	keysUnknown bool // the file may have keys that could not be read
}

// readBounds reads tenants: of switchboard.yaml.
func (l *loader) readBounds(v value) {
	for _, e := range v.readEntries(maxTenants, true) {
		if err := switchboard.CheckID(e.name); err != nil {
			e.key.fault("%v", err)
			continue
		}
		b := &bound{}
		l.bounds[e.name] = b
		o, ok := e.val.withContext("tenant %q: ", e.name).readObject(boundShape)
		if !ok {
			continue
		}
		o.line, o.col = e.key.line, e.key.col
		if v, ok := o.require("servers", `name the servers that it may use at most; servers: ["*"] for all`); ok {
			b.servers = l.readServerPatterns(v, l.serverIDs)
		}
		if v, ok := o.lookup("allow"); ok {
			for _, t := range v.readTexts() {
				if s, ok := t.oneOf("permission", "by_name"); ok {
					b.byName = b.byName || s == "by_name"
				}
			}
		}
		if v, ok := o.lookup("trust"); ok {
			s, _ := v.oneOf("trust", string(switchboard.TrustOperator), string(switchboard.TrustDeclared))
			b.trust = switchboard.Trust(s)
		}
		if v, ok := o.lookup("tier"); ok {
			b.tiers = v.readTiers()
		}
		if v, ok := o.lookup("roles"); ok {
			b.roles = sortedTexts(v.readTexts())
		}
		b.tokenBudget = l.tokenBudget
		if v, ok := o.lookup("token_budget"); ok {
			b.tokenBudget = v.readTokenBudget(0, "")
		}
		if v, ok := o.lookup("result_bytes"); ok {
			b.resultBytes = v.readResultBytes(0, "")
		}
		b.declare, _ = o.lookup("declare")
	}
}

// readCeilings reads the most that clients of each tenant may declare.
func (l *loader) readCeilings() {
	for _, id := range slices.Sorted(maps.Keys(l.bounds)) {
		b := l.bounds[id]
		if b.declare.sink == nil {
			continue
		}
		if b.declare.kind == listKind && len(b.declare.items) == 0 {
			b.declare.fault("the list is empty; name a capability, such as {verb: search, resource: internet}, or remove the key")
		}
		type term struct {
			verb     switchboard.Verb
			resource switchboard.Resource
		}
		first := map[term]value{}
		for _, v := range b.declare.readList(maxItems) {
			r := l.readDeclared(v)
			is := term{r.Verb, r.Resource}
			if at, ok := first[is]; ok && r.Resource != "" {
				v.fault("%s %s has a row already, at line %d; join them", r.Verb, r.Resource, at.line)
			}
			first[is] = v
			b.ceiling = append(b.ceiling, r)
		}
	}
}

func (l *loader) readDeclared(v value) (r switchboard.Requirement) {
	o, ok := v.readObject(declareShape)
	if !ok {
		return r
	}
	const remedy = "a row is a verb and a resource, and constraints that each such requirement gets"
	if v, ok := o.require("verb", remedy); ok {
		r.Verb = v.readVerb()
	}
	if v, ok := o.require("resource", remedy); ok {
		r.Resource = l.readResource(v)
	}
	if v, ok := o.lookup("constraints"); ok {
		r.Constraints = l.readConstraints(v)
	}
	return r
}

// maxBudget limits a token budget.
const maxBudget = 10_000_000

// readTokenBudget reads a token budget. It must not exceed most, unless most is 0; has names the owner
// of that limit.
func (v value) readTokenBudget(most int, has string) int {
	n := v.readInteger(1, maxBudget)
	if most > 0 && n > most {
		v.fault("%d is more than the %d that %s; write less, or remove it", n, most, has)
		return most
	}
	return n
}

// readResultBytes reads how many bytes of one result are given at once. It must not exceed most,
// unless most is 0; has names the owner of that limit.
func (v value) readResultBytes(most int, has string) int {
	n := v.readSize(4<<10, 1<<30)
	if most > 0 && n > most {
		v.fault("%s is more than the %d KiB that %s; write less, or remove it", v.shownValue(), most>>10, has)
		return most
	}
	return n
}

// readOnFull reads what happens to an expansion that exceeds the budget.
func (v value) readOnFull() switchboard.OnFull {
	s, _ := v.oneOf("way", string(switchboard.OnFullRefuse), string(switchboard.OnFullCollapse))
	return switchboard.OnFull(s)
}

// readServerPatterns reads a list of server names and patterns, and returns the servers of known that
// they match.
func (l *loader) readServerPatterns(v value, known []string) []string {
	var out []string
	for _, t := range v.readTexts() {
		out = append(out, l.matchServers(t.value, t.s, known)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// matchServers returns the servers of known that a pattern matches. A pattern without a match is a
// fault.
func (l *loader) matchServers(v value, pattern string, known []string) []string {
	if !strings.Contains(pattern, "*") {
		if l.checkServer(v, pattern, known) {
			return []string{pattern}
		}
		return nil
	}
	var out []string
	for _, k := range known {
		if switchboard.MatchPattern(pattern, k) {
			out = append(out, k)
		}
	}
	if len(out) == 0 && l.readable {
		v.fault("%s matches no server here; %s", quoteShown(pattern), listKnown("servers", known))
	}
	return out
}

// readTenants reads the folder tenants, and creates the tenants from it and from the operator's rows.
func (l *loader) readTenants() {
	if l.exists("tenants") && !l.isFolder("tenants") {
		l.fault("tenants", "this must be a folder, with a folder for each tenant")
		return
	}
	names, ok := l.listFolder("tenants")
	if !ok {
		return
	}
	l.cfg.Implied = l.noTenantRows && len(names) == 0
	if l.noTenantRows {
		// In single-user use the row of the local tenant is implied.
		l.bounds[string(DefaultTenant)] = &bound{servers: l.serverIDs, byName: true, tokenBudget: l.tokenBudget}
	}
	for id, b := range l.bounds {
		l.cfg.Tenants[switchboard.TenantID(id)] = &switchboard.Tenant{
			ID: switchboard.TenantID(id), ByName: b.byName, Servers: l.enabledServers(b.servers), Tier: b.defaultTier(), Roles: b.roles,
			Tasks: map[switchboard.TaskID]*switchboard.Task{}, Overlays: map[switchboard.ToolID]switchboard.Overlay{},
			TokenBudget: b.tokenBudget, ResultBytes: b.resultBytes, OnFull: l.onFull, Declare: b.ceiling, VetoForTask: l.vetoForTask, Trust: b.trust,
		}
	}
	if l.cfg.Implied {
		t := l.cfg.Tenants[DefaultTenant]
		t.Tasks[LocalTask], t.DefaultTask = localTask(), LocalTask
	} else if l.noTenantRows && !slices.Contains(names, string(DefaultTenant)) {
		delete(l.cfg.Tenants, DefaultTenant)
	}
	for _, n := range names {
		folder := path.Join("tenants", n)
		if !l.isFolder(folder) {
			l.fault(folder, "only folders are read here, one for each tenant; move this file away")
			continue
		}
		if err := switchboard.CheckID(n); err != nil {
			l.fault(folder, "the folder cannot be that of a tenant: %v", err)
			continue
		}
		p := l.newPart("tenant "+n, switchboard.TenantID(n))
		leave := l.collectInto(p)
		l.readTenantFolder(n, folder, p)
		leave()
	}
}

// enabledServers returns the servers that are not disabled.
func (l *loader) enabledServers(names []string) []switchboard.ServerID {
	out := make([]switchboard.ServerID, 0, len(names))
	for _, n := range names {
		if !l.disabled[n] {
			out = append(out, switchboard.ServerID(n))
		}
	}
	return out
}

// localTask requires every tool of every server by name.
func localTask() *switchboard.Task {
	return &switchboard.Task{ID: LocalTask, Requirements: []switchboard.Requirement{{Tools: []string{"*/*"}}}}
}

// tenantFiles are the names that a tenant's folder may hold.
var tenantFiles = []string{"tenant.yaml", "tasks", "overlays", "policies"}

// readTenantFolder reads the folder of one tenant, which is a part of its own.
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
	t := &tenantFolder{part: p, bound: b, servers: b.servers, tasks: map[string]value{}, tools: map[switchboard.ToolID]value{}}
	l.tenantFolders = append(l.tenantFolders, t)
	if t.out = l.cfg.Tenants[switchboard.TenantID(id)]; t.out == nil {
		t.out = &switchboard.Tenant{ID: switchboard.TenantID(id), Tasks: map[switchboard.TaskID]*switchboard.Task{}, Overlays: map[switchboard.ToolID]switchboard.Overlay{}}
	}
	t.keysUnknown = true // until its file is read
	defer l.enterFolder(folder)()
	names, _ := l.listFolder(folder)
	for _, n := range names {
		if !slices.Contains(tenantFiles, n) {
			l.fault(path.Join(folder, n), "this is not read%s", suggestion(n, "names", tenantFiles))
		}
	}
	t.policies = l.readPolicies(path.Join(folder, "policies"))
	l.checkPolicies(t)

	// tenant.yaml comes first, because it narrows what tasks may use. Its references to tasks are
	// checked after the tasks.
	var top fixedMap
	file := path.Join(folder, "tenant.yaml")
	t.keysUnknown = l.exists(file)
	if t.keysUnknown {
		if doc, ok := l.readDocument(file); ok {
			top, ok = doc.readObject(tenantShape)
			t.keysUnknown = !ok || top.hasKey("keys")
		}
	}
	if v, ok := top.lookup("tenant"); ok {
		if s, ok := v.readText(); ok && s != id {
			v.fault("%s stands in the folder of %q; they must be the same", v.shownValue(), id)
		}
	}
	if v, ok := top.lookup("servers"); ok {
		t.servers = l.readNarrowedServers(v, b)
		t.out.Servers = l.enabledServers(t.servers)
	}
	if v, ok := top.lookup("mode"); ok {
		t.out.Mode = v.readMode("")
	}
	if v, ok := top.lookup("policy"); ok {
		t.out.Policy = v.readJSONMap()
	}
	if v, ok := top.lookup("record"); ok {
		_, t.out.RecordInputs = v.oneOf("kind of record", "policy_inputs")
	}
	if v, ok := top.lookup("receipt_ids"); ok {
		t.out.ReceiptIDs = v.readBool()
	}
	if v, ok := top.lookup("token_budget"); ok {
		t.out.TokenBudget = v.readTokenBudget(t.out.TokenBudget, "the operator gives this tenant")
	}
	if v, ok := top.lookup("result_bytes"); ok {
		t.out.ResultBytes = v.readResultBytes(t.out.ResultBytes, "the operator gives this tenant")
	}
	if v, ok := top.lookup("lazy"); ok {
		if o, ok := v.readObject(tenantLazyShape); ok {
			if v, ok := o.lookup("on_full"); ok {
				t.out.OnFull = v.readOnFull()
			}
		}
	}
	for _, doc := range l.readDocuments(path.Join(folder, "tasks")) {
		l.readTask(doc, t)
	}
	for _, doc := range l.readDocuments(path.Join(folder, "overlays")) {
		l.readOverlayFile(doc, switchboard.FromTenantOverlay, t.servers, t.tools, t.out.Overlays)
	}
	if v, ok := top.lookup("default_task"); ok {
		t.out.DefaultTask = l.readTaskName(v, t)
	}
	if v, ok := top.lookup("ranking"); ok {
		t.out.Ranking = l.readRanking(v, t)
	}
	if v, ok := top.lookup("limits"); ok {
		t.out.Limits = l.readLimits(v)
	}
	if v, ok := top.lookup("keys"); ok {
		l.readKeys(v, t)
	}
}

func suggestTenant(id string, bounds map[string]*bound) string {
	known := make([]string, 0, len(bounds))
	for k := range bounds {
		known = append(known, k)
	}
	slices.Sort(known)
	if near := nearestName(id, known); near != "" {
		return fmt.Sprintf(", or is it %q?", near)
	}
	return ""
}

// readNarrowedServers reads the servers that a tenant selects from its bound.
func (l *loader) readNarrowedServers(v value, b *bound) []string {
	var out []string
	for _, t := range v.readTexts() {
		if !strings.Contains(t.s, "*") && l.readable && !slices.Contains(b.servers, t.s) {
			t.fault("%s is not among the servers that the operator allows this tenant%s", t.shownValue(), suggestion(t.s, "servers", b.servers))
			continue
		}
		out = append(out, l.matchServers(t.value, t.s, b.servers)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// readTaskName reads the name of one of the tenant's tasks.
func (l *loader) readTaskName(v value, t *tenantFolder) switchboard.TaskID {
	s, ok := v.readText()
	if _, known := t.tasks[s]; ok && !known {
		names := make([]string, 0, len(t.tasks))
		for n := range t.tasks {
			names = append(names, n)
		}
		slices.Sort(names)
		v.fault("the tenant has no task %s%s", v.shownValue(), suggestion(s, "tasks", names))
	}
	return switchboard.TaskID(s)
}

// readLimits reads how often a tenant may call.
func (l *loader) readLimits(v value) []switchboard.Limit {
	var out []switchboard.Limit
	first := map[switchboard.Constraint]value{}
	for _, item := range v.readList(maxItems) {
		o, ok := item.readObject(limitShape)
		if !ok {
			continue
		}
		limit := switchboard.Limit{Burst: 1}
		if v, ok := o.require("match", "say which calls are counted: match: {constraint: rate_limited}"); ok {
			if m, ok := v.readObject(matchShape); ok {
				if v, ok := m.require("constraint", "name the constraint of the tools that are counted"); ok {
					limit.Constraint = l.readConstraint(v)
					if at, ok := first[limit.Constraint]; ok {
						v.fault("%s has a limit already, at line %d", v.shownValue(), at.line)
					}
					first[limit.Constraint] = v
				}
			}
		}
		if v, ok := o.require("rate", "write a number of calls in a time, such as 60/min"); ok {
			limit.Every = v.readRate()
		}
		if v, ok := o.lookup("burst"); ok {
			limit.Burst = v.readInteger(1, 1_000_000)
			if most := switchboard.MaxEarn / max(limit.Every, 1); limit.Burst > int(most) {
				v.fault("so many calls take more than ten years to be earned at that rate; at most %d", most)
			}
		}
		out = append(out, limit)
	}
	return out
}

var rateUnits = map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// readRate reads a rate such as "60/min" and returns the time after which one more call is permitted.
func (v value) readRate() time.Duration {
	s, ok := v.readText()
	if !ok {
		return 0
	}
	count, unit, _ := strings.Cut(s, "/")
	n, err := strconv.Atoi(count)
	if per := rateUnits[unit]; err == nil && strconv.Itoa(n) == count && n >= 1 && n <= 1_000_000 && per > 0 {
		return per / time.Duration(n)
	}
	v.fault("%s is no rate; write a number of calls in a time (s, min, h or d), such as 60/min", v.shownValue())
	return 0
}

// readKeys reads the hashes of a tenant's API keys.
func (l *loader) readKeys(v value, t *tenantFolder) {
	seen := map[string]value{}
	for _, item := range v.readList(maxItems) {
		o, ok := item.readObject(keyShape)
		if !ok {
			continue
		}
		k := Key{Tenant: t.out.ID}
		if v, ok := o.require("id", "name who calls with the key"); ok {
			if s, ok := v.readText(); ok {
				k.ID = s
				if err := switchboard.CheckID(s); err != nil {
					v.fault("%v", err)
				} else if s == switchboard.LocalID {
					v.fault("%s is whoever calls without a key, over stdio or while there are none; name the key otherwise", v.shownValue())
				} else if at, ok := seen[s]; ok {
					v.fault("%s is the id of another key, at line %d", v.shownValue(), at.line)
				}
				seen[s] = v
			}
		}
		if v, ok := o.require("hash", "make a key with `switchboard key new`, which prints its hash"); ok {
			v.hidden = true
			if h, ok := v.readKeyHash(); ok && l.assignKey(h, v, t) {
				k.Hash = h
			}
		}
		if v, ok := o.lookup("tasks"); ok {
			for _, task := range v.readTexts() {
				k.Tasks = append(k.Tasks, l.readTaskName(task.value, t))
			}
		}
		if v, ok := o.lookup("roles"); ok {
			var own []textItem
			for _, role := range v.readTexts() {
				if t.bound.checkGiven(role.value, role.s, "role", t.bound.roles) {
					own = append(own, role)
				}
			}
			k.Roles = sortedTexts(own)
		}
		k.Tier = t.bound.defaultTier()
		if v, ok := o.lookup("tier"); ok {
			if s, ok := v.readText(); ok && t.bound.checkGiven(v, s, "tier", t.bound.tiers) {
				k.Tier = s
			}
		}
		k.Mode = t.out.Mode.Narrower(switchboard.Autopilot)
		if v, ok := o.lookup("mode"); ok {
			k.Mode = v.readMode(k.Mode)
		}
		if v, ok := o.lookup("expires"); ok {
			k.Expires = v.readExpiry()
		}
		if k.ID != "" && k.Hash != ([32]byte{}) {
			t.keys = append(t.keys, k) // even if the rest is faulty, so that its caller is told so
		}
	}
}

// ParseEnd parses the expiry of a key. "2027-03-31" is its last day, in UTC, and
// "2027-03-31T18:00:00Z" is the instant of its expiry.
func ParseEnd(s string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	return time.Parse(time.RFC3339, s)
}

// readExpiry returns when the key expires. An unreadable expiry counts as long past, so that a typing
// error does not extend a key.
func (v value) readExpiry() time.Time {
	s, ok := v.readText()
	if !ok {
		return time.Unix(0, 0)
	}
	end, err := ParseEnd(s)
	if err != nil {
		v.fault("want the last day, such as 2027-03-31, or a time, such as 2027-03-31T18:00:00Z, not %s", v.shownValue())
		return time.Unix(0, 0)
	}
	if !time.Now().Before(end) {
		v.warn("the key has expired; remove it, or give it another day")
	}
	return end
}

// checkGiven reports whether the operator grants s to the tenant. If not, that is a fault.
func (b *bound) checkGiven(v value, s, noun string, given []string) bool {
	if b.rowUnreadable || slices.Contains(given, s) {
		return true
	}
	v.fault("%s is not among the %ss that the operator gives this tenant%s", v.shownValue(), noun, suggestion(s, noun+"s", given))
	return false
}

// readTiers reads one tier or a list of tiers.
func (v value) readTiers() []string {
	if v.kind != listKind {
		s, _ := v.readText()
		return []string{s}
	}
	if len(v.items) == 0 {
		v.fault("the list is empty; name a tier, or remove the key")
	}
	var out []string
	for _, t := range v.readTexts() {
		out = append(out, t.s)
	}
	return out
}

func sortedTexts(texts []textItem) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = t.s
	}
	slices.Sort(out)
	return out
}

// readMode reads how much agents may do without a person: at most the mode most.
func (v value) readMode(most switchboard.Mode) switchboard.Mode {
	known := make([]string, len(switchboard.Modes))
	for i, m := range switchboard.Modes {
		known[i] = string(m)
	}
	s, ok := v.oneOf("mode", known...)
	if !ok {
		return most
	}
	m := switchboard.Mode(s)
	if m.Narrower(most) != m {
		v.fault("%s lets agents do more than the tenant's mode, %q; a key or a task may only let them do less", v.shownValue(), most)
	}
	return m
}

func (v value) readKeyHash() (h [32]byte, ok bool) {
	s, ok := v.readText()
	if !ok {
		return h, false
	}
	digits, ok := strings.CutPrefix(s, "sha256:")
	if raw, err := hex.DecodeString(digits); ok && err == nil && len(raw) == len(h) && digits == strings.ToLower(digits) {
		return [32]byte(raw), true
	}
	v.fault(`this is no hash of a key; write "sha256:" and 64 hexadecimal digits, as "switchboard key new" prints them, and never the key itself`)
	return h, false
}
