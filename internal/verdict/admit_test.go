package verdict_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

// A fakeProber has these states; a probe changes them to next.
type fakeProber struct {
	states, next map[string]capability.State
	probed       []string
	within       time.Duration
}

func (p *fakeProber) StatesWithin(within time.Duration, ids ...string) map[string]capability.State {
	p.within = within
	return p.states
}

func (p *fakeProber) Due(_ context.Context, ids ...string) {
	p.probed = append(p.probed, ids...)
	maps.Copy(p.states, p.next)
}

func TestACallIsAdmittedWhileAllAtomsAreWell(t *testing.T) {
	t.Parallel()
	atom := func(id string, critical, probed bool) *capability.Atom {
		a := &capability.Atom{ID: id, Critical: critical}
		if probed {
			a.Probe.Env = "X"
		}
		return a
	}
	v := &capability.ContractVersion{
		ID: "page.post", Number: semver.MustParse("1.0.0"), Status: capability.Active, Atoms: []string{"acc", "key"}, Facts: capability.Facts{FreshFor: 3 * time.Hour},
		Capabilities: []capability.Ref{{ID: "net.get"}},
	}
	below := &capability.ContractVersion{ID: "net.get", Number: semver.MustParse("1.0.0"), Status: capability.Active, Atoms: []string{"net"}, Facts: capability.Facts{FreshFor: time.Hour}}
	r, err := capability.New([]*capability.ContractVersion{v, below}, map[string]*capability.Atom{"acc": atom("acc", false, true), "key": atom("key", false, false), "net": atom("net", true, true)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	type states = map[string]capability.State
	const fresh, stale, red = capability.Fresh, capability.Stale, capability.Red
	for _, tt := range []struct {
		name         string
		states, next states
		version      string
		probed, want string // want is in the cause of the refusal; "" means that the call is made
	}{
		{name: "all are well", states: states{"acc": fresh, "key": fresh, "net": fresh}},
		{name: "one that has no probe is not known", states: states{"acc": fresh, "net": fresh}},
		{name: "one is red", states: states{"acc": red, "key": fresh, "net": fresh}, want: "acc: red"},
		{name: "one of a required capability is red", states: states{"acc": fresh, "key": fresh, "net": red}, want: "net: red"},
		{name: "a stale one is probed, and is well", states: states{"acc": stale, "net": fresh}, next: states{"acc": fresh}, probed: "acc"},
		{name: "a stale one is probed, and is red", states: states{"acc": stale, "net": fresh}, next: states{"acc": red}, probed: "acc", want: "acc: red"},
		{name: "no probe answers in time", states: states{"acc": fresh}, probed: "net", want: "net: no probe has said in time"},
		{name: "the version is gone", states: states{"acc": fresh, "net": fresh}, version: "page.post@2.0.0", want: "not in the registry"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := &fakeProber{states: tt.states, next: tt.next}
			made := false
			call := verdict.Admit(func() *capability.Registry { return r }, p, switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
				made = true
				return switchboard.Result{}, nil
			}))
			version := tt.version
			if version == "" {
				version = "page.post@1.0.0"
			}
			_, err := call.Call(t.Context(), &switchboard.Call{Tool: &switchboard.Tool{Contract: switchboard.Contract{Capability: version}}})
			if got := strings.Join(p.probed, " "); got != tt.probed {
				t.Errorf("probed %q, want %q", got, tt.probed)
			}
			if tt.version == "" && p.within != time.Hour {
				t.Errorf("the freshness budget is %v, want the smallest of all versions", p.within)
			}
			refused, ok := errors.AsType[*switchboard.Error](err)
			switch {
			case tt.want == "" && (err != nil || !made):
				t.Errorf("the call was not made: %v", err)
			case tt.want != "" && (!ok || made || refused.Code != switchboard.CodeNotNow || !refused.Unsent || !strings.Contains(refused.Cause.Error(), tt.want)):
				t.Errorf("made %v, refused %v, want %q", made, err, tt.want)
			}
			if ok && !strings.HasSuffix(refused.Hint, "switchboard_status with the capability "+version) {
				t.Errorf("the hint is %q", refused.Hint)
			}
			if ok && (strings.Contains(refused.Text+refused.Hint, "acc") || strings.Contains(refused.Text+refused.Hint, "net:")) {
				t.Errorf("the answer names an atom: %s", refused.Text)
			}
		})
	}
}
