package credential

import (
	"context"
	"errors"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// CheckConnection returns why the connection that Switchboard's own requests to a server use is of no use, and what to do about it; "" if it is valid or
// could be renewed. known is false if that cannot be found out now: the server is not configured yet, or the store cannot be read. The provider is asked
// only if the token has expired.
func CheckConnection(ctx context.Context, b *Broker, id switchboard.ServerID) (why string, known bool) {
	all, ok := b.servers.Load(id)
	if !ok {
		return "", false
	}
	c, _ := all.(*credentials)
	shown, err := c.Get(ctx, nil)
	if err == nil && shown.Token.Reveal() != "" {
		return "", true
	}
	if err == nil { // the server demands no token, as far as is known
		if _, err = b.vault.Read(ctx, OwnerOf(c.server, nil)); !errors.Is(err, vault.ErrNone) {
			return "", false
		}
		return "nobody has connected it; connect it: switchboard server connect " + string(id), true
	}
	own, ok := errors.AsType[*switchboard.Error](err)
	switch {
	case !ok || own.Code == switchboard.CodeStoreUnavailable:
		return "", false
	case own.Code == switchboard.CodeProviderAway:
		return "its provider gives no token now", true
	case own.Hint != "":
		return own.Text + "; " + own.Hint, true
	}
	return own.Text, true
}
