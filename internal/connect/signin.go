package connect

import (
	"fmt"
	"slices"
)

// signInKeys are the keys of a client's entry for its registration at a server's provider (OAuth). The zero value is for a client without such
// keys. Switchboard never reads the tokens of a client.
type signInKeys struct {
	key    string            // of the object in an entry
	names  map[string]string // the keys in the object, and what package importer calls them; "" means that the value has no meaning for others
	scopes string            // the key of the scopes, if they stand beside the object
}

// The usual spelling.
var oauthNames = map[string]string{"clientId": "clientId", "clientSecret": "clientSecret", "scopes": "scopes", "scope": "scopes", "callbackPort": "callbackPort", "enabled": ""}

// translate rewrites the registration in an entry as package importer reads it. why says why the server must stay: the client signs in in a way that Switchboard
// cannot do.
func (k signInKeys) translate(o map[string]any) (why string) {
	if k.key == "" {
		return ""
	}
	out := map[string]any{}
	switch v := o[k.key].(type) {
	case nil, bool:
	case map[string]any:
		for _, name := range slices.Sorted(mapKeys(v)) {
			to, known := k.names[name]
			if !known {
				return fmt.Sprintf("its sign-in has a setting that Switchboard cannot take over (%s.%s)", k.key, name)
			}
			if to != "" && v[name] != nil {
				out[to] = v[name]
			}
		}
	default:
		return fmt.Sprintf("its sign-in cannot be read (%s)", k.key)
	}
	delete(o, k.key)
	if k.scopes != "" && o[k.scopes] != nil {
		out["scopes"] = o[k.scopes]
		delete(o, k.scopes)
	}
	if len(out) > 0 {
		o["oauth"] = out
	}
	return ""
}
