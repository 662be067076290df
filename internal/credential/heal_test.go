package credential

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/oauth"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

func TestAConnectionThatWasRefusedTwiceIsTriedAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c, call, _ := connected(t)
		owner := OwnerOf(c.server, &call.Principal)
		renewed := 0
		// The vault renews by itself what was rejected: here with tokens of the test.
		renew := func(context.Context, vault.ServerConnection) (vault.ServerConnection, error) {
			renewed++
			return vault.ServerConnection{Access: switchboard.NewSecret("another-token"), Expires: time.Now().Add(time.Hour)}, nil
		}
		first, _ := c.Held(&call.Principal)
		c.Refused(&call.Principal, first, nil)
		if _, ok := c.Held(&call.Principal); ok {
			t.Error("a refused token is shown again")
		}
		second, err := b.vault.Token(t.Context(), owner, renew)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), &call.Principal); err != nil { // it notes what has replaced the refused token
			t.Fatal(err)
		}
		c.Refused(&call.Principal, link.ShownToken{Token: second.Access, Generation: link.TokenGeneration(second.Generation)}, nil)
		if _, err := c.Get(t.Context(), &call.Principal); isConnectFirst(err) == nil {
			t.Errorf("after two refusals: %v", err)
		}
		time.Sleep(refusedHolds)
		if _, err := b.vault.Token(t.Context(), owner, renew); err != nil || renewed != 2 {
			t.Fatalf("%v, %d renewals", err, renewed)
		}
		if _, err := c.Get(t.Context(), &call.Principal); err != nil {
			t.Errorf("after %v: %v", refusedHolds, err)
		}
	})
}

func TestAServerThatRefusesTheTokensOfItsClientIsAskedForOneSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBroker(t)
		row := &switchboard.Server{ID: "tracker", Transport: switchboard.TransportHTTP, URL: "https://mcp.example.com/mcp", Credential: switchboard.Credential{
			Kind: switchboard.CredentialClient, ClientID: "abc", ClientSecret: switchboard.NewSecret("geheim"), Issuer: "https://id.example.com",
		}}
		c, _ := b.Of(row).(*credentials)
		c.made = time.Now() // as if the provider had just given a token
		c.Refused(nil, link.ShownToken{Token: switchboard.NewSecret("a-token"), Generation: link.TokenGeneration{Consent: 1, Tokens: 1}}, nil)
		_, err := c.Get(t.Context(), nil) // it would need a network
		if err == nil || oauth.KindOf(err) != oauth.Misconfigured {
			t.Errorf("Get = %v", err)
		}
		if !time.Now().Before(c.paused) || isConnectFirst(err) != nil {
			t.Errorf("paused until %v: %v", c.paused, err)
		}
	})
}

func TestACallThatLacksScopesWaitsForAnotherConsentAndKeepsTheLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c, call, _ := connected(t)
		owner, asked, checked, sent := OwnerOf(c.server, &call.Principal), 0, 0, 0
		call.Client = switchboard.Client{Capabilities: []byte(`{"elicitation":{"url":{}}}`), Ask: func(context.Context, string, []byte) ([]byte, error) {
			asked++
			return []byte(`{"action":"accept"}`), nil
		}}
		var consented atomic.Bool
		next := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			if sent++; !consented.Load() {
				return switchboard.Result{}, &switchboard.Error{Code: switchboard.CodeConnectFirst, Unsent: true, Text: "more scopes"}
			}
			return switchboard.Result{JSON: []byte(`{}`)}, nil
		})
		recheck := func(next switchboard.Caller) switchboard.Caller {
			return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
				checked++
				return next.Call(ctx, c)
			})
		}
		go func() {
			time.Sleep(time.Minute) // what a person takes
			consented.Store(true)
			made := vault.ServerConnection{Access: switchboard.NewSecret("wider"), Expires: time.Now().Add(time.Hour), Scopes: []string{"read"}}
			if _, err := b.vault.Save(context.Background(), owner, made); err != nil {
				t.Error(err)
			}
		}()
		began := time.Now()
		if _, err := b.ConnectFirst(func(ticket string) string { return "http://127.0.0.1/connect/" + ticket }, recheck, next).Call(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Minute || asked != 1 || sent != 2 || checked != 1 {
			t.Errorf("after %v: asked %d times, sent %d, checked again %d", took, asked, sent, checked)
		}
		consented.Store(false)
		call.Client = switchboard.Client{}
		_, err := b.ConnectFirst(func(ticket string) string { return "http://127.0.0.1/connect/" + ticket }, recheck, next).Call(t.Context(), call)
		if refused := isConnectFirst(err); refused == nil || refused.Hint == "" {
			t.Errorf("a client that shows no link gets %v", err)
		}
	})
}
