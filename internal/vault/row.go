package vault

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A connectionRow is the value of a connection in the store:
//
//	"\x00cn1"  consent (8 bytes)  count (8 bytes)  nonce (12 bytes)  sealed( JSON )  tag (16 bytes)
//
// The name of the value, which is a hash of the owner, and everything before the nonce are authenticated with the JSON.
type connectionRow struct {
	consent uint64 // random, for each consent
	count   uint64 // of the changes of the row since the consent

	unwritten bool // the tokens are in the memory of this process only

	Owner Owner      `json:"owner"`
	State grantState `json:"state"`
	Claim string     `json:"claim,omitempty"` // the id of the renewal that has the row, or had it when the row became spent
	Ended string     `json:"ended,omitempty"` // the id of the last renewal that wrote its end

	Tokens  uint64    `json:"tokens"` // how many sets of tokens the consent has had
	Access  string    `json:"access"`
	Expires time.Time `json:"expires,omitzero"`
	Grant   string    `json:"grant,omitempty"`
	Renewed time.Time `json:"renewed"`
	Consent consent   `json:"consent"`
}

// A consent is what does not change until the next consent. Only Wanted grows.
type consent struct {
	Subject string    `json:"subject,omitempty"`
	Label   string    `json:"label,omitempty"`
	Scopes  []string  `json:"scopes,omitempty"`
	Wanted  []string  `json:"wanted,omitempty"` // see Vault.Want
	Made    time.Time `json:"made"`
}

// A grantState says what may be done with the grant of a row.
type grantState string

const (
	stateReady   grantState = "ready"   // it may be used
	stateAsking  grantState = "asking"  // the renewal Claim uses it now, or was killed
	stateSpent   grantState = "spent"   // it may have been used, and the answer is lost
	stateRefused grantState = "refused" // the provider has refused it
)

const (
	rowMagic = "\x00cn1"
	rowHead  = len(rowMagic) + 16

	// maxText is the most bytes that a sealed text may have.
	maxText = 256 << 10
)

// connectionGroups is the number of groups that connections are spread over, because one read of a group is limited.
const connectionGroups = 16

const groupPrefix = "connection/"

// groupOf returns the group of the value with the name, which is in hex.
func groupOf(name string) string { return groupPrefix + name[:1] }

// rowName returns the name of the owner's row.
func (o Owner) rowName() string {
	return nameOf(kindConnection, string(o.Tenant), o.Person, string(o.Server), o.Resource)
}

// newConsent returns a random number for a consent.
func newConsent() uint64 {
	var b [8]byte
	rand.Read(b[:]) // it never fails
	return binary.BigEndian.Uint64(b[:])
}

// sealRow returns the row as it is stored under the name.
func (s *sealer) sealRow(name string, r *connectionRow) ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("%w: a connection has %d bytes; at most %d", store.ErrInvalid, len(text), maxText)
	}
	head := append(make([]byte, 0, rowHead), rowMagic...)
	head = binary.BigEndian.AppendUint64(head, r.consent)
	head = binary.BigEndian.AppendUint64(head, r.count)
	return s.seal(kindConnection, name, head, text), nil
}

// openRow returns the row that is stored under the name, and which key opened it.
func (s *sealer) openRow(name string, data []byte) (r *connectionRow, key int, err error) {
	if !bytes.HasPrefix(data, []byte(rowMagic)) {
		return nil, 0, ErrUnreadable
	}
	text, key, ok := s.open(kindConnection, name, rowHead, data)
	if !ok {
		return nil, 0, ErrUnreadable
	}
	r = &connectionRow{}
	if json.Unmarshal(text, r) != nil || r.Owner.rowName() != name {
		return nil, 0, ErrUnreadable
	}
	r.consent = binary.BigEndian.Uint64(data[len(rowMagic):])
	r.count = binary.BigEndian.Uint64(data[len(rowMagic)+8:])
	return r, key, nil
}

// connection returns what callers see of the row.
func (r *connectionRow) connection() ServerConnection {
	return ServerConnection{
		Generation: Generation{r.consent, r.Tokens},
		Access:     switchboard.NewSecret(r.Access), Expires: r.Expires, Grant: switchboard.NewSecret(r.Grant), Renewed: r.Renewed,
		Subject: r.Consent.Subject, Label: r.Consent.Label, Scopes: r.Consent.Scopes, Wanted: r.Consent.Wanted, Made: r.Consent.Made,
	}
}

func (r *connectionRow) token() Token {
	return Token{switchboard.NewSecret(r.Access), Generation{r.consent, r.Tokens}, r.Expires}
}

// due returns when the tokens should be renewed; zero if that is unknown.
func (r *connectionRow) due() time.Time {
	if r.Expires.IsZero() {
		return time.Time{}
	}
	return r.Expires.Add(-min(early, r.Expires.Sub(r.Renewed)/2))
}

// setTokens puts the tokens of c, the next set of the consent, into the row.
func (r *connectionRow) setTokens(c *ServerConnection, now time.Time) {
	r.Tokens++
	r.Access, r.Expires, r.Renewed = c.Access.Reveal(), c.Expires, now
	if grant := c.Grant.Reveal(); grant != "" { // a provider that does not rotate sends none
		r.Grant = grant
	}
	if c.Scopes != nil {
		r.Consent.Scopes = c.Scopes
	}
}

// connectAgain reports whether only a person can give new tokens.
func (r *connectionRow) connectAgain() bool {
	return r.State == stateSpent || r.State == stateRefused || r.State == stateReady && r.Grant == ""
}
