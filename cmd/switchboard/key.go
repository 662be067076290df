package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type keyCmd struct {
	New keyNewCmd `cmd:"" help:"Make an API key: print it once, and the lines that belong into the tenant's file."`
}

type keyNewCmd struct {
	outputFlags
	Config string               `help:"The configuration that names the tenants." placeholder:"FILE" default:"${config}"`
	Tenant switchboard.TenantID `help:"The tenant that the key belongs to." default:"default"`
	ID     string               `arg:"" help:"Who will use it: names the principal in decisions and logs."`
	Tasks  []switchboard.TaskID `name:"task" help:"A task that the key may bind; may be given more than once. Without it, only the default task."`

	Expires string `help:"The last day of the key, such as 2027-03-31, or the time when it ends. Without it, the key has no end." placeholder:"DAY"`
}

// Run prints the key and its hash. It writes no file: the person who edits the tenant's file decides
// which keys may call.
func (k *keyNewCmd) Run(io streams) error {
	if err := switchboard.CheckID(k.ID); err != nil {
		return usageError{err}
	}
	if k.ID == switchboard.LocalID {
		return usageError{fmt.Errorf("%s is whoever calls without a key; name the key otherwise", k.ID)}
	}
	if tenants := config.TenantIDs(k.Config); tenants != nil && !slices.Contains(tenants, string(k.Tenant)) {
		return usageError{fmt.Errorf("%s has no tenant %q%s", k.Config, k.Tenant, config.SuggestName(string(k.Tenant), "tenants", tenants))}
	}
	if k.Expires != "" {
		if end, err := config.ParseExpiry(k.Expires); err != nil || !time.Now().Before(end) {
			return usageError{fmt.Errorf("--expires: want a day or a time to come, such as 2027-03-31 or 2027-03-31T18:00:00Z, not %q", k.Expires)}
		}
	}
	text, hash := identity.Mint()
	if k.JSON {
		made := map[string]any{"tenant": k.Tenant, "id": k.ID, "key": text, "hash": hash, "tasks": k.Tasks}
		if k.Expires != "" {
			made["expires"] = k.Expires
		}
		return json.NewEncoder(io.raw).Encode(made)
	}
	fmt.Fprintf(io.out, "%s\n\n", text)
	fmt.Fprintf(io.out, "This key is shown once; give it to %s. Then add to tenants/%s/tenant.yaml:\n\nkeys:\n  - id: %s\n    hash: %s\n", k.ID, k.Tenant, k.ID, hash)
	if len(k.Tasks) > 0 {
		fmt.Fprintf(io.out, "    tasks: [%s]\n", joinTasks(k.Tasks))
	}
	if k.Expires != "" {
		fmt.Fprintf(io.out, "    expires: %s\n", k.Expires)
	}
	return nil
}

func joinTasks(tasks []switchboard.TaskID) (s string) {
	for i, t := range tasks {
		if i > 0 {
			s += ", "
		}
		s += string(t)
	}
	return s
}
