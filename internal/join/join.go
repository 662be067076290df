// Package join lets a client on stdio use a Switchboard that already serves from the same data folder.
//
// It decides who may join. The process that serves listens on loopback, and a joiner has the token from operator.json (package
// serving). Both prove that they have it, and neither sends it, so a foreign program that has taken the port of a dead process
// learns nothing and is not believed:
//
//	joiner:  {"join":1,"nonce":"…"}
//	server:  {"nonce":"…","proof":"…"}                  HMAC of both nonces, with the token
//	joiner:  {"request":{"identity":"…",…},"proof":"…"}  HMAC of both nonces and of the request
//	server:  {"variables":["GITHUB_TOKEN"]}              any number of times
//	joiner:  {"values":["…"]}                            HMAC of both nonces, the name and the value
//	server:  {}                                          or {"refused":"why"} or {"differ":["GITHUB_TOKEN"]}
//
// Then both send the lines of MCP over stdio. A recorded handshake is useless, because both nonces are new each time. The lines of a
// handshake, its time and the number of joiners are bounded. What the joiners send afterwards is handled elsewhere.
//
// The server's configuration refers to environment variables. A joiner with other values of them would use servers with the secrets
// of another environment, so it is not let in. If a reload refers to more variables, the joiners join again.
package join

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// protocol is the version of the handshake.
const protocol = 2

// Bounds of a handshake.
const (
	// Patience limits the time of a handshake, on both sides. A process that is stopped does not answer in time. One that fifty clients
	// join at once on a small machine does, since to give it up costs a second set of servers.
	Patience = 10 * time.Second

	maxLine    = 16 << 10
	nonceBytes = 32

	maxAsked = 100 // variables in one line
	maxNamed = 10  // variables that the server names as different
)

// The purposes of the proofs. A proof for one purpose is useless for the others.
const (
	proofOfServer = "switchboard serves"
	proofOfJoiner = "switchboard joins"
	proofOfValue  = "switchboard reads a variable"
)

// Operate is the Joiner.Purpose of a command: after the handshake, it speaks HTTP/1.1. It may have another version than the server. It
// counts as the operator, since only the owner of the folder has the token.
const Operate = "operate"

// A Joiner is the request of a program that wants to join.
type Joiner struct {
	Purpose string `json:"purpose,omitempty"` // "" for a client, or Operate

	// Identity is the identity of the joiner; see serving.Identity. The server refuses another one than its own.
	Identity string `json:"identity,omitempty"`

	Task switchboard.TaskID `json:"task,omitempty"` // "" means the default task

	// Run names the run of the joiner: 128 random bits, in hex. With the id of an earlier connection, the joiner continues the run.
	Run switchboard.RunID `json:"run,omitempty"`

	// Connection is 1 for the joiner's first connection, and more for each later one. The server's questions on two connections have
	// different ids.
	Connection int `json:"connection,omitempty"`
}

type hello struct {
	Join  int    `json:"join"`
	Nonce string `json:"nonce"`
}

type challenge struct {
	Nonce string `json:"nonce"`
	Proof string `json:"proof"`
}

type signedRequest struct {
	Request json.RawMessage `json:"request"`
	Proof   string          `json:"proof"`
}

// A decision lets the joiner in if it is empty.
type decision struct {
	Refused   string   `json:"refused,omitempty"`
	Differ    []string `json:"differ,omitempty"`    // the joiner has other values of these variables
	Variables []string `json:"variables,omitempty"` // no decision yet: the server asks for their digests
}

type answer struct {
	Values []string `json:"values"` // the digests, in the order of decision.Variables
}

// ErrRefused wraps the reason of a server that does not let the joiner in.
var ErrRefused = errors.New("it refuses this client")

// A DifferenceError is the error of a joiner that has other values of variables than the server. A variable that is not set differs
// from one that is.
type DifferenceError struct{ Variables []string }

func (e *DifferenceError) Error() string {
	return "these variables have other values there: " + strings.Join(e.Variables, ", ")
}

// A Lookup returns the value of an environment variable, as os.LookupEnv does.
type Lookup func(name string) (value string, isSet bool)

// errNotBelieved is the error of a peer without the token.
var errNotBelieved = errors.New("it does not prove that it has the token of this folder")

// errOnlyProbed is the error of a peer that ends the handshake after the challenge; see Probe.
var errOnlyProbed = errors.New("it only asked whether this process serves")

// prove returns the proof that its sender has the token.
func prove(token switchboard.Secret, purpose string, nonces []string, text []byte) string {
	m := hmac.New(sha256.New, []byte(token.Reveal()))
	for _, part := range [][]byte{[]byte(purpose), []byte(nonces[0]), []byte(nonces[1]), text} {
		_, _ = fmt.Fprintf(m, "%d:", len(part)) // so that no two lists of parts have the same bytes
		_, _ = m.Write(part)
	}
	return hex.EncodeToString(m.Sum(nil))
}

// proveValue returns a digest of a variable and its value. Only programs with the token can guess values from it.
func proveValue(token switchboard.Secret, nonces []string, name string, env Lookup) string {
	text := name
	if value, ok := env(name); ok {
		text += "=" + value // no name has this character
	}
	return prove(token, proofOfValue, nonces, []byte(text))
}

// isProof compares in constant time.
func isProof(got, want string) bool { return hmac.Equal([]byte(got), []byte(want)) }

func newNonce() string {
	var b [nonceBytes]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func isNonce(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == nonceBytes
}

// A Joined is a connection after the handshake. Reads return what follows it.
type Joined struct {
	*net.TCPConn
	in     *bufio.Reader
	nonces []string
	leave  chan struct{}
}

// Leave is closed when the server wants the joiner to join again. Then the connection has to end.
func (c *Joined) Leave() <-chan struct{} { return c.leave }

// Read implements io.Reader.
func (c *Joined) Read(p []byte) (int, error) { return c.in.Read(p) }

func newConn(c net.Conn) (*Joined, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("%T is no connection of TCP", c)
	}
	return &Joined{TCPConn: tcp, in: bufio.NewReaderSize(c, maxLine), leave: make(chan struct{})}, nil
}

// readLine reads one line of the handshake. It takes nothing from the connection that follows the line.
func (c *Joined) readLine(into any) error {
	line, err := c.in.ReadSlice('\n')
	if err != nil { // also bufio.ErrBufferFull
		return err
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is more on the line")
	}
	return nil
}

func (c *Joined) writeLine(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.Write(append(text, '\n'))
	return err
}

// Dial joins the process at the address; env is the environment of the joiner, or nil for a command. The error is ErrRefused or a *DifferenceError if that
// process has the token and refuses. The address must be one of loopback.
func Dial(address string, token switchboard.Secret, r Joiner, env Lookup) (*Joined, error) {
	c, err := connect(address)
	if err != nil {
		return nil, err
	}
	if err := c.ask(token, r, env); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Probe reports whether the process at the address answers and proves that it has the token. It ends the handshake then, so it joins nothing.
func Probe(address string, token switchboard.Secret) error {
	c, err := connect(address)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing follows
	return c.challenge(token)
}

// connect opens a connection to an address of this machine.
func connect(address string) (*Joined, error) {
	if host, _, err := net.SplitHostPort(address); err != nil || !net.ParseIP(host).IsLoopback() {
		return nil, fmt.Errorf("%q is no address of this machine", address)
	}
	raw, err := net.DialTimeout("tcp", address, Patience)
	if err != nil {
		return nil, err
	}
	c, err := newConn(raw)
	if err == nil {
		err = c.SetDeadline(time.Now().Add(Patience))
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

// challenge lets the server prove that it has the token.
func (c *Joined) challenge(token switchboard.Secret) error {
	ours := newNonce()
	if err := c.writeLine(hello{protocol, ours}); err != nil {
		return err
	}
	var theirs challenge
	if err := c.readLine(&theirs); err != nil {
		return fmt.Errorf("it does not answer the handshake: %w", err)
	}
	c.nonces = []string{ours, theirs.Nonce}
	if !isNonce(theirs.Nonce) || !isProof(theirs.Proof, prove(token, proofOfServer, c.nonces, nil)) {
		return errNotBelieved
	}
	return nil
}

// ask is the joiner's side of the handshake.
func (c *Joined) ask(token switchboard.Secret, r Joiner, env Lookup) error {
	if err := c.challenge(token); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := c.writeLine(signedRequest{text, prove(token, proofOfJoiner, c.nonces, text)}); err != nil {
		return err
	}
	for {
		var d decision
		if err := c.readLine(&d); err != nil {
			return fmt.Errorf("it does not answer the request: %w", err)
		}
		switch {
		case d.Refused != "":
			return fmt.Errorf("%w: %s", ErrRefused, d.Refused)
		case len(d.Differ) > 0:
			return &DifferenceError{d.Differ}
		case len(d.Variables) == 0:
			return c.SetDeadline(time.Time{})
		case env == nil:
			return errors.New("it asks a command for variables")
		}
		var a answer
		for _, name := range d.Variables {
			a.Values = append(a.Values, proveValue(token, c.nonces, name, env))
		}
		if err := c.writeLine(a); err != nil {
			return err
		}
	}
}

// accept is the server's side of the handshake, until the request.
func (c *Joined) accept(token switchboard.Secret) (r Joiner, err error) {
	if err := c.SetDeadline(time.Now().Add(Patience)); err != nil {
		return r, err
	}
	var h hello
	switch err := c.readLine(&h); {
	case err != nil:
		return r, err
	case h.Join != protocol || !isNonce(h.Nonce):
		return r, errors.New("it does not begin as a joiner does")
	}
	ours := newNonce()
	c.nonces = []string{h.Nonce, ours}
	if err := c.writeLine(challenge{ours, prove(token, proofOfServer, c.nonces, nil)}); err != nil {
		return r, err
	}
	var s signedRequest
	if _, err := c.in.Peek(1); errors.Is(err, io.EOF) {
		return r, errOnlyProbed
	}
	switch err := c.readLine(&s); {
	case err != nil:
		return r, err
	case !isProof(s.Proof, prove(token, proofOfJoiner, c.nonces, s.Request)):
		return r, errNotBelieved
	}
	d := json.NewDecoder(bytes.NewReader(s.Request))
	d.DisallowUnknownFields()
	return r, d.Decode(&r)
}

// compareVariables asks the joiner for the digests of variables, and returns the names with another value in env.
func (c *Joined) compareVariables(token switchboard.Secret, names []string, env Lookup) (differ []string, err error) {
	if err := c.writeLine(decision{Variables: names}); err != nil {
		return nil, err
	}
	var a answer
	switch err := c.readLine(&a); {
	case err != nil:
		return nil, err
	case len(a.Values) != len(names):
		return nil, fmt.Errorf("it sends %d digests for %d variables", len(a.Values), len(names))
	}
	for i, name := range names {
		if !isProof(a.Values[i], proveValue(token, c.nonces, name, env)) {
			differ = append(differ, name)
		}
	}
	return differ, nil
}

// decide answers the request.
func (c *Joined) decide(d decision) error {
	if err := c.writeLine(d); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}
