package author

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/boundary"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// CompileAll compiles layers, each together with its tests, and returns them without the tests. The error is Faults.
func CompileAll(sources []*Sources) ([]*policy.Layer, error) {
	layers := make([]*policy.Layer, len(sources))
	var faults switchboard.Faults
	for i, s := range sources {
		err := s.CompileTests()
		if err == nil {
			layers[i], err = policy.Compile(s.Kind, s.Files)
		}
		if found, ok := errors.AsType[switchboard.Faults](err); ok {
			faults = append(faults, found...)
		} else if err != nil {
			return nil, err
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return layers, nil
}

// A LayerChecker looks for probable mistakes in the layers of a configuration.
type LayerChecker struct {
	Tenants []*switchboard.Tenant  // sorted by id
	Servers []switchboard.ServerID // all of the configuration

	// Offers are the tools of each tenant. nil: no server was asked.
	Offers map[switchboard.TenantID]TenantOffer

	// Readers are the layers that may read the settings of tenants; nil means those that are checked.
	Readers []*Sources
}

// A TenantOffer has the tools that a tenant may use, and the servers that have not listed theirs.
type TenantOffer struct {
	Tools  []*switchboard.Tool
	Silent []switchboard.ServerID
}

// checkTime limits one evaluation of a layer that is tried.
const checkTime = 10 * time.Second

// Check returns the warnings about the layers, which CompileAll has compiled, and about the settings of the tenants. The names of the tools of
// silent servers were not checked.
func (c *LayerChecker) Check(ctx context.Context, sources []*Sources, layers []*policy.Layer) (warnings []Warning, silent []switchboard.ServerID, err error) {
	warnings = []Warning{}
	for i, s := range sources {
		warnings = append(warnings, c.checkLayer(ctx, s, layers[i])...)
	}
	readers := c.Readers
	if readers == nil {
		readers = sources
	}
	for _, t := range c.Tenants {
		found, err := c.warnUnread(t, readers)
		if err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, found...)
		silent = append(silent, c.Offers[t.ID].Silent...)
	}
	slices.Sort(silent)
	return warnings, slices.Compact(silent), nil
}

// warnUnread warns about policy settings of a tenant that no rule reads.
func (*LayerChecker) warnUnread(t *switchboard.Tenant, readers []*Sources) (out []Warning, err error) {
	var its []*Sources
	for _, s := range readers {
		if s.Tenant == "" || s.Tenant == t.ID {
			its = append(its, s)
		}
	}
	names, err := Unread(t.Policy, its...)
	for _, name := range names {
		out = append(out, Warning{
			File: "tenants/" + string(t.ID) + "/tenant.yaml", About: "unread",
			Text: fmt.Sprintf("policy: no rule reads %q; is it spelt as the rules spell it?", name),
		})
	}
	return out, err
}

// checkLayer returns the warnings about one layer.
func (c *LayerChecker) checkLayer(ctx context.Context, s *Sources, l *policy.Layer) []Warning {
	var known KnownNames
	var tried []Warning
	engine := policy.NewEngine(checkTime, 0)
	for _, t := range c.Tenants {
		known.VetoForTask = t.VetoForTask // the setting is the same for all tenants
		if s.Tenant != "" && t.ID != s.Tenant {
			continue
		}
		offer := c.Offers[t.ID]
		if c.Offers == nil {
			offer.Silent = t.Servers
		}
		known.Servers = append(known.Servers, t.Servers...)
		known.Silent = append(known.Silent, offer.Silent...)
		for _, tool := range offer.Tools {
			known.Tools = append(known.Tools, tool.ID)
		}
		for _, w := range Try(ctx, engine, t, s, l, offer.Tools) {
			if w.About != "allows-all" || !s.Shipped {
				tried = append(tried, w)
			}
		}
	}
	if s.Tenant == "" {
		known.Servers = slices.Clone(c.Servers) // the operator's rules may name servers that no tenant has yet
	}
	slices.Sort(known.Servers)
	known.Servers = slices.Compact(known.Servers)
	return append(Lint(s, l, known), tried...)
}

// RowWarnings returns the probable mistakes in boundaries among the warnings of a configuration.
func RowWarnings(all switchboard.Faults) (rows []Warning) {
	for _, f := range all {
		if path.Base(f.File) == "boundaries.yaml" {
			rows = append(rows, Warning{File: f.File, Line: f.Line, Column: f.Column, About: "boundary", Text: f.Text})
		}
	}
	return rows
}

// EvaluateFor asks the layers of the boundaries, the operator and the tenant about an input. Absent members of it get the values of the tenant's local principal. The error is a mistake in the
// input, or Faults of the policies. With expressions, the values of all expressions are added.
func EvaluateFor(ctx context.Context, t *switchboard.Tenant, input map[string]any, rows []capability.Boundary, sources []*Sources, expressions bool) (*Evaluation, error) {
	var layers []*policy.Layer
	switch l, err := boundary.ForTenants(rows); {
	case err != nil:
		return nil, err
	case l != nil:
		layers = append(layers, l)
	}
	for _, s := range sources {
		if s.Tenant != "" && s.Tenant != t.ID {
			continue
		}
		l, err := policy.Compile(s.Kind, s.Files)
		if err != nil {
			return nil, err
		}
		layers = append(layers, l)
	}
	if err := completeInput(input, t); err != nil {
		return nil, err
	}
	e := policy.NewEngine(0, 0)
	out, err := Evaluate(ctx, e, input, rows, layers...)
	if err == nil && expressions {
		err = out.addExpressions(ctx, e, layers)
	}
	return out, err
}

// completeInput adds defaults for absent members of an input.
func completeInput(input map[string]any, t *switchboard.Tenant) error {
	var word any = map[string]any{}
	if t.Policy != nil {
		d := json.NewDecoder(bytes.NewReader(t.Policy))
		d.UseNumber() // keeps the spelling of numbers
		if err := d.Decode(&word); err != nil {
			return err
		}
	}
	roles := []any{}
	for _, r := range t.Roles {
		roles = append(roles, r)
	}
	for k, v := range map[string]any{
		"phase":           string(policy.PhaseSelect),
		"now":             time.Now().UTC().Format(time.RFC3339Nano),
		"tenant_id":       string(t.ID),
		"tenant_policy":   word,
		"user_tier":       t.Tier,
		"mode":            string(t.Mode.Narrower(switchboard.Autopilot)),
		"principal":       map[string]any{"id": "local", "roles": roles, "auth": string(switchboard.AuthLocal)},
		"task":            map[string]any{"task_id": string(t.DefaultTask)},
		"requirement":     map[string]any{"constraints": []any{}},
		"candidate_tools": []any{},
	} {
		if _, ok := input[k]; !ok {
			input[k] = v
		}
	}
	return nil
}
