package bind

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const openTool = `{"name":"open","inputSchema":{"type":"object"},"_meta":{"x-summit-capabilities":[{"verb":"search","resource":"internet"},{"verb":"read","resource":"internet"}]}}`

// newBinder returns a Binder of three servers that each offer openTool, and the decisions that it records.
func newBinder(t *testing.T, starting []switchboard.ServerID, unfit map[switchboard.ToolID]health.State) (*Binder, *[]*decide.Decision) {
	t.Helper()
	s := threeServers(t, "package switchboard\nallowed_tools contains c.id if some c in input.candidate_tools\n", openTool, openTool, openTool)
	s.Starting = starting
	recorded := &[]*decide.Decision{}
	return New(Options{
		State: func() *State { return s },
		Unfit: func() map[switchboard.ToolID]health.State { return unfit },
		Record: func(_ *Tenant, d *decide.Decision, _ error) func() Record {
			*recorded = append(*recorded, d)
			return func() Record { return Record{Decision: d.Digest(), Receipt: "receipt"} }
		},
		Log: slog.New(slog.DiscardHandler),
	}, starting), recorded
}

func TestABoundTaskShowsTheToolsOfItsRecordedDecision(t *testing.T) {
	b, recorded := newBinder(t, nil, nil)
	s, err := b.Bind(t.Context(), localUser, "work", run.Before{})
	if err != nil {
		t.Fatal(err)
	}
	if got := serversOnSurface(s); !slices.Equal(got, []switchboard.ServerID{"a"}) {
		t.Errorf("the surface has the servers %q, want the best one, a", got)
	}
	if decision, _ := s.Decided(); len(*recorded) != 1 || decision != (*recorded)[0].Digest() {
		t.Errorf("the surface says that it shows decision %s; recorded are %d decisions", decision, len(*recorded))
	}
}

func TestAServerThatIsNotFitIsBoundOnlyWhileItIsOnTheSurface(t *testing.T) {
	b, _ := newBinder(t, nil, map[switchboard.ToolID]health.State{{Server: "a"}: health.Lost})
	fresh, err := b.Bind(t.Context(), localUser, "work", run.Before{})
	if err != nil {
		t.Fatal(err)
	}
	if got := serversOnSurface(fresh); slices.Contains(got, "a") {
		t.Errorf("a new run shows %q, although a is lost", got)
	}
	well, _ := newBinder(t, nil, nil)
	shown, err := well.Bind(t.Context(), localUser, "work", run.Before{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.Bind(t.Context(), localUser, "work", run.Before{Surface: shown})
	if err != nil {
		t.Fatal(err)
	}
	if got := serversOnSurface(again); !slices.Equal(got, []switchboard.ServerID{"a"}) {
		t.Errorf("a run that shows a moves to %q", got)
	}
	if lost := LostServers(b.o.Unfit(), func(switchboard.ToolID) bool { return false }, shown); !slices.Equal(lost, []switchboard.ServerID{"a"}) {
		t.Errorf("lost servers are %q, want a", lost)
	}
}

func TestATaskThatCannotBeMetWaitsForTheServersThatStart(t *testing.T) {
	b, recorded := newBinder(t, []switchboard.ServerID{"c"}, nil)
	empty := b.o.State()
	empty.Tenants["acme"].Pipeline = decide.Pipeline{offeredTools{}}
	_, err := b.Bind(t.Context(), localUser, "work", run.Before{})
	if s, ok := errors.AsType[*run.Waiting](err); !ok || !slices.Equal(s.Servers, []switchboard.ServerID{"c"}) {
		t.Fatalf("the error is %v, want a run.Waiting with c", err)
	}
	servers, next := b.Starting("acme")
	if !slices.Equal(servers, []switchboard.ServerID{"c"}) {
		t.Errorf("starting are %q, want c", servers)
	}
	b.Started(nil)
	select {
	case <-next:
	default:
		t.Error("Started does not wake the runs that wait")
	}
	if servers, _ = b.Starting("acme"); servers != nil {
		t.Errorf("starting are %q after all have started", servers)
	}
	empty.Starting = nil
	_, err = b.Bind(t.Context(), localUser, "work", run.Before{})
	if own, ok := errors.AsType[*switchboard.Error](err); !ok || own.Receipt != "receipt" || len(*recorded) != 1 {
		t.Errorf("once no server starts, the task is refused with %v; recorded are %d decisions", err, len(*recorded))
	}
}

func TestATaskThatCannotBeMetWaitsForTheServersThatAPersonMustConnect(t *testing.T) {
	b, recorded := newBinder(t, nil, map[switchboard.ToolID]health.State{{Server: "b"}: health.NeedsConnection})
	b.o.State().Tenants["acme"].Pipeline = decide.Pipeline{offeredTools{}}
	shown, err := b.Bind(t.Context(), localUser, "work", run.Before{})
	if !errors.As(err, new(*run.Waiting)) || len(serversOnSurface(shown)) != 0 || !strings.Contains(shown.Instructions(), "switchboard server connect b") {
		t.Fatalf("the error is %v, want a run.Waiting; the instructions are %q", err, shown.Instructions())
	}
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok || own.Code != switchboard.CodeUnmet || own.Receipt != "receipt" || !strings.Contains(own.Hint, "switchboard server connect b") || len(*recorded) != 1 {
		t.Errorf("calls are refused with %+v; recorded are %d decisions", own, len(*recorded))
	}
}

func TestATaskThatCannotBeMetWaitsForServersThatFailedBeforeTheyOfferedAnything(t *testing.T) {
	a, b := switchboard.ToolID{Server: "a"}, switchboard.ToolID{Server: "b"}
	bound := surface.New(surface.Input{Task: &switchboard.Task{ID: "work", Requirements: make([]switchboard.Requirement, 1)}, Selected: []decide.Selected{{Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: "b", Name: "x"}, Definition: []byte(`{"name":"x","inputSchema":{"type":"object"}}`)}, Requirements: []int{0}}}})
	for _, tt := range []struct {
		name   string
		known  []switchboard.ServerID // have offered something
		ailing map[switchboard.ToolID]health.State
		was    run.Before
		hint   string // what the refusal of a call says if the task waits
	}{
		{"out of service", []switchboard.ServerID{"a"}, map[switchboard.ToolID]health.State{b: health.Quarantine}, run.Before{}, "may have it: b; "},
		{"both", nil, map[switchboard.ToolID]health.State{b: health.Lost, a: health.Probation}, run.Before{}, "may have it: a, b; "},
		{"out of service, for a run that showed it", []switchboard.ServerID{"a"}, map[switchboard.ToolID]health.State{b: health.Quarantine}, run.Before{Surface: bound}, "may have it: b; "},
		{"just healthy, and its offer is not read yet", []switchboard.ServerID{"a"}, nil, run.Before{}, "may have it: b; "},
		{"another needs a connection, which a person can make", nil, map[switchboard.ToolID]health.State{a: health.NeedsConnection, b: health.Quarantine}, run.Before{}, "switchboard server connect a"},
		{"what it has is known", []switchboard.ServerID{"a", "b"}, map[switchboard.ToolID]health.State{b: health.Quarantine}, run.Before{}, ""},
		{"an operator has taken it out of service", []switchboard.ServerID{"a"}, map[switchboard.ToolID]health.State{b: health.Disabled}, run.Before{}, ""},
		{"another tenant's", []switchboard.ServerID{"a", "b"}, map[switchboard.ToolID]health.State{{Server: "theirs"}: health.Quarantine}, run.Before{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			binder, recorded := newBinder(t, nil, tt.ailing)
			st := binder.o.State()
			st.Tenants["acme"].Pipeline = decide.Pipeline{offeredTools{}}
			st.Offers = map[switchboard.ServerID]switchboard.Offer{}
			for _, id := range append(tt.known, "c") {
				st.Offers[id] = switchboard.Offer{Server: id}
			}
			shown, err := binder.Bind(t.Context(), localUser, "work", tt.was)
			own, ok := errors.AsType[*switchboard.Error](err)
			if !ok || own.Code != switchboard.CodeUnmet || own.Requirement == "" || own.Receipt != "receipt" || len(*recorded) != 1 {
				t.Fatalf("the error is %v, and recorded are %d decisions; want the refusal of the requirement, with its receipt", err, len(*recorded))
			}
			if waits := errors.As(err, new(*run.Waiting)); waits != (tt.hint != "") {
				t.Fatalf("it waits: %v; the error is %v", waits, err)
			}
			if tt.hint == "" {
				return
			}
			if !strings.Contains(own.Hint, tt.hint) || len(serversOnSurface(shown)) != 0 || !strings.Contains(shown.Instructions(), "No answer from: ") {
				t.Errorf("calls are refused with the hint %q; the instructions are %q", own.Hint, shown.Instructions())
			}
		})
	}
}
