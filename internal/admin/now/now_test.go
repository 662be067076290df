package now

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/pins"
	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

func TestRequestsOfAgentsHideNoOtherConcern(t *testing.T) {
	t.Parallel()
	o := &Overview{}
	for i := range 1000 {
		o.Concerns = append(o.Concerns, Concern{Kind: KindApproval, Subject: fmt.Sprint(i)})
	}
	for i := range 60 {
		o.Concerns = append(o.Concerns, Concern{Kind: KindBudget, Subject: fmt.Sprint(i)}, Concern{Kind: KindTool, Subject: fmt.Sprint(i)})
	}
	for _, kind := range []ConcernKind{KindServer, KindPart, KindRecords, KindStore, KindReload} {
		o.Concerns = append(o.Concerns, Concern{Kind: kind})
	}
	o.arrange()
	var order []ConcernKind
	for _, c := range o.Concerns {
		order = append(order, c.Kind)
	}
	order = slices.Compact(order)
	if want := []ConcernKind{KindReload, KindStore, KindRecords, KindApproval, KindPart, KindServer, KindBudget, KindTool}; !slices.Equal(order, want) {
		t.Errorf("the order is %q, want %q", order, want)
	}
	if want := 3*50 + 5; len(o.Concerns) != want {
		t.Errorf("there are %d concerns, want %d", len(o.Concerns), want)
	}
	want := []KindCount{{KindApproval, 950, "switchboard approvals list"}, {KindBudget, 10, "switchboard budget status"}, {KindTool, 10, "switchboard status"}}
	if !slices.Equal(o.More, want) {
		t.Errorf("left out are %+v, want %+v", o.More, want)
	}
}

func TestTheRarestCodesOfRefusalsAreSummedUp(t *testing.T) {
	t.Parallel()
	for codes, want := range map[int]string{0: "", 1: "SB-00 1/1", 15: "SB-14 1/15, SB-13 1/14, others 5/0 in 16 rows", 20: "SB-19 1/20, SB-18 1/19, others 10/15 in 16 rows"} {
		o := &Overview{Spans: make([]SpanTally, 2)}
		for span := range o.Spans {
			o.Spans[span].Refusals = map[string]int64{}
			for i := range codes {
				o.Spans[span].Refusals[fmt.Sprintf("SB-%02d", i)] = int64(1 + span*i)
			}
		}
		if codes > 1 {
			o.Spans[0].Refusals[history.OtherCodes] = 5
		}
		o.addRefusals()
		got := ""
		for i, r := range o.Refusals {
			switch text := fmt.Sprintf("%s %d/%d", r.Code, r.Counts[0], r.Counts[1]); {
			case codes == 1 || i < 1:
				got += text
			case i < 2:
				got += ", " + text
			case i == len(o.Refusals)-1:
				got += fmt.Sprintf(", %s in %d rows", text, i+1)
			}
		}
		if got != want {
			t.Errorf("%d codes: %s, want %s", codes, got, want)
		}
		if o.Spans[0].Refusals != nil {
			t.Error("the spans have them, too")
		}
	}
}

func TestOnlyAnOperatorReadsWhyAnAtomIsRed(t *testing.T) {
	t.Parallel()
	red := []admin.RedAtom{
		{Summary: atom.Summary{ID: "acc.page", State: capability.Red, Reason: "the token has expired"}, Tenant: "acme", Capability: "cap.publish.page"},
		{Summary: atom.Summary{ID: "key.unused", State: capability.Red, Reason: "the variable X is not set"}},
	}
	for _, asOperator := range []bool{true, false} {
		o := &Overview{}
		o.addAtoms(red, "acme", asOperator)
		if c := o.Concerns[0]; c.Kind != KindAtom || c.Subject != "acc.page" || (len(c.Says) == 1) != asOperator || c.Command != "switchboard resolve cap.publish.page --probe --tenant acme" {
			t.Errorf("as operator: %v: %+v", asOperator, c)
		}
		if c := o.Concerns[1]; c.Command != "switchboard status" {
			t.Errorf("an atom without a capability: %+v", c)
		}
	}
}

func TestAnOfficerOfATenantIsOfferedNoCommandOfTheOperator(t *testing.T) {
	t.Parallel()
	status := &admin.StatusReport{Refused: &admin.RefusedReload{Why: "a fault"}, Faulty: []admin.PartStatus{{Part: "tenants/acme"}}}
	for _, asOperator := range []bool{true, false} {
		o := &Overview{}
		o.addStatus(status, "acme", asOperator)
		if len(o.Concerns) != 2 {
			t.Fatalf("the concerns are %+v", o.Concerns)
		}
		for _, c := range o.Concerns {
			if strings.Contains(c.Command, "validate") != asOperator {
				t.Errorf("as operator: %v: %s offers %q", asOperator, c.Kind, c.Command)
			}
		}
	}
}

func TestFrozenAndSuspendedDefinitionsNeedAPersonTheSuspendedFirst(t *testing.T) {
	t.Parallel()
	status := &admin.StatusReport{Servers: []admin.ServerStatus{{ServerStatus: upstream.ServerStatus{ID: "mail"}}, {ServerStatus: upstream.ServerStatus{ID: "files"}}}}
	for i := range status.Servers {
		status.Servers[i].State, status.Servers[i].Health.State = upstream.StateReady, health.Healthy
	}
	o := &Overview{}
	o.addPins([]pins.PinRow{
		{Server: "files", Kind: switchboard.PinTool, Name: "read", State: switchboard.LifeActive, Frozen: true, Why: "it differs"},
		{Server: "files", Kind: switchboard.PinInstructions, State: switchboard.LifeSuspended},
		{Server: "mail", Kind: switchboard.PinPrompt, Name: "say 'hi'", State: switchboard.LifeSuspended},
		{Server: "another", Kind: switchboard.PinTool, Name: "x", State: switchboard.LifeSuspended},
	}, status)
	o.arrange()
	var got []string
	for _, c := range o.Concerns {
		got = append(got, fmt.Sprintf("%s %s %s: %s", c.Kind, c.Subject, c.State, c.Command))
	}
	want := []string{
		"pin files suspended: switchboard pins diff files --kind instructions", "pin mail/say 'hi' suspended: switchboard pins list --changed", "pin files/read frozen: switchboard pins diff files/read",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the concerns are %q, want %q", got, want)
	}
}
