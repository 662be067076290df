package identity

import (
	"crypto/rand"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// operatorHeader is the request header that holds the proof of an Operator.
const operatorHeader = "Switchboard-Operator"

// An Operator marks and recognizes the requests of the operator within this process. Its proof is random, and never leaves the
// process: the process itself marks the requests that come over a connection of which it knows that the operator is at the other
// end. The zero value recognizes no request. It is safe for concurrent use.
type Operator struct{ proof switchboard.Secret }

// NewOperator returns an Operator with a new proof.
func NewOperator() Operator { return Operator{switchboard.NewSecret(rand.Text())} }

// Mark makes the request one of the operator.
func (o Operator) Mark(head http.Header) { head.Set(operatorHeader, o.proof.Reveal()) }

// Check refuses a request (SB-AUTH-002) that is not marked.
func (o Operator) Check(head http.Header) error {
	if o.proof.Reveal() == "" || !o.proof.Equal(switchboard.NewSecret(head.Get(operatorHeader))) {
		return switchboard.Refuse(switchboard.CodeNotAuthorized,
			"only the owner of the data folder may do that, by a command: run it in the folder that Switchboard serves from, or name its data folder with --data")
	}
	return nil
}
