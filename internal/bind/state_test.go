package bind

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/fstest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// stateOf returns the state of a configuration with one server and no offers.
func stateOf(t *testing.T, bound, tenant string) *State {
	t.Helper()
	c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fstest.MapFS{
		"switchboard.yaml":             {Data: []byte("servers: {a: {transport: stdio, command: [a]}}\ntenants: {acme: {servers: [a], " + bound + "}}\n")},
		"tenants/acme/tenant.yaml":     {Data: []byte("tenant: acme\ndefault_task: work\n" + tenant)},
		"tenants/acme/tasks/work.yaml": {Data: []byte("task_id: work\nrequired_capabilities: [{verb: read, resource: fs, optional: true}]\n")},
		"tenants/acme/tasks/rest.yaml": {Data: []byte("task_id: rest\nrequired_capabilities: [{verb: read, resource: fs, optional: true}]\n")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return NewState(inputOf(t, c, 0), nil)
}

// inputOf compiles the policies of the configuration. Limit is the time for an evaluation; 0 means the usual one.
func inputOf(t *testing.T, c *config.Config, limit time.Duration) Input {
	t.Helper()
	in := Input{Config: c, Operator: c.Policies, Policies: map[switchboard.TenantID]*policy.Policy{}, Local: "acme", StatusTool: &switchboard.Tool{}}
	if in.Operator == nil {
		in.Operator = policysource.Shipped()
	}
	operator, err := policy.Compile(policy.Operator, in.Operator)
	if err != nil {
		t.Fatal(err)
	}
	engine := policy.NewEngine(limit, 0)
	for id, tenant := range c.Tenants {
		if in.Policies[id], err = engine.NewPolicy(tenant, operator, nil); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

// A run is bound again by what its principal may do now, not by the rights that it had when the run
// was opened.
func TestDecisionsUseThePresentRightsOfThePrincipal(t *testing.T) {
	law.Hold(t, law.OneDecision)
	const hash = `hash: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"`
	for name, tt := range map[string]struct {
		was           switchboard.Principal
		bound, tenant string
		want          switchboard.Principal
		code          switchboard.Code // if want is not set
	}{
		"a key that was narrowed": {
			was: switchboard.Principal{
				Tenant: "acme", ID: "ci", Auth: switchboard.AuthAPIKey, Tasks: []switchboard.TaskID{"work", "rest"},
				Roles: []string{"admin", "analyst"}, Tier: "pro", Mode: switchboard.Autopilot,
			},
			bound:  "tier: [free, pro], roles: [analyst]",
			tenant: "keys: [{id: ci, " + hash + ", tasks: [work], roles: [analyst], mode: observe}]\n",
			want: switchboard.Principal{
				Tenant: "acme", ID: "ci", Auth: switchboard.AuthAPIKey, Tasks: []switchboard.TaskID{"work"},
				Roles: []string{"analyst"}, Tier: "free", Mode: switchboard.Observe,
			},
		},
		"a key that is gone": {
			was:    switchboard.Principal{Tenant: "acme", ID: "ci", Auth: switchboard.AuthAPIKey, Tasks: []switchboard.TaskID{"work"}},
			tenant: "keys: [{id: other, " + hash + "}]\n",
			code:   switchboard.CodeNotAuthenticated,
		},
		"a key that does not name the task any more": {
			was:    switchboard.Principal{Tenant: "acme", ID: "ci", Auth: switchboard.AuthAPIKey, Tasks: []switchboard.TaskID{"work"}},
			tenant: "keys: [{id: ci, " + hash + ", tasks: [rest]}]\n",
			code:   switchboard.CodeNoSuchTask,
		},
		"the local principal": {
			was:    switchboard.Principal{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal, Roles: []string{"admin"}, Tier: "max", Mode: switchboard.Autopilot},
			bound:  "tier: [free, pro], roles: [writer, analyst]",
			tenant: "mode: assist\n",
			want:   switchboard.Principal{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal, Roles: []string{"analyst", "writer"}, Tier: "free", Mode: switchboard.Assist},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(t, tt.bound, tt.tenant)
			task, err := s.ResolveTask(tt.was, "work")
			if tt.code != "" {
				if got := codeOf(err); got != tt.code {
					t.Errorf("resolve = %q, %v; want %s", task, err, tt.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			d, err := s.DecideConfigured(context.Background(), tt.was, task, decide.Observed{}, time.Now())
			if err != nil || !reflect.DeepEqual(d.Principal, tt.want) {
				t.Errorf("decided for %+v (%v), want %+v", d.Principal, err, tt.want)
			}
		})
	}
	gone := switchboard.Principal{Tenant: "acme", ID: "ci", Auth: switchboard.AuthAPIKey}
	if _, err := stateOf(t, "", "").DecideConfigured(t.Context(), gone, "work", decide.Observed{}, time.Now()); codeOf(err) != switchboard.CodeNotAuthenticated {
		t.Errorf("a decision for a removed key: %v", err)
	}
}

func codeOf(err error) switchboard.Code {
	if e, ok := err.(*switchboard.Error); ok { //nolint:errorlint // it is not wrapped
		return e.Code
	}
	return ""
}

func TestARunWithADeclaredTaskOfATenantThatIsGoneIsRefused(t *testing.T) {
	s := &State{Tenants: map[switchboard.TenantID]*Tenant{}, Config: &config.Config{}, Ring: identity.New(nil, &switchboard.Tenant{ID: "gone"}, true, nil)}
	declared := run.Before{Declared: &switchboard.Task{ID: switchboard.DeclaredTask}}
	_, err := s.decideRun(t.Context(), switchboard.Principal{Tenant: "gone", ID: switchboard.LocalID, Auth: switchboard.AuthLocal}, "", declared, decide.Observed{})
	if own, ok := errors.AsType[*switchboard.Error](err); !ok || own.Code != switchboard.CodeNotAuthorized {
		t.Errorf("%v", err)
	}
}
