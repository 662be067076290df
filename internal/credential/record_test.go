package credential

import (
	"context"
	"errors"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// deafKeeper writes no receipt.
type deafKeeper struct{}

var errDeaf = switchboard.Refuse(switchboard.CodeReceipt, "no receipt can be written")

func (deafKeeper) Durable() bool                                           { return true }
func (deafKeeper) Write(context.Context, *receipt.Receipt) (string, error) { return "", errDeaf }
func (deafKeeper) Add(*receipt.Receipt) string                             { return "" }

func TestWhereNoReceiptCanBeWrittenNoConnectionIsMadeOrEnded(t *testing.T) {
	b := newTestBroker(t)
	b.receipts = deafKeeper{}
	s := &switchboard.Server{ID: "wiki", Transport: switchboard.TransportHTTP, URL: "http://127.0.0.1:1/mcp"}
	owner := OwnerOf(s, nil)
	if _, err := b.vault.Save(t.Context(), owner, vault.ServerConnection{Access: switchboard.NewSecret("access")}); err != nil {
		t.Fatal(err)
	}
	if err := b.Disconnect(t.Context(), s, owner, receipt.Subject{}); !errors.Is(err, errDeaf) {
		t.Errorf("disconnect: %v", err)
	}
	if _, err := b.vault.Read(t.Context(), owner); err != nil {
		t.Errorf("the connection is gone: %v", err)
	}
	if err := b.End(t.Context(), s, &Consent{Owner: owner}, nil); !errors.Is(err, errDeaf) { // nothing is redeemed: there is no provider here
		t.Errorf("connect: %v", err)
	}
}
