package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/pins"
	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/evidence"
	"github.com/summit-switchboard/switchboard/internal/pin"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/scan/suspect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// admitOffers returns the present offers as admission passes them on by the configuration. It keeps what is seen first.
func admitOffers(ctx context.Context, a *App, c *config.Config) []switchboard.Offer {
	return a.pins.Admit(ctx, a.fleet.Offers(), admissionTerms(a, c))
}

// admissionTerms returns the terms of a configuration for the offers of each server.
func admissionTerms(a *App, c *config.Config) func(*switchboard.Offer) admission.OfferTerms {
	rules := make(map[switchboard.ServerID]switchboard.AdmissionRules, len(c.Servers))
	for i := range c.Servers {
		rules[c.Servers[i].ID] = c.Servers[i].Admission
	}
	entries := map[switchboard.ServerID]map[admission.PinKey]switchboard.AdmittedPin{}
	for id, e := range c.Admitted {
		if entries[id.Server] == nil {
			entries[id.Server] = map[admission.PinKey]switchboard.AdmittedPin{}
		}
		entries[id.Server][admission.PinKey{Kind: id.Kind, Name: id.Name}] = e
	}
	peers := sync.OnceValue(func() *suspect.Peers { return suspect.NewPeers(admittedTools(a.state.Load())) })
	return func(o *switchboard.Offer) admission.OfferTerms {
		return admission.OfferTerms{Rules: rules[o.Server], Entries: entries[o.Server], FindBlocking: func(k admission.PinKey, definition []byte) string {
			if k.Kind == switchboard.PinTool {
				if rule, _ := peers().Imitated(switchboard.ToolID{Server: o.Server, Name: k.Name}); rule != "" {
					return rule
				}
			}
			return suspect.FindBlocking(definition)
		}, FindWords: findWords, WordRules: suspect.Version, Reports: a.evidence.Of(o.Server)}
	}
}

// findWords returns the rules that find something in the definition of a tool, without its peers: which tools are peers depends on the order in which servers answer, and
// policies must have the same input on every replica.
func findWords(k admission.PinKey, definition []byte) (found []switchboard.RuleFinding) {
	for _, f := range suspect.Find(switchboard.ToolID{Name: k.Name}, definition, &suspect.Peers{}) {
		found = append(found, switchboard.RuleFinding{Rule: f.Rule, Tier: f.Tier.String()})
	}
	slices.SortFunc(found, func(a, b switchboard.RuleFinding) int { return strings.Compare(a.Rule, b.Rule) })
	return slices.Compact(found)
}

// admittedTools returns the tools that clients can have, which no other tool may look like. st may be nil.
func admittedTools(st *servingState) (peers []suspect.PeerTool) {
	if st == nil {
		return nil
	}
	for _, t := range st.Catalog.Tools() {
		if a := t.Admission; t.Provides == nil && (a == nil || a.State == switchboard.LifeActive || a.State == switchboard.LifeDeprecated) {
			peers = append(peers, suspect.PeerTool{ID: t.ID})
		}
	}
	return peers
}

// newRegistrar returns what carries out the decisions of officers about pins.
func newRegistrar(a *App, actions *admin.Actions) *pins.Registrar {
	return pins.New(pins.Options{
		Board: a.pins, Tool: func(id switchboard.ToolID) *switchboard.Tool {
			t, _ := a.state.Load().Catalog.Tool(id)
			return t
		}, Editor: a.admin.editor, HasFile: a.options.Officers.File != "", Admit: a.rebuildState, Record: actions.Record, Stopping: a.grace.ctx,
		Report: func(id switchboard.ToolID, digest string) *evidence.KeptReport {
			return a.evidence.Of(id.Server).ReportOf(id.Name, digest)
		},
		Find: func(id switchboard.PinID, definition []byte) []pins.PinFinding { return findSuspect(a, id, definition) },
	})
}

// recordStates writes the receipt of a report.
func recordStates(ledger *receipt.Ledger, c *pin.ChangeReport) {
	r := receipt.Receipt{Kind: receipt.Pin, Server: c.Server, Note: summaryOf(c), Pins: receipt.PinsReport{Since: c.Since, Changes: c.Changes, Definitions: c.Definitions}}
	for _, n := range c.Named {
		r.Pins.Named = append(r.Pins.Named, receipt.ChangedPin{
			Kind: string(n.Key.Kind), Name: n.Key.Name, State: n.State, Class: n.Class, Admitted: n.Admitted, Offered: n.Offered, Why: n.Why,
		})
		if n.Key.Kind == switchboard.PinTool {
			r.Tools = append(r.Tools, switchboard.ToolID{Server: c.Server, Name: n.Key.Name}.String())
		}
	}
	ledger.Add(&r)
}

// summaryOf counts the definitions of a report by their present state.
func summaryOf(c *pin.ChangeReport) string {
	var said []string
	for _, state := range pin.States {
		if n := c.States[state]; n > 0 {
			said = append(said, fmt.Sprint(n, " ", state))
		}
	}
	text := strings.Join(said, ", ")
	if c.Changes > c.Definitions {
		text += fmt.Sprintf(", after %d changes", c.Changes)
	}
	if len(c.Named) == 1 && c.Definitions == 1 {
		text += ": " + switchboard.PinID{Server: c.Server, Kind: c.Named[0].Key.Kind, Name: c.Named[0].Key.Name}.String()
	}
	return text
}

// openPins returns the board of pins of this process. changed is called after other processes have changed pins.
func openPins(a *App, changed func()) *pin.Board {
	return pin.New(pin.Options{
		Store: a.store, Self: cmp.Or(a.cluster.Self(), rand.Text()), Changed: changed, Count: a.metrics.CountDefinitionChange, Log: a.log,
		Report:      func(c *pin.ChangeReport) { recordStates(a.ledger, c) },
		HeldChanged: func(id switchboard.ServerID) { a.admin.events.Add(event.Occurrence{Type: event.Pin, Server: id}) },
	})
}

// findSuspect returns what a person should know about the texts of a definition. It knows the names of other tools, and not their definitions, so it finds no clones.
func findSuspect(a *App, id switchboard.PinID, definition []byte) (found []pins.PinFinding) {
	if id.Kind == switchboard.PinInstructions { // a text, and no object
		definition = slices.Concat([]byte(`{"instructions":`), definition, []byte("}"))
	}
	means := map[string]string{}
	for _, r := range suspect.Rules() {
		means[r.ID] = r.Words
	}
	for _, f := range suspect.Find(switchboard.ToolID{Server: id.Server, Name: id.Name}, definition, suspect.NewPeers(admittedTools(a.state.Load()))) {
		found = append(found, pins.PinFinding{Rule: f.Rule, Means: means[f.Rule], Blocks: f.Tier == suspect.Blocking, Where: f.Where, Text: f.Text})
	}
	return found
}

// countDefinitions returns how many definitions each server offers in each state. counts are those of pins. What the operator's rules keep out counts as that, and not as
// its pin says. st may be nil.
func countDefinitions(counts map[switchboard.ServerID]map[string]int, st *servingState) map[switchboard.ServerID]map[string]int {
	all := make(map[switchboard.ServerID]map[string]int, len(counts))
	for id, states := range counts {
		own := maps.Clone(states) // which others read
		own[pin.KeptOut] = 0
		all[id] = own
	}
	if st == nil {
		return all
	}
	for _, t := range st.Catalog.Tools() {
		if t.Admission == nil || !t.Admission.KeptOut {
			continue
		}
		state := string(switchboard.LifeActive)
		if a := st.Offers[t.ID.Server].Admissions[t.ID.Name]; a != nil {
			if state = string(a.State); a.Frozen {
				state = pin.Frozen
			}
		}
		if own := all[t.ID.Server]; own[state] > 0 { // else the state in force is older than the counts
			own[state]--
			own[pin.KeptOut]++
		}
	}
	return all
}

// maxLoggedOut limits the tools that a log entry names.
const maxLoggedOut = 5

// logKeptOut logs which of the tools the operator's rules keep out. undecided says that they could not be evaluated for some.
func logKeptOut(log *slog.Logger, tools []*switchboard.Tool, undecided bool) {
	count, named := 0, []string(nil)
	for _, t := range tools {
		if t.Admission == nil || !t.Admission.KeptOut {
			continue
		}
		if count++; len(named) < maxLoggedOut {
			named = append(named, t.ID.String()+": "+t.Admission.Why)
		}
	}
	if count > 0 {
		log.Warn("tools are kept out; see switchboard pins list --state new", "tools", count, "some", strings.Join(named, "; "), "undecided", undecided)
	}
}
