package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/verification"
	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/evidence"
	"github.com/summit-switchboard/switchboard/internal/npm"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify/bench"
)

// verifyLease is how long the right lasts to verify by schedule.
const verifyLease = 3 * time.Minute

// newVerifier returns what verifies servers. Its calls pass the wrappers of chain that hold for each call, whoever makes it.
func newVerifier(a *App, chain *callChain) *verification.Verifier {
	dir, _ := os.Getwd() // without one, no argument of a server is relative to it
	sole := lease.New(a.store, lease.Options{Key: store.Key{Group: "evidence schedule", Name: "lease"}, TTL: verifyLease, Data: []byte(cmp.Or(a.cluster.Self(), rand.Text()))})
	return verification.New(verification.Options{
		Server: func(id switchboard.ServerID) *switchboard.Server { return a.state.Load().Servers[id] },
		Tools:  func(id switchboard.ServerID) []verification.KnownTool { return knownTools(a, id) },
		Served: a.fleet,
		Offer:  func(id switchboard.ServerID) *switchboard.Offer { return bench.FindOffer(a.fleet, id) },
		Relist: func(ctx context.Context, id switchboard.ServerID) (*switchboard.Offer, bool) {
			return bench.RelistOffer(ctx, a.fleet, id)
		},
		Wrap: func(next switchboard.Caller, walled bool) switchboard.Caller {
			return wrapCaller(next, chain.verifyWrappers(verifyPolicy(a), walled))
		},
		Judgment: func(t *switchboard.Tool) *switchboard.Judgment {
			return policy.NewJudgment(&switchboard.Task{ID: "verify"}, &switchboard.Requirement{Tools: []string{t.ID.String()}}, []*switchboard.Tool{t})
		},
		Bench: bench.Options{
			Guard: a.options.Guard, Own: func() []string { return ownFiles(a, a.state.Load().config) }, Prepare: npm.NewKeeper(packagesFolder(a.options.Data), a.store, a.log).Prepare,
			Dir: dir, Name: a.options.Name, Version: a.options.Version, Log: slog.New(slog.DiscardHandler),
		},
		Book: a.evidence, Archive: a.recorder.Keep,
		Record: func(ctx context.Context, r *receipt.Receipt) (string, error) {
			if !a.ledger.Durable() {
				return a.ledger.Add(r), nil
			}
			return a.ledger.Write(ctx, r)
		},
		Mine: func(ctx context.Context) bool { return sole.Renew(ctx) == nil },
		Work: a.work.Go, Stopping: a.grace.ctx, Log: a.log,
	})
}

// openEvidence returns the reports of verifications.
func openEvidence(a *App, changed func()) *evidence.ReportBook {
	return evidence.New(evidence.Options{Store: a.store, Key: a.ledger.Key("evidence"), Changed: changed, Log: a.log})
}

// knownTools returns the tools of a server with the digests of their pins.
func knownTools(a *App, id switchboard.ServerID) (all []verification.KnownTool) {
	s := a.state.Load()
	known := map[string]verification.KnownTool{}
	for _, v := range a.pins.Verdicts(id) {
		if v.Key.Kind == switchboard.PinTool {
			k := verification.KnownTool{Digest: digestOf(&v), Changed: v.Other != nil && v.Pin.Digest != ""}
			if v.Pin.By != "" {
				k.LetIn = v.Pin.Since
			}
			known[v.Key.Name] = k
		}
	}
	for _, t := range s.Catalog.Tools() {
		if t.ID.Server == id && t.Provides == nil {
			k := known[t.ID.Name]
			k.Tool, k.Examples = t, s.config.Overlays[t.ID].Examples
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b verification.KnownTool) int { return strings.Compare(a.ID.Name, b.ID.Name) })
	return all
}

// digestOf returns the digest of the admitted definition, or of the offered one if none is.
func digestOf(v *admission.PinVerdict) string {
	if v.Pin.Digest == "" && v.Other != nil {
		return v.Other.Digest
	}
	return v.Pin.Digest
}

// verifyPolicy returns the policy for calls that verify tools: the operator's layers alone.
func verifyPolicy(a *App) policy.CurrentPolicy {
	return func(p switchboard.Principal) (switchboard.Principal, *policy.Policy, error) {
		s := a.state.Load()
		return p, s.verification, nil
	}
}

// serversInForce returns the rows of the servers, sorted by id.
func serversInForce(a *App) (all []*switchboard.Server) {
	s := a.state.Load()
	for i := range s.config.Servers {
		all = append(all, &s.config.Servers[i])
	}
	return all
}
