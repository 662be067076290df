package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxRuleValue is how many bytes of a rule's value are shown, as JSON.
const maxRuleValue = 64 << 10

// A PolicyCheck has the probable mistakes in policies.
type PolicyCheck struct {
	Layers   int              `json:"layers"` // that were checked
	Warnings []author.Warning `json:"warnings"`

	// Silent are the servers that have not listed their tools yet. The names of their tools in rules were not checked.
	Silent []switchboard.ServerID `json:"silent,omitempty"`

	// Stopped says why the check was ended before its end. There are no warnings then.
	Stopped string `json:"stopped,omitempty"`
}

// A PolicyEvaluation is the answer of the policies of a tenant to one input.
type PolicyEvaluation struct {
	Tenant switchboard.TenantID `json:"tenant"`

	// Stopped says why the evaluation was ended before its end. There is no evaluation then.
	Stopped string `json:"stopped,omitempty"`

	Evaluation *author.Evaluation `json:"evaluation,omitempty"`
}

// A PolicyTrial is what a check or an evaluation takes in the place of what is in force.
type PolicyTrial struct {
	Files []CandidateFile // of the tenant's layer

	// Boundaries is the configuration with the boundaries that are tried, which was checked; nil means those in force.
	Boundaries *config.Config

	// Capability is a reference to a version that is evaluated as a candidate too; "" means none.
	Capability string

	// Expressions asks an evaluation for the values of all expressions.
	Expressions bool
}

// Check looks for probable mistakes in the layer of a tenant, with candidates in the place of files; "" means all layers, the operator's and the
// boundaries too. The error is a *switchboard.Error.
func (p *PolicyTester) Check(ctx context.Context, id switchboard.TenantID, trial PolicyTrial) (*PolicyCheck, error) {
	release, err := p.tests.take(id)
	if err != nil {
		return nil, err
	}
	defer release()
	c := p.reads.o.Configuration()
	checker := &author.LayerChecker{Offers: map[switchboard.TenantID]author.TenantOffer{}}
	for _, one := range slices.Sorted(maps.Keys(c.Config.Tenants)) {
		if id != "" && one != id {
			continue
		}
		checker.Tenants = append(checker.Tenants, c.Config.Tenants[one])
		var offer author.TenantOffer
		offer.Tools, offer.Silent = p.reads.Offered(one)
		checker.Offers[one] = offer
	}
	for _, s := range c.Config.Servers {
		checker.Servers = append(checker.Servers, s.ID)
	}
	sources := sourcesOf(&c, id, trial.Files)
	if id != "" { // the operator's layer only says which settings its rules read
		checker.Readers = sources
		sources = slices.DeleteFunc(slices.Clone(sources), func(s *author.Sources) bool { return s.Tenant != id })
	}
	check := &PolicyCheck{Layers: len(sources), Warnings: []author.Warning{}}
	rows := []author.Warning{}
	if with := cmp.Or(trial.Boundaries, c.Config); (id == "" || trial.Boundaries != nil) && len(with.Registry.Boundaries) > 0 {
		check.Layers++
		rows = append(rows, author.RowWarnings(with.Warnings)...)
		for i := range rows {
			rows[i].File = config.BoundariesPath
		}
	}
	check.Stopped, err = p.bounded(ctx, "the check was stopped", func(ctx context.Context) error {
		layers, err := author.CompileAll(sources)
		if err != nil {
			return err
		}
		warnings, silent, err := checker.Check(ctx, sources, layers)
		if err == nil && ctx.Err() == nil {
			check.Warnings, check.Silent = append(rows, warnings...), silent
		}
		return err
	})
	return check, err
}

// Evaluate asks the policies of a tenant about an input, with a trial in the place of what is in force. Without operator, it leaves out the values of
// the operator's rules and the boundaries. The error is a *switchboard.Error.
func (p *PolicyTester) Evaluate(ctx context.Context, id switchboard.TenantID, input map[string]any, trial PolicyTrial, operator bool) (*PolicyEvaluation, error) {
	c := p.reads.o.Configuration()
	t := c.Config.Tenants[id]
	if t == nil {
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "there is no tenant %.64q; name one with ?tenant=ID, or as tenant_id of the input", id)
	}
	if said, ok := input["tenant_id"]; ok && said != string(id) {
		return nil, switchboard.Refuse(switchboard.CodeBadArguments, "the input has another tenant_id than the request, which is about tenant %s", id)
	}
	release, err := p.tests.take(id)
	if err != nil {
		return nil, err
	}
	defer release()
	if trial.Capability != "" {
		if err := author.AddCapability(input, c.Config.Registry, trial.Capability); err != nil {
			return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: err.Error()}
		}
	}
	out := &PolicyEvaluation{Tenant: id}
	var got *author.Evaluation
	out.Stopped, err = p.bounded(ctx, "the evaluation was stopped", func(ctx context.Context) (err error) {
		got, err = author.EvaluateFor(ctx, t, input, cmp.Or(trial.Boundaries, c.Config).Registry.BoundariesIn(config.BoundariesPath), sourcesOf(&c, id, trial.Files), trial.Expressions)
		if _, faulty := errors.AsType[switchboard.Faults](err); err != nil && !faulty {
			return &switchboard.Error{Code: switchboard.CodeBadArguments, Text: err.Error()}
		}
		return err
	})
	if err != nil || out.Stopped != "" {
		return out, err
	}
	for i := range got.Candidates {
		if !operator {
			got.Candidates[i].Rows = nil
		}
	}
	for i := range got.Layers {
		l := &got.Layers[i]
		if l.Layer != string(policy.Tenant) && !operator {
			if l.Rules, l.Expressions = nil, nil; l.Error != "" {
				l.Error = "it could not be evaluated; an operator can see why"
			}
		}
		for k := range l.Rules {
			shortenValue(&l.Rules[k])
		}
	}
	out.Evaluation = got
	return out, nil
}

// shortenValue replaces the value of a rule if it is too large to be shown.
func shortenValue(v *author.RuleValue) {
	if text, err := json.Marshal(v.Value); err == nil && len(text) > maxRuleValue {
		v.Value, v.Error = nil, fmt.Sprintf("its value has %d bytes, and at most %d are shown", len(text), maxRuleValue)
	}
}

// sourcesOf returns the layers of a configuration: the operator's and the tenant's with candidates in the place of files; all layers for the empty
// tenant. Files are named as in the folder of the configuration, wherever that is.
func sourcesOf(c *Configuration, id switchboard.TenantID, candidates []CandidateFile) (all []*author.Sources) {
	own := false
	for _, s := range policysource.Of(c.Config) {
		if s.Tenant != "" && id != "" && s.Tenant != id {
			continue
		}
		folder := "policies"
		if s.Tenant != "" {
			s.Name = policyFolder(s.Tenant)
			folder = s.Name
		}
		if s.Tenant == id && id != "" {
			s.Files, own = withCandidates(s.Files, candidates), true
		}
		s.Files = slices.Clone(s.Files)
		for i := range s.Files {
			s.Files[i].Name = folder + "/" + s.Files[i].Path
		}
		all = append(all, s)
	}
	if files := withCandidates(nil, candidates); id != "" && !own && len(files) > 0 {
		s := &author.Sources{Kind: policy.Tenant, Tenant: id, Name: policyFolder(id), Files: files}
		for i := range files {
			files[i].Name = s.Name + "/" + files[i].Path
		}
		all = append(all, s)
	}
	return all
}
