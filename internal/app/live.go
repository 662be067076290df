package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/cache"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
)

// A live answers what the wrappers of calls ask, by the state of the moment. It is safe for
// concurrent use.
type live struct {
	state    *atomic.Pointer[servingState]
	recorder *replay.Recorder
}

// grace returns how long stopping may take.
func (l live) grace() time.Duration { return l.state.Load().config.Grace }

// neighbors returns who shares servers with the principal.
func (l live) neighbors(p switchboard.Principal) (n slot.Neighbors) {
	n.Tenants, n.Principals = l.state.Load().Ring.Neighbors(p)
	return n
}

// limits returns the rate limits of a tenant.
func (l live) limits(id switchboard.TenantID) []switchboard.Limit {
	if t := l.state.Load().Tenants[id]; t != nil {
		return t.Limits
	}
	return nil
}

// budgets returns the tenant with its budgets, and the taxonomy. It is what a budget.Book asks.
func (l live) budgets(id switchboard.TenantID) (*switchboard.Tenant, *switchboard.Taxonomy) {
	if t := l.state.Load().Tenants[id]; t != nil {
		return t.Tenant, t.Taxonomy
	}
	return nil, nil
}

// currency returns the currency of all prices; "" if none is named.
func (l live) currency() string { return l.state.Load().config.Currency }

// currentPolicy returns the principal and the policy that decide about calls now. It is a
// policy.Current.
func (l live) currentPolicy(p switchboard.Principal) (switchboard.Principal, *policy.Policy, error) {
	return l.state.Load().CurrentPolicy(p)
}

// cleansResults reports whether the operator wants the results of the server cleaned (results:
// clean).
func (l live) cleansResults(id switchboard.ServerID) bool {
	s := l.state.Load().Servers[id]
	return s != nil && s.CleanResults
}

// permitQuestion asks policy whether the server of a call may ask the call's client something. It
// is a question.Permit.
func (l live) permitQuestion(ctx context.Context, c *switchboard.Call, method string, params []byte) error {
	who, p, err := l.currentPolicy(c.Principal)
	if err != nil {
		return err
	}
	own := *c
	own.Principal = who
	return p.JudgeQuestion(ctx, &own, policy.ServerQuestion{Method: method, Params: params}, time.Now())
}

// recordRuling records policy's ruling on a call. It is a policy.Note.
func (l live) recordRuling(c *switchboard.Call, p *policy.Policy, now time.Time, r policy.Ruling) {
	l.recorder.Ruling(l.state.Load().State, c, p, now, r)
}

// resultBound returns how many bytes of the text of one result the client of the call gets at once.
func (l live) resultBound(c *switchboard.Call) int {
	t := l.state.Load().Tenants[c.Principal.Tenant]
	if t == nil {
		return 0
	}
	return t.ResultBound(c.Principal, t.Tasks[c.Task])
}

// countTokens counts the tokens of the text.
func (l live) countTokens(text []byte) int { return l.state.Load().Tokens.Count(text) }

// inputCheck returns how strictly arguments for the server's tools are checked now.
func (l live) inputCheck(id switchboard.ServerID) switchboard.InputCheck {
	if server := l.state.Load().Servers[id]; server != nil {
		return server.CheckInput
	}
	return switchboard.CheckDefault
}

// checkArguments returns an error if the arguments do not fit the tool, as strictly as its server's
// arguments are checked now.
func (l live) checkArguments(tool *switchboard.Tool, args []byte) error {
	return contract.Check(l.inputCheck(tool.ID.Server), tool, args)
}

// cacheTerms returns the terms on which results of the server are cached that were got with a consent.
func (l live) cacheTerms(id switchboard.ServerID, consent uint64) cache.Terms {
	c := l.state.Load().config
	i := slices.IndexFunc(c.Servers, func(s switchboard.Server) bool { return s.ID == id })
	if c.Cache.TTL == 0 || i < 0 {
		return cache.Terms{}
	}
	s := &c.Servers[i]
	return cache.Terms{
		TTL:         c.Cache.TTL,
		Bytes:       c.Cache.Bytes,
		Shared:      s.Share == switchboard.ShareTenant || s.Share == switchboard.ShareAll,
		Credentials: calledAs(s),
		Consent:     consent,
	}
}

// calledAs returns a digest of the server's address, command and credentials.
func calledAs(s *switchboard.Server) (sum [sha256.Size]byte) {
	h := sha256.New()
	add := func(parts ...string) {
		for _, p := range parts {
			_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // it never fails
		}
	}
	add(s.URL, s.Dir, fmt.Sprint(len(s.Command)))
	add(s.Command...)
	add(s.Package.Name, s.Package.Version, s.Package.Lock)
	add(s.Network.Cert, s.Network.Key)
	for _, all := range []map[string]switchboard.Secret{s.Headers, s.Env} {
		add(fmt.Sprint(len(all)))
		for _, name := range slices.Sorted(maps.Keys(all)) {
			add(name, all[name].Reveal())
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}
