package config

import (
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A bound holds the most that the operator grants a tenant.
type bound struct {
	servers     []string // sorted
	byName      bool
	trust       switchboard.Trust
	tiers       []string             // the first is the tier of keys that name none
	roles       []string             // sorted
	offices     []switchboard.Office // that the tenant's file may give; sorted
	issuers     []string             // that the tenant's file may name
	tokenBudget int                  // 0 if the operator sets none
	grants

	resultBytes int // 0 if the operator sets none
	rowsForClients
	budgetRows document.Value // read after the taxonomy
	budgets    []*switchboard.Budget
	approvals  switchboard.ApprovalSettings

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
	*loader
	part    *partState
	bound   *bound
	tasks   map[string]document.Value
	tools   map[switchboard.ToolID]document.Value
	servers []string // out.Servers

	tenantReading
	keysUnknown bool // the file may have keys that could not be read
}

// Limits of budgets.
const (
	maxBudget      = 10_000_000 // tokens
	minResultBytes = 4 << 10    // of one result that are given at once
	maxResultBytes = 1 << 30
)

// readTokenBudget reads a token budget. It must not exceed most, unless most is 0; has names the owner
// of that limit.
func readTokenBudget(v document.Value, most int, has string) int {
	n := v.ReadInteger(1, maxBudget)
	if most > 0 && n > most {
		v.Fault("%d is more than the %d that %s; write less, or remove it", n, most, has)
		return most
	}
	return n
}

// readResultBytes reads how many bytes of one result are given at once. It must not exceed most,
// unless most is 0; has names the owner of that limit.
func readResultBytes(v document.Value, most int, has string) int {
	n := v.ReadSize(minResultBytes, maxResultBytes)
	if most > 0 && n > most {
		v.Fault("%s is more than the %d KiB that %s; write less, or remove it", v.Shown(), most>>10, has)
		return most
	}
	return n
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
		l.bounds[string(DefaultTenant)] = &bound{servers: l.serverIDs, byName: true, tokenBudget: l.tokenBudget, approvals: l.approvals, grants: grants{permissions: l.cfg.Registry.Permissions(), models: l.cfg.Registry.Models()}}
	}
	for id, b := range l.bounds {
		l.cfg.Tenants[switchboard.TenantID(id)] = newTenant(l, switchboard.TenantID(id), b)
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
		readTenant(l, n)
	}
}

// newTenant returns the tenant as the operator's row has it.
func newTenant(l *loader, id switchboard.TenantID, b *bound) *switchboard.Tenant {
	return &switchboard.Tenant{
		ID: id, ByName: b.byName, Servers: l.enabledServers(b.servers), Tier: b.defaultTier(), Tiers: b.tiers, Roles: b.roles,
		Tasks: map[switchboard.TaskID]*switchboard.Task{}, Overlays: map[switchboard.ToolID]switchboard.Overlay{},
		TokenBudget: b.tokenBudget, ResultBytes: b.resultBytes, OnFull: l.onFull, Declare: b.ceiling, Request: b.requests, VetoForTask: l.vetoForTask, Trust: b.trust, Flows: b.flows,
		Permissions: b.permissions, Models: b.models, Trial: b.trial,
		Recipients: recipientsFor(l.cfg, id),
		Budgets:    slices.Concat(l.budgets, b.budgets), Approvals: b.approvals,
	}
}

// readTenant reads the folder of one tenant, which is a part of its own.
func readTenant(l *loader, id string) {
	p := l.newPart("tenant "+id, switchboard.TenantID(id))
	defer l.collectInto(p)()
	l.readTenantFolder(id, path.Join("tenants", id), p)
}

// localTask requires every tool of every server by name.
func localTask() *switchboard.Task {
	return &switchboard.Task{ID: LocalTask, Requirements: []switchboard.Requirement{{Tools: []string{"*/*"}}}}
}

// tenantFiles are the names that a tenant's folder may hold.
var tenantFiles = []string{"tenant.yaml", "tasks", "overlays", "policies"}

func suggestTenant(id string, bounds map[string]*bound) string {
	known := make([]string, 0, len(bounds))
	for k := range bounds {
		known = append(known, k)
	}
	slices.Sort(known)
	if near := document.Nearest(id, known); near != "" {
		return fmt.Sprintf(", or is it %q?", near)
	}
	return ""
}

// readTaskName reads the name of one of the tenant's tasks.
func (t *tenantFolder) readTaskName(v document.Value) switchboard.TaskID {
	s, ok := v.ReadText()
	if _, known := t.tasks[s]; ok && !known {
		names := make([]string, 0, len(t.tasks))
		for n := range t.tasks {
			names = append(names, n)
		}
		slices.Sort(names)
		v.Fault("the tenant has no task %s%s", v.Shown(), document.Suggestion(s, "tasks", names))
	}
	return switchboard.TaskID(s)
}

// readTaskNames reads a list of tasks of the tenant.
func (t *tenantFolder) readTaskNames(texts []document.TextValue) (tasks []switchboard.TaskID) {
	for _, task := range texts {
		tasks = append(tasks, t.readTaskName(task.Value))
	}
	return tasks
}

// readGivenRoles reads a list of roles out of those that the operator gives the tenant.
func (t *tenantFolder) readGivenRoles(texts []document.TextValue) []string {
	var own []document.TextValue
	for _, role := range texts {
		if t.bound.checkGiven(role.Value, role.String, "role", t.bound.roles) {
			own = append(own, role)
		}
	}
	return sortedTexts(own)
}

var rateUnits = map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// readRate reads a rate such as "60/min" and returns the time after which one more call is permitted.
func readRate(v document.Value) time.Duration {
	s, ok := v.ReadText()
	if !ok {
		return 0
	}
	count, unit, _ := strings.Cut(s, "/")
	n, err := strconv.Atoi(count)
	if per := rateUnits[unit]; err == nil && strconv.Itoa(n) == count && n >= 1 && n <= 1_000_000 && per > 0 {
		return per / time.Duration(n)
	}
	v.Fault("%s is no rate; write a number of calls in a time (s, min, h or d), such as 60/min", v.Shown())
	return 0
}

// ParseExpiry parses the expiry of a key. "2027-03-31" is its last day, in UTC, and
// "2027-03-31T18:00:00Z" is the instant of its expiry.
func ParseExpiry(s string) (time.Time, error) {
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		return day.AddDate(0, 0, 1), nil
	}
	return time.Parse(time.RFC3339, s)
}

// readExpiry returns when the key expires. An unreadable expiry counts as long past, so that a typing
// error does not extend a key. An expiry in the past is no fault: a key that expires must not stop the next start.
func readExpiry(v document.Value) time.Time {
	s, ok := v.ReadText()
	if !ok {
		return time.Unix(0, 0)
	}
	end, err := ParseExpiry(s)
	if err != nil {
		v.Fault("want the last day, such as 2027-03-31, or a time, such as 2027-03-31T18:00:00Z, not %s", v.Shown())
		return time.Unix(0, 0)
	}
	if !time.Now().Before(end) {
		v.Warn("the key has expired: it opens nothing; remove its row, or replace it (switchboard key rotate)")
	}
	return end
}

// checkGiven reports whether the operator grants s to the tenant. If not, that is a fault.
func (b *bound) checkGiven(v document.Value, s, noun string, given []string) bool {
	if b.rowUnreadable || slices.Contains(given, s) {
		return true
	}
	v.Fault("%s is not among the %ss that the operator gives this tenant%s", v.Shown(), noun, document.Suggestion(s, noun+"s", given))
	return false
}

// readTiers reads one tier or a list of tiers.
func readTiers(v document.Value) []string {
	if v.Kind != document.KindList {
		s, _ := v.ReadText()
		return []string{s}
	}
	if len(v.Items) == 0 {
		v.Fault("the list is empty; name a tier, or remove the key")
	}
	var out []string
	for _, t := range v.ReadTexts() {
		out = append(out, t.String)
	}
	return out
}

func sortedTexts(texts []document.TextValue) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = t.String
	}
	slices.Sort(out)
	return out
}

// readMode reads how much agents may do without a person: at most the mode most.
func readMode(v document.Value, most switchboard.Mode) switchboard.Mode {
	known := make([]string, len(switchboard.Modes))
	for i, m := range switchboard.Modes {
		known[i] = string(m)
	}
	s, ok := v.OneOf("mode", known...)
	if !ok {
		return most
	}
	m := switchboard.Mode(s)
	if m.Narrower(most) != m {
		v.Fault("%s lets agents do more than the tenant's mode, %q; a key or a task may only let them do less", v.Shown(), most)
	}
	return m
}

// readFlows reads what happens to calls that carry data out: at least as strict as least.
func readFlows(v document.Value, least switchboard.Flows) switchboard.Flows {
	s, ok := v.OneOf("flows value", textsOf(switchboard.AllFlowsSettings)...)
	if !ok {
		return switchboard.FlowsNever // until the fault is gone
	}
	f := switchboard.Flows(s)
	if least.StricterThan(f) {
		v.Fault("%s is less strict than what the operator says for this tenant, %q; write that or a stricter value, or remove the key", v.Shown(), least)
		return least
	}
	return f
}

func readKeyHash(v document.Value) (h [32]byte, ok bool) {
	s, ok := v.ReadText()
	if !ok {
		return h, false
	}
	digits, ok := strings.CutPrefix(s, "sha256:")
	if raw, err := hex.DecodeString(digits); ok && err == nil && len(raw) == len(h) && digits == strings.ToLower(digits) {
		return [32]byte(raw), true
	}
	v.Fault(`this is no hash of a key; write "sha256:" and 64 hexadecimal digits, as "switchboard key new" prints them, and never the key itself`)
	return h, false
}
