package config

import (
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// DefaultAdminListen is the admin address of a configuration that names none. If another program has taken it, a free port counts.
const DefaultAdminListen = "127.0.0.1:7422"

// Limits of the lists of persons' keys.
const (
	maxOperators = 64
	maxApprovers = 256 // of a tenant
	maxMembers   = 256 // of a tenant
)

// Admin has the addresses of the admin side, and the changes that people may make there.
type Admin struct {
	Listen string // "" means DefaultAdminListen, or a free port where that is taken
	URL    string // how browsers reach it; "" if only this machine does
	Edit   EditMode
	TLS    CertificateFiles // of the admin address; the zero value means that it is served without TLS

	ClientDocument bool // the providers of servers can reach URL, and read our client ID metadata document there
}

// An EditMode says which changes of configuration files the admin side makes.
type EditMode string

// The values of EditMode.
const (
	EditNone     EditMode = "false"    // none: it answers with the difference to roll out
	EditFiles    EditMode = "true"     // all but those that change what is run
	EditPrograms EditMode = "programs" // also commands, environments and packages of servers
)

// A PersonKey is a row that gives the holder of a person's key offices. A key may have several rows, which add up.
type PersonKey struct {
	ID      string    // names the officer in receipts and logs
	Hash    [32]byte  // the SHA-256 of the key
	Expires time.Time `json:",omitzero"` // the zero time means never

	Operator bool // of the operators
	Tenant   switchboard.TenantID
	Offices  []switchboard.Office // within Tenant; sorted

	Calls switchboard.CallRights // only of members
}

// listenValues are the values of listen, admin.listen and admin.client_document, if they are given.
type listenValues struct{ agents, admin, client document.Value }

// adminKeys are the keys of admin: in switchboard.yaml.
func (f mainFile) adminKeys() *document.Keys {
	a := &f.cfg.Admin
	return &document.Keys{Rows: []document.Row{
		{Key: "listen", Type: document.Text("an address and a port", func(v document.Value, s string) {
			if isAddress(v, s) {
				a.Listen, f.listens.admin = s, v
			}
		}), Doc: "The address of the admin side: status, metrics, the API and the page. `" + DefaultAdminListen + "` if absent, or a free port where that is taken. Any address but a loopback one needs an https `url` and an operator."},
		{Key: "tls", Type: document.Map(f.listenerKeys(&a.TLS)), Doc: "The certificate of the admin address, which is then served with TLS only. The files are read again when they change."},
		{Key: "url", Type: document.Text("an https URL", func(v document.Value, s string) {
			u, err := url.Parse(s)
			if err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
				v.Fault("%s: want the address that browsers show, such as https://switchboard.example.com, without a path", v.Shown())
				return
			}
			a.URL = s
		}), Doc: "How browsers reach the admin side, if not by its own address: `https://HOST`."},
		{Key: "client_document", Type: document.Custom("`true` or `false`", document.Schema{"type": "boolean"}, func(v document.Value) {
			a.ClientDocument, f.listens.client = v.ReadBool(), v
		}), Doc: "`true`: the providers of hosted servers can reach `url` too, and read there who Switchboard is (`/connect/client.json`). Where a provider takes such documents, Switchboard then need not be registered."},
		{Key: "edit", Type: document.Custom("`true`, `false` or `programs`", document.Schema{"enum": []any{true, false, "programs"}}, func(v document.Value) {
			if v.Kind == document.KindBool {
				a.Edit = map[bool]EditMode{true: EditFiles, false: EditNone}[v.ReadBool()]
				return
			}
			if _, ok := v.OneOf("way", string(EditPrograms)); ok {
				a.Edit = EditPrograms
			}
		}), Doc: "Whether the admin side may change the files of the configuration. `true` (the default without a shared store): all but what is run; `programs`: also commands, environments and packages of servers; `false` (the default with a shared store): it answers with the difference."},
	}}
}

// checkAdmin reports faults that depend on other keys.
func (f mainFile) checkAdmin() {
	a := &f.cfg.Admin
	if a.Edit == "" {
		a.Edit = EditFiles
		if f.cfg.Store.Shared() {
			a.Edit = EditNone
		}
	}
	if a.ClientDocument && !strings.HasPrefix(a.URL, "https://") {
		f.listens.client.Fault("providers read the document by TLS: add url: https://…, which they can reach")
	}
	if f.listens.admin.Sink == nil {
		return
	}
	v := f.listens.admin
	if _, port, _ := net.SplitHostPort(a.Listen); a.Listen == f.cfg.Listen && port != "0" {
		v.Fault("%s is the address for agents too; no credential opens both, so they need two", v.Shown())
	}
	host, _, _ := net.SplitHostPort(a.Listen)
	if isLoopback(host) {
		return
	}
	if !strings.HasPrefix(a.URL, "https://") {
		v.Fault("other machines can reach %s, so browsers must come by TLS: write tls: {cert: PATH, key: PATH}, or put a proxy in front, and add url: https://…", v.Shown())
	}
	if !slices.ContainsFunc(f.cfg.People, func(p PersonKey) bool { return p.Operator }) && !slices.ContainsFunc(f.cfg.Claims, func(p PersonClaim) bool { return p.Operator }) {
		v.Fault("other machines can reach %s, and there is no operator; make a key with switchboard key new --operator, and add its row to operators", v.Shown())
	}
}

// A personReader reads one list of rows with persons' keys.
type personReader struct {
	*loader
	seen   map[string]document.Value   // ids of the list
	hashes map[[32]byte]document.Value // of the list
	out    *[]PersonKey
	claims *[]PersonClaim

	row   PersonKey
	next  [32]byte
	claim PersonClaim // of the row, if it names an issuer

	// offices, if not nil, are the offices that the rows may give. Then each row names its own.
	offices []switchboard.Office
	bound   *bound

	folder *tenantFolder // of members; nil for other rows
}

// keys are the keys of a row.
func (r *personReader) keys() *document.Keys {
	hash := document.Schema{"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
	k := &document.Keys{
		Rows: []document.Row{
			{Key: "key", Type: document.Text("an id", r.readID), Doc: "Names the person in receipts and logs; not `local`."},
			{Key: "hash", Type: document.Custom("`sha256:` and 64 hexadecimal digits", hash, func(v document.Value) { r.row.Hash = r.readHash(v) }), Doc: "The SHA-256 of the person's key, which begins with `swo_`. The key itself stands in no file."},
			{Key: "next", Type: document.Custom("`sha256:` and 64 hexadecimal digits", hash, func(v document.Value) { r.next = r.readHash(v) }), Doc: "The hash of the key that replaces this one. Both count."},
			{Key: "expires", Type: document.Custom("a day or a time", document.Schema{"type": "string"}, func(v document.Value) { r.row.Expires = readExpiry(v) }), Doc: "The last day of the key, in UTC, or a time such as `2027-03-31T18:00:00Z`."},
			{Key: "issuer", Type: document.Text("an issuer", func(v document.Value, s string) { r.claim.Issuer = r.readIssuerName(v, s, r.within()) }), Doc: "Instead of a key: the issuer at which the person signs in, with `claim` and `value`."},
			{Key: "claim", Type: document.Text("the name of a claim", func(v document.Value, s string) { r.claim.Claim = readClaimText(v, s) }), Doc: "A claim that the issuer states about the person, such as `groups`, `email` or `sub`."},
			{Key: "value", Type: document.Text("a text", func(v document.Value, s string) { r.claim.Value = readClaimText(v, s) }), Doc: "The row counts if the claim is this text, or a list with it."},
		},
		Hints: map[string]string{"id": `write "key"`},
	}
	if r.bound != nil {
		known := make([]string, len(switchboard.TenantOffices))
		for i, o := range switchboard.TenantOffices {
			known[i] = string(o)
		}
		k.Rows = append(k.Rows, document.Row{Key: "offices", Type: document.Texts("a list of offices", func(texts []document.TextValue) {
			for _, t := range texts {
				r.readOffice(t, known)
			}
		}), Required: "name what the person may do here, such as offices: [viewer]", Doc: "`admin`, `author` or `viewer`, out of those that the operator lets the tenant give."})
		calls := &r.row.Calls
		k.Rows = append(k.Rows,
			document.Row{Key: "tasks", Type: document.Texts("a list of tasks", func(texts []document.TextValue) { calls.Tasks = r.folder.readTaskNames(texts) }), Doc: "The tasks whose tools the person may call on the page (Try) and with `switchboard try`; none if absent. Policies, approvals and budgets count as for an agent."},
			document.Row{Key: "roles", Type: document.Texts("a list of roles", func(texts []document.TextValue) { calls.Roles = r.folder.readGivenRoles(texts) }), Doc: "The roles of these calls, out of those that the operator gives the tenant; none if absent."},
			document.Row{Key: "mode", Type: modeType(func(v document.Value) { calls.Mode = readMode(v, calls.Mode) }), Doc: "How much these calls may do alone, at most the tenant's mode."},
		)
		k.Later = []string{"scope"}
		k.Hints["office"] = `write "offices"`
	}
	return k
}

// within returns the issuers that the rows may name; nil means every one.
func (r *personReader) within() []string {
	if r.bound == nil {
		return nil
	}
	return append([]string{}, r.bound.issuers...)
}

func readClaimText(v document.Value, s string) string {
	if s == "" || len(s) > maxClaimBytes {
		v.Fault("want a text of at most %d bytes", maxClaimBytes)
	}
	return s
}

// checkForm reports a fault unless the row has one complete form: key and hash, or issuer, claim and value.
func (r *personReader) checkForm(m document.FixedMap) {
	if !m.HasKey("issuer") && !m.HasKey("claim") && !m.HasKey("value") {
		m.Require("key", "name whose key it is; or write issuer, claim and value")
		m.Require("hash", "make a key with `switchboard key new --operator` or `--office`, which prints its hash")
		return
	}
	for _, key := range []string{"key", "hash", "next", "expires"} {
		if m.HasKey(key) {
			m.Fault("%q belongs to a key, and issuer to people who sign in; make two rows of it", key)
		}
	}
	m.Require("issuer", "name the issuer that states the claim")
	m.Require("claim", "name the claim that counts, such as groups")
	m.Require("value", "write the text that the claim must have")
}

func (r *personReader) readID(v document.Value, s string) {
	if err := switchboard.CheckID(s); err != nil {
		v.Fault("%v", err)
		return
	}
	if s == switchboard.LocalID {
		v.Fault("%s is whoever can read the data folder; name the key otherwise", v.Shown())
		return
	}
	if at, ok := r.seen[s]; ok {
		v.Fault("%s is the id of another key, at line %d", v.Shown(), at.Line)
		return
	}
	r.seen[s], r.row.ID = v, s
}

func (r *personReader) readHash(v document.Value) (h [32]byte) {
	v.Hidden = true
	h, ok := readKeyHash(v)
	if !ok {
		return [32]byte{}
	}
	if at, again := r.hashes[h]; again {
		v.Fault(keyTwice, at.File, at.Line)
		return [32]byte{}
	}
	if own, known := r.rows[h]; known && r.bound != nil && own.tenant == r.row.Tenant {
		v.Fault("this is the key of an agent, at %s:%d; no key opens both sides: make one for the person", own.File, own.Line)
		return [32]byte{}
	}
	r.hashes[h] = v
	return h
}

func (r *personReader) readOffice(t document.TextValue, known []string) {
	s, ok := t.OneOf("office", known...)
	switch {
	case !ok:
	case s == string(switchboard.OfficeApprover):
		t.Fault("only the operator says who approves: approvers in the tenant's row of switchboard.yaml")
	case r.bound.checkGiven(t.Value, s, "office", officeNames(r.offices)):
		r.row.Offices = append(r.row.Offices, switchboard.Office(s))
	}
}

func officeNames(offices []switchboard.Office) []string {
	names := make([]string, len(offices))
	for i, o := range offices {
		names[i] = string(o)
	}
	return names
}

// read reads a list of at most most rows, each with the fields of as.
func (r *personReader) read(v document.Value, most int, as PersonKey) {
	r.seen, r.hashes = map[string]document.Value{}, map[[32]byte]document.Value{}
	for _, item := range v.ReadList(most) {
		r.row, r.next, r.claim = as, [32]byte{}, PersonClaim{Operator: as.Operator, Tenant: as.Tenant}
		r.row.Offices = slices.Clone(as.Offices)
		if r.folder != nil {
			r.row.Calls = switchboard.CallRights{Tier: r.bound.defaultTier(), Mode: r.folder.out.Mode.Narrower(switchboard.Autopilot)}
		}
		m, ok := item.Open(r.keys())
		if !ok {
			continue
		}
		m.Read()
		r.checkForm(m)
		slices.Sort(r.row.Offices)
		r.row.Offices = slices.Compact(r.row.Offices)
		r.readTaskless(m)
		if c := r.claim; c.Issuer != "" && c.Claim != "" && c.Value != "" {
			c.Offices, c.Calls = r.row.Offices, r.row.Calls
			*r.claims = append(*r.claims, c)
		}
		for _, hash := range [][32]byte{r.row.Hash, r.next} {
			if row := r.row; row.ID != "" && hash != ([32]byte{}) {
				row.Hash = hash
				*r.out = append(*r.out, row)
			}
		}
	}
}

// readTaskless reads a row without tasks. It can give roles, or a mode, to those for whom another row names tasks; a key has no other row that could.
func (r *personReader) readTaskless(m document.FixedMap) {
	if len(r.row.Calls.Tasks) > 0 {
		return
	}
	calls := switchboard.CallRights{Roles: r.row.Calls.Roles}
	if m.HasKey("mode") {
		calls.Mode = r.row.Calls.Mode
	}
	r.row.Calls = calls
	for _, name := range []string{"roles", "mode"} {
		if at, ok := m.Lookup(name); ok && r.row.ID != "" && !m.HasKey("tasks") {
			at.Fault("it is for calls of tools, and this key can make none; add tasks: [TASK] to the row, or leave %s out", name)
		}
	}
}

// readOperators reads the operators' rows.
func (f mainFile) readOperators(v document.Value) {
	(&personReader{loader: f.loader, out: &f.cfg.People, claims: &f.cfg.Claims}).read(v, maxOperators, PersonKey{Operator: true})
}

// readApprovers reads the approvers' rows of a tenant.
func (f mainFile) readApprovers(v document.Value, id switchboard.TenantID) {
	(&personReader{loader: f.loader, out: &f.cfg.People, claims: &f.cfg.Claims}).read(v, maxApprovers, PersonKey{Tenant: id, Offices: []switchboard.Office{switchboard.OfficeApprover}})
}

// readMembers reads the members of a tenant.
func (t *tenantFolder) readMembers(v document.Value) {
	(&personReader{loader: t.loader, out: &t.people, claims: &t.claims, offices: t.bound.offices, bound: t.bound, folder: t}).read(v, maxMembers, PersonKey{Tenant: t.out.ID})
}

// readGivenOffices reads the offices that a tenant's file may give.
func (b *bound) readGivenOffices(texts []document.TextValue) {
	for _, t := range texts {
		s, ok := t.OneOf("office", officeNames(switchboard.TenantOffices)...)
		switch {
		case !ok:
		case s == string(switchboard.OfficeApprover):
			t.Fault("a tenant's file cannot say who approves; list them here: approvers: [{key: ID, hash: …}]")
		default:
			b.offices = append(b.offices, switchboard.Office(s))
		}
	}
	slices.Sort(b.offices)
	b.offices = slices.Compact(b.offices)
}

// clipOffices returns the rows without offices that the operator does not give any more. A row that is left without an office goes, and no mode with it
// that another row's calls would need: a key has one row that gives tasks.
func clipOffices(people []PersonKey, b *bound) []PersonKey {
	out := make([]PersonKey, 0, len(people))
	for _, p := range people {
		if p.Offices = intersect(p.Offices, b.offices); len(p.Offices) > 0 {
			p.Calls = clipCalls(p.Calls, b)
			out = append(out, p)
		}
	}
	return out
}

// clipClaims returns the rows without issuers and offices that the operator does not give any more. A row that is left without an office gives nothing, but
// its mode stays, because it narrows what other rows give.
func clipClaims(claims []PersonClaim, b *bound) []PersonClaim {
	out := make([]PersonClaim, 0, len(claims))
	for _, c := range claims {
		switch c.Offices = intersect(c.Offices, b.offices); {
		case !slices.Contains(b.issuers, c.Issuer):
		case len(c.Offices) > 0:
			c.Calls = clipCalls(c.Calls, b)
			out = append(out, c)
		case c.Calls.Mode != "":
			c.Offices, c.Calls = nil, switchboard.CallRights{Mode: c.Calls.Mode}
			out = append(out, c)
		}
	}
	return out
}

// clipCalls returns the rights without roles and a tier that the operator does not give any more.
func clipCalls(c switchboard.CallRights, b *bound) switchboard.CallRights {
	c.Roles = intersect(c.Roles, b.roles)
	if len(c.Tasks) > 0 {
		c.Tier = b.defaultTier()
	}
	return c
}

// comparePeople orders rows by id, tenant and hash.
func comparePeople(a, b PersonKey) int {
	return strings.Compare(a.ID+"\x00"+string(a.Tenant)+"\x00"+string(a.Hash[:]), b.ID+"\x00"+string(b.Tenant)+"\x00"+string(b.Hash[:]))
}
