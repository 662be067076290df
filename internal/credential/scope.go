package credential

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/oauth"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// insufficientScope is the error of a challenge that demands more scopes: RFC 6750 section 3.1.
const insufficientScope = "insufficient_scope"

// wantTimeout limits the record of a demand: the caller waits for it.
const wantTimeout = 5 * time.Second

// Demanded implements link.Credentials. It records what the server demands, so that the person's next consent asks for it: step-up, of the MCP
// specification. Only a person can give more scopes, so nothing is asked for here.
func (c *credentials) Demanded(p *switchboard.Principal, _ link.ShownToken, challenge []string) *switchboard.Error {
	parsed, ok := oauth.ParseChallenge(challenge)
	if !ok || parsed.Error != insufficientScope {
		return nil
	}
	e := &switchboard.Error{Code: switchboard.CodeConnectFirst, Unsent: true}
	e.Text = "the tool's server demands more rights (scopes) than its connection has; the call was not executed"
	scopes, err := parsed.Scopes()
	if err != nil {
		c.broker.log.Warn("a server demands more scopes, and its demand cannot be read", "server", string(c.server.ID), "error", err)
		e.Hint = "the operator asks the people who run server " + string(c.server.ID) + " which scopes it wants"
		return e
	}
	owner, row := OwnerOf(c.server, p), &c.server.Credential
	again := "connect it again: switchboard server connect " + string(c.server.ID)
	over := slices.DeleteFunc(slices.Clone(scopes), func(s string) bool { return row.Scopes == nil || slices.Contains(row.Scopes, s) })
	switch {
	case row.Kind == switchboard.CredentialClient, len(over) > 0:
		c.broker.log.Warn("a server demands scopes that its row does not allow", "server", string(c.server.ID), "demanded", scopes, "row", row.Scopes)
		e.Hint = "the operator decides whether to add them to the scopes in the row of server " + string(c.server.ID) + "; the log output names them"
		return e
	case owner.Person != "":
		e.Text = "the tool's server demands more rights (scopes) than your connection has: connect it again; the call was not executed"
	default:
		e.Hint = again
	}
	ctx, cancel := context.WithTimeout(context.Background(), wantTimeout)
	defer cancel()
	if err := c.broker.vault.Want(ctx, owner, scopes); err != nil && !errors.Is(err, vault.ErrNone) {
		c.broker.log.Warn("the scopes that a server demands could not be recorded", "server", string(c.server.ID), "demanded", scopes, "error", err)
	}
	return e
}

// widen returns the challenge with the scopes that the owner's connection has and those that the server has demanded since: without the first,
// the person would lose what already worked. Without a demand, it returns the challenge as it is.
func (b *Broker) widen(ctx context.Context, s *switchboard.Server, owner vault.Owner, issuer string, challenge oauth.Challenge) oauth.Challenge {
	was, err := b.vault.Read(ctx, owner)
	if err != nil || len(was.Wanted) == 0 || was.Label != issuer {
		return challenge
	}
	scopes := strings.Fields(challenge.Scope)
	for _, scope := range slices.Concat(was.Scopes, was.Wanted) {
		if allowed := s.Credential.Scopes; !slices.Contains(scopes, scope) && (allowed == nil || slices.Contains(allowed, scope)) {
			scopes = append(scopes, scope)
		}
	}
	challenge.Scope = strings.Join(scopes, " ")
	return challenge
}
