package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type keyCmd struct {
	New    keyNewCmd    `cmd:"" help:"Make a key: print it once, and the lines that belong into a file. Without --operator, --approver and --office it is an agent's key."`
	List   keyListCmd   `cmd:"" help:"List the rows of keys: whose they are, what they open, and whether they are valid. If nothing serves the configuration: those in its files."`
	Rotate keyRotateCmd `cmd:"" help:"Make a key that replaces another one: print it once, and the line that belongs into the row. Both count until the row is edited again."`
	Revoke keyRevokeCmd `cmd:"" help:"Revoke a key at once and for good, at every replica. No file changes."`
}

type keyNewCmd struct {
	outputFlags
	Config string               `help:"The configuration that names the tenants." placeholder:"FILE" default:"${config}"`
	Tenant switchboard.TenantID `help:"The tenant that the key belongs to." default:"default"`
	ID     string               `arg:"" help:"Who will use it: names the principal or the person in decisions, receipts and logs."`
	Tasks  []switchboard.TaskID `name:"task" help:"A task that the key may bind; may be given more than once. Without it, only the default task."`

	Operator bool                 `help:"Make an operator's key, for the admin side." xor:"kind"`
	Approver bool                 `help:"Make the key of a person who approves calls of the tenant." xor:"kind"`
	Offices  []switchboard.Office `name:"office" help:"Make the key of a member of the tenant with this office: admin, author or viewer; may be given more than once." xor:"kind"`

	Expires string `help:"The last day of the key, such as 2027-03-31, or the time when it ends. Without it, the key has no end." placeholder:"DAY"`
}

// isOfPerson reports whether the key is for a person, and not for an agent.
func (k *keyNewCmd) isOfPerson() bool { return k.Operator || k.Approver || len(k.Offices) > 0 }

// Run prints the key and its hash. It writes no file: the person who edits the file decides which keys count.
func (k *keyNewCmd) Run(io streams) error {
	if err := k.check(); err != nil {
		return usageError{err}
	}
	prefix := identity.AgentPrefix
	if k.isOfPerson() {
		prefix = identity.PersonPrefix
	}
	text, hash := identity.Mint(prefix)
	if k.JSON {
		made := map[string]any{"id": k.ID, "key": text, "hash": hash}
		if !k.Operator {
			made["tenant"] = k.Tenant
		}
		if !k.isOfPerson() {
			made["tasks"] = k.Tasks
		}
		if len(k.Offices) > 0 {
			made["offices"] = k.Offices
		}
		if k.Expires != "" {
			made["expires"] = k.Expires
		}
		return json.NewEncoder(io.raw).Encode(made)
	}
	fmt.Fprintf(io.out, "%s\n\n", text)
	k.writeRow(io.out, hash)
	return nil
}

// check checks the flags.
func (k *keyNewCmd) check() error {
	if err := switchboard.CheckID(k.ID); err != nil {
		return err
	}
	if k.ID == switchboard.LocalID {
		return fmt.Errorf("%s is whoever calls without a key; name the key otherwise", k.ID)
	}
	if tenants := config.TenantIDs(k.Config); !k.Operator && tenants != nil && !slices.Contains(tenants, string(k.Tenant)) {
		return fmt.Errorf("%s has no tenant %q%s", k.Config, k.Tenant, config.SuggestName(string(k.Tenant), "tenants", tenants))
	}
	if k.isOfPerson() && len(k.Tasks) > 0 {
		return errors.New("--task is for an agent's key; a person's key calls no tools")
	}
	for _, o := range k.Offices {
		if !slices.Contains(switchboard.TenantOffices, o) || o == switchboard.OfficeApprover {
			return fmt.Errorf("--office: want admin, author or viewer, not %q; --approver makes the key of an approver", o)
		}
	}
	return checkExpiry(k.Expires)
}

func checkExpiry(s string) error {
	if s == "" {
		return nil
	}
	if end, err := config.ParseExpiry(s); err != nil || !time.Now().Before(end) {
		return fmt.Errorf("--expires: want a day or a time to come, such as 2027-03-31 or 2027-03-31T18:00:00Z, not %q", s)
	}
	return nil
}

// writeRow prints the lines that belong into a file.
func (k *keyNewCmd) writeRow(out io.Writer, hash string) {
	more := ""
	if k.Expires != "" {
		more = "    expires: " + k.Expires + "\n"
	}
	switch {
	case k.Operator:
		fmt.Fprintf(out, "This key is shown once; give it to %s. Then add to switchboard.yaml:\n\noperators:\n  - key: %s\n    hash: %s\n%s", k.ID, k.ID, hash, more)
	case k.Approver:
		fmt.Fprintf(out, "This key is shown once; give it to %s. Then add to the row of the tenant %s in switchboard.yaml:\n\n    approvers: [{key: %s, hash: %q", k.ID, k.Tenant, k.ID, hash)
		if k.Expires != "" {
			fmt.Fprintf(out, ", expires: %s", k.Expires)
		}
		fmt.Fprint(out, "}]\n")
	case len(k.Offices) > 0:
		fmt.Fprintf(out, "This key is shown once; give it to %s. Then add to tenants/%s/tenant.yaml:\n\nmembers:\n  - key: %s\n    hash: %s\n    offices: [%s]\n%s", k.ID, k.Tenant, k.ID, hash, joinWords(k.Offices), more)
		fmt.Fprintf(out, "\nThe row of the tenant in switchboard.yaml must let it give these offices: offices: [%s]\n", joinWords(k.Offices))
	default:
		fmt.Fprintf(out, "This key is shown once; give it to %s. Then add to tenants/%s/tenant.yaml:\n\nkeys:\n  - id: %s\n    hash: %s\n", k.ID, k.Tenant, k.ID, hash)
		if len(k.Tasks) > 0 {
			fmt.Fprintf(out, "    tasks: [%s]\n", joinWords(k.Tasks))
		}
		fmt.Fprint(out, more)
	}
}

func joinWords[S ~string](words []S) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return strings.Join(all, ", ")
}

type keyListCmd struct {
	serverFlags
	Tenant switchboard.TenantID `help:"Only the keys of this tenant." placeholder:"ID"`
}

// Run prints the rows of keys of a running Switchboard, or of the configuration if nothing serves it.
func (k *keyListCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	rows, err := k.fetchKeys(ctx, k.Tenant)
	if _, nothing := errors.AsType[unreachableError](err); nothing && k.URL == "" {
		if _, serves := (&commonFlags{Config: k.Config, Data: k.Data}).findServing(""); !serves {
			rows, err = k.readKeys(ctx, io, log, err)
		}
	}
	if err != nil {
		return err
	}
	if k.JSON {
		return json.NewEncoder(io.raw).Encode(rows)
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tKIND\tTENANT\tID\tOPENS\tEXPIRES\tSTATE")
	for _, r := range rows {
		opens, expires, state := joinWords(r.Offices), "never", r.State
		switch {
		case r.Kind == admin.KeyOfOperator:
			opens = "everything but approvals"
		case r.Kind == admin.KeyOfAgent && len(r.Tasks) == 0:
			opens = "the default task"
		case r.Kind == admin.KeyOfAgent:
			opens = joinWords(r.Tasks)
		}
		if !r.Expires.IsZero() {
			expires = r.Expires.UTC().Format("2006-01-02 15:04")
		}
		if v := r.Revoked; v != nil {
			state += fmt.Sprintf(" by %s on %s", v.By, v.When.Format(time.DateOnly))
			if v.Reason != "" {
				state += ": " + printable(v.Reason, 100)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Key, r.Kind, r.Tenant, r.ID, opens, expires, state)
	}
	return w.Flush()
}

// readKeys reads the rows of keys from the files of the configuration, and what is revoked from its store. nothing says why no Switchboard was asked.
func (k *keyListCmd) readKeys(ctx context.Context, io streams, log *slog.Logger, nothing error) ([]admin.KeyRow, error) {
	if _, err := os.Stat(k.Config); err != nil {
		return nil, nothing
	}
	c, err := (&commonFlags{Config: k.Config, Data: k.Data}).loadConfig(ctx, log, config.Options{})
	if err != nil {
		return nil, err
	}
	if k.Tenant != "" && c.Tenants[k.Tenant] == nil {
		return nil, usageError{fmt.Errorf("%s has no tenant %q%s", k.Config, k.Tenant, config.SuggestName(string(k.Tenant), "tenants", config.TenantIDs(k.Config)))}
	}
	fmt.Fprintf(io.err, "switchboard: no Switchboard serves %s, so these are the keys in its files\n", k.Config)
	rows, err := admin.ListKeys(ctx, c, func() (store.Store, error) { return k.openRevocations(ctx, log) }, k.Tenant)
	if err != nil {
		fmt.Fprintf(io.err, "switchboard: the store cannot be read, so it is not known which of them are revoked: %v\n", err)
	}
	return rows, nil
}

// openRevocations opens the store, which has the revoked keys; nil if there is none yet.
func (k *keyListCmd) openRevocations(ctx context.Context, log *slog.Logger) (store.Store, error) {
	flags := storeFlags{Config: k.Config, Data: k.Data}
	where, _, err := flags.storeURL(ctx, log)
	if err != nil {
		return nil, err
	}
	if path, isFile := strings.CutPrefix(where, "file:"); isFile {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	} else if where == "memory:" { // it has ended with its process
		return nil, nil
	}
	return flags.openStore(ctx, log, false)
}

// fetchKeys reads the rows of keys of a running Switchboard.
func (s *serverFlags) fetchKeys(ctx context.Context, tenant switchboard.TenantID) ([]admin.KeyRow, error) {
	q := url.Values{}
	if tenant != "" {
		q.Set("tenant", string(tenant))
	}
	return fetchList[admin.KeyRow](ctx, s.asTarget(), "/v1/keys", "keys", q)
}

type keyRotateCmd struct {
	outputFlags
	ID string `arg:"" help:"The id in the key's row."`

	Config  string               `help:"The configuration with the row." placeholder:"FILE" default:"${config}"`
	Tenant  switchboard.TenantID `help:"The tenant of the key." default:"default"`
	Persons bool                 `name:"person" help:"It is a person's key: an operator's, a member's or an approver's."`
}

// Run prints a new key and the line for its hash.
func (k *keyRotateCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	c, err := (&commonFlags{Config: k.Config}).loadConfig(ctx, log, config.Options{})
	if err != nil {
		return err
	}
	prefix := identity.AgentPrefix
	if k.Persons {
		prefix = identity.PersonPrefix
	}
	rows := k.findRows(c)
	if len(rows) == 0 {
		return usageError{fmt.Errorf("%s has no key %q of tenant %s; \"switchboard key list\" shows the keys", k.Config, k.ID, k.Tenant)}
	}
	files := make([]string, len(rows))
	for i, r := range rows {
		if files[i] = r.file; r.next != "" {
			return fmt.Errorf(`the row of %s in %s has a next already, the hash of the key %s: a rotation has begun. Do one of these:
  if %s uses that key: write its hash as hash, and remove next; this ends the rotation
  if that key was lost: remove next, and rotate again`, k.ID, r.file, r.next, k.ID)
		}
	}
	text, hash := identity.Mint(prefix)
	if k.JSON {
		return json.NewEncoder(io.raw).Encode(map[string]any{"tenant": k.Tenant, "id": k.ID, "key": text, "next": hash})
	}
	fmt.Fprintf(io.out, "%s\n\nThis key is shown once; give it to %s. Then add to its row in %s:\n\n    next: %s\n\n", text, k.ID, strings.Join(slices.Compact(files), ", and in "), hash)
	fmt.Fprintf(io.out, "Both keys count. When the old one is used no more, write this hash as hash, and remove next.\n")
	return nil
}

// A rotatedRow is a row of the key that is to be rotated.
type rotatedRow struct {
	list string // of rows in a file
	file string
	next string // the first digits of the hash of its next key; "" if it has none
}

// findRows returns the rows of the key. A row with a next key stands in the configuration as two keys of one id, and ids are unique in a list.
func (k *keyRotateCmd) findRows(c *config.Config) (rows []rotatedRow) {
	tenantFile := "tenants/" + string(k.Tenant) + "/tenant.yaml"
	add := func(list, file string, hash [32]byte) {
		if i := slices.IndexFunc(rows, func(r rotatedRow) bool { return r.list == list }); i >= 0 {
			rows[i].next = hex.EncodeToString(hash[:])[:admin.HashDigits]
			return
		}
		rows = append(rows, rotatedRow{list: list, file: file})
	}
	if !k.Persons {
		for _, key := range c.Keys {
			if key.ID == k.ID && key.Tenant == k.Tenant {
				add("keys", tenantFile, key.Hash)
			}
		}
		return rows
	}
	for _, p := range c.People {
		switch {
		case p.ID != k.ID || p.Tenant != k.Tenant && !p.Operator:
		case p.Operator:
			add("operators", "switchboard.yaml", p.Hash)
		case slices.Contains(p.Offices, switchboard.OfficeApprover):
			add("approvers", "switchboard.yaml", p.Hash)
		default:
			add("members", tenantFile, p.Hash)
		}
	}
	return rows
}

type keyRevokeCmd struct {
	serverFlags
	Key    string               `arg:"" help:"The id in the key's row, or the first 12 digits of its hash as \"key list\" shows them."`
	Tenant switchboard.TenantID `help:"The tenant of the key." placeholder:"ID"`
	Reason string               `help:"The reason: shown by key list, and in the receipt." placeholder:"TEXT"`
}

// Run revokes the key at a running Switchboard.
func (k *keyRevokeCmd) Run(ctx context.Context, io streams) error {
	rows, err := k.fetchKeys(ctx, k.Tenant)
	if err != nil {
		return err
	}
	var found []admin.KeyRow
	for _, r := range rows {
		if r.ID == k.Key || r.Key == k.Key {
			found = append(found, r)
		}
	}
	digits := map[string]bool{}
	for _, r := range found {
		digits[r.Key] = true
	}
	switch {
	case len(digits) == 0:
		return usageError{fmt.Errorf("there is no key %q; \"switchboard key list\" shows the keys", k.Key)}
	case len(digits) > 1:
		return usageError{fmt.Errorf("%d keys have the id %s; name one by the first digits of its hash, as \"switchboard key list\" shows them", len(digits), k.Key)}
	}
	path := "/v1/keys/" + found[0].Key + "/revoke"
	if k.Tenant != "" {
		path += "?tenant=" + url.QueryEscape(string(k.Tenant))
	}
	answer, err := k.asTarget().changeAdmin(ctx, http.MethodPost, path, map[string]string{"reason": k.Reason})
	if err != nil {
		return err
	}
	var done admin.KeyRow
	if err := json.Unmarshal(answer.body, &done); err != nil {
		return err
	}
	if k.JSON {
		return json.NewEncoder(io.raw).Encode(done)
	}
	_, err = fmt.Fprintf(io.out, "the key %s of %s is revoked, here and at all replicas; remove its row when you edit the file\n", done.Key, done.ID)
	return err
}
