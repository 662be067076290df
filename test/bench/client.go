package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// patience is how long a client waits for one answer. An answer that takes
// longer is lost.
const patience = 60 * time.Second

// What can be wrong with an answer.
var (
	errLost  = errors.New("lost")  // none came, or a refusal
	errCut   = errors.New("cut")   // it began, and ended early
	errWrong = errors.New("wrong") // complete, but not the answer to the request
)

// An endpoint is what a client connects to.
type endpoint struct {
	era string
	url *url.URL
	key string // an API key, or ""
}

// A client is one session on one connection. It writes and reads HTTP itself, because it shares the machine with the contestants and must be cheap, and
// because it must see where an answer breaks off.
type client struct {
	endpoint
	name    string // part of each nonce, so that no two clients ask the same
	tool    string // that is called; "" means echo
	head    string // of every request, up to the headers of the message
	session string // the legacy session, as a header line

	slow    int // bytes that are read at a time, with rests between; 0 means all
	conn    net.Conn
	dialled atomic.Pointer[net.Conn] // conn, for interrupt
	in      *bufio.Reader
	out     []byte
	answer  bytes.Buffer // the body of the last response
	id      int

	message []byte // of it, the part that answers

	listed [sha256.Size]byte // of the first tools/list, without its id
}

func newClient(e endpoint, name string) *client {
	head := "POST " + e.url.RequestURI() + " HTTP/1.1\r\nHost: " + e.url.Host +
		"\r\nUser-Agent: bench\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	if e.key != "" {
		head += "Authorization: Bearer " + e.key + "\r\n"
	}
	return &client{endpoint: e, name: name, head: head, id: 100_000_000}
}

// open connects, and makes the handshake of the era.
func (c *client) open() error {
	if c.era == modern {
		_, err := c.ask("server/discover", "", "")
		return err
	}
	resp, err := c.ask("initialize", "", `"protocolVersion":"`+legacyVersion+`","capabilities":{},"clientInfo":{"name":"bench","version":"1"}`)
	if err != nil {
		return err
	}
	if !bytes.Contains(c.message, []byte(`"result"`)) {
		return refusal(c.message, c.id)
	}
	c.session = "Mcp-Protocol-Version: " + legacyVersion + "\r\n"
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		c.session += "Mcp-Session-Id: " + id + "\r\n"
	}
	return c.tell("notifications/initialized")
}

// end closes the session, if there is one, and the connection.
func (c *client) end() {
	if c.session != "" && c.conn != nil {
		_, _ = c.roundTrip(append([]byte("DELETE"+strings.TrimPrefix(c.head, "POST")+c.session), "\r\n"...)) // some refuse it
	}
	c.hangUp()
}

func (c *client) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// call calls echo and checks every byte of the answer.
func (c *client) call(size int) (took time.Duration, err error) {
	n := nonce(c.name, c.id+1)
	began := time.Now()
	tool := cmp.Or(c.tool, echo)
	_, err = c.ask("tools/call", tool, `"name":"`+tool+`","arguments":{"nonce":"`+n+`","size":`+strconv.Itoa(size)+`}`)
	took = time.Since(began)
	if err != nil {
		return took, err
	}
	return took, checkCall(c.message, c.id, n, size)
}

// list asks for all tools. The first answer is read well, and the others must
// be like it.
func (c *client) list(tools int) (took time.Duration, err error) {
	began := time.Now()
	_, err = c.ask("tools/list", "", "")
	took = time.Since(began)
	if err != nil {
		return took, err
	}
	message := c.message
	id := fmt.Appendf(nil, `"id":%d`, c.id)
	before, after, ok := bytes.Cut(message, id)
	if !ok {
		return took, fmt.Errorf("%w: a list with another id", errWrong)
	}
	h := sha256.New()
	_, _ = h.Write(before) // never fails
	_, _ = h.Write(after)
	sum := [sha256.Size]byte(h.Sum(nil))
	if sum == c.listed {
		return took, nil
	}
	if c.listed != [sha256.Size]byte{} {
		return took, fmt.Errorf("%w: a list unlike the one before", errWrong)
	}
	var m struct {
		Result struct {
			Tools      []struct{ Name string }
			NextCursor string
		}
	}
	names := map[string]bool{}
	if err := json.Unmarshal(message, &m); err != nil {
		return took, fmt.Errorf("%w: %w", errWrong, err)
	}
	for _, t := range m.Result.Tools {
		names[t.Name] = true
	}
	if len(names) != tools || !names[echo] || m.Result.NextCursor != "" {
		return took, fmt.Errorf("%w: a list of %d tools instead of %d", errWrong, len(names), tools)
	}
	c.listed = sum
	return took, nil
}

// checkCall returns an error unless message is the answer to the call with this id, nonce and size.
func checkCall(message []byte, id int, nonce string, size int) error {
	head, piece := text(nonce, size)
	const mark = `"text":"`
	before, after, ok := bytes.Cut(message, []byte(mark))
	if !ok {
		return refusal(message, id)
	}
	got := after
	after, ok = bytes.CutPrefix(after, []byte(head))
	if !ok && bytes.Contains(got, []byte(refused)) {
		return refusal(message, id)
	}
	if !ok {
		return fmt.Errorf("%w: the answer to another call: %.60s", errWrong, got)
	}
	after, ok = bytes.CutPrefix(after, piece)
	if !ok || len(after) == 0 || after[0] != '"' {
		return fmt.Errorf("%w: not the text that was asked for", errWrong)
	}
	// What is left is small and has no text in it.
	small := append(append(bytes.Clone(before), mark...), after...)
	var m struct {
		JSONRPC string `json:"jsonrpc"`
		ID      int    `json:"id"`
		Result  struct {
			Content []struct{ Type, Text string }
			IsError bool
		}
		Error json.RawMessage
	}
	if err := json.Unmarshal(small, &m); err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	if m.JSONRPC != "2.0" || m.ID != id || m.Error != nil || m.Result.IsError ||
		len(m.Result.Content) != 1 || m.Result.Content[0].Type != "text" || m.Result.Content[0].Text != "" {
		return fmt.Errorf("%w: the envelope: %s", errWrong, small)
	}
	return nil
}

// refusal returns the error for a message without a text: a refusal, or an answer to another request.
func refusal(message []byte, id int) error {
	var m struct {
		ID     int
		Result struct {
			IsError bool
			Meta    map[string]json.RawMessage `json:"_meta"`
		}
		Error json.RawMessage
	}
	err := json.Unmarshal(message, &m)
	why := m.Error
	if m.Result.IsError {
		why = m.Result.Meta[refused]
	}
	if err != nil || m.ID != id || why == nil {
		return fmt.Errorf("%w: no text: %.300s", errWrong, message)
	}
	return fmt.Errorf("%w: refused: %.300s", errLost, why)
}

// refused is the member of _meta that marks a refusal of Switchboard.
const refused = "io.switchboard/error"

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernVersion + `","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// ask sends a request. The message that answers is then c.message.
func (c *client) ask(method, name, params string) (*http.Response, error) {
	c.id++
	headers := c.session
	if c.era == modern {
		if params != "" {
			params += ","
		}
		params += modernMeta
		headers = "Mcp-Protocol-Version: " + modernVersion + "\r\nMcp-Method: " + method + "\r\n"
		if name != "" {
			headers += "Mcp-Name: " + name + "\r\n"
		}
	}
	resp, err := c.post(headers, `{"jsonrpc":"2.0","id":`+strconv.Itoa(c.id)+`,"method":"`+method+`","params":{`+params+`}}`)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %s: %s: %.300s", errLost, method, resp.Status, c.message)
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		c.message, err = lastEvent(c.message)
	}
	return resp, err
}

// tell sends a notification.
func (c *client) tell(method string) error {
	resp, err := c.post(c.session, `{"jsonrpc":"2.0","method":"`+method+`"}`)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%w: %s: %s", errLost, method, resp.Status)
	}
	return err
}

func (c *client) post(headers, body string) (*http.Response, error) {
	c.out = append(c.out[:0], c.head...)
	c.out = append(c.out, headers...)
	c.out = append(c.out, "Content-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(c.out, "\r\n\r\n"...)
	c.out = append(c.out, body...)
	return c.roundTrip(c.out)
}

// roundTrip writes a request and reads the whole response into c.answer. After
// an error the connection is closed; the next request opens another.
func (c *client) roundTrip(request []byte) (resp *http.Response, err error) {
	if c.conn == nil {
		if c.conn, err = net.DialTimeout("tcp", c.url.Host, patience); err != nil {
			c.conn = nil
			return nil, fmt.Errorf("%w: %w", errLost, err)
		}
		conn := c.conn
		c.dialled.Store(&conn)
		if c.in = bufio.NewReaderSize(c.conn, 4<<10); c.slow > 0 {
			if tcp, ok := c.conn.(*net.TCPConn); ok {
				_ = tcp.SetReadBuffer(c.slow) // else the kernel reads ahead
			}
			c.in = bufio.NewReaderSize(slowReader{c.conn, c.slow}, c.slow)
		}
	}
	defer func() {
		if err != nil || resp.Close {
			c.hangUp()
		}
	}()
	c.answer.Reset()
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	if _, err := c.conn.Write(request); err != nil {
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	resp, err = http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errLost, err)
	}
	if n := resp.ContentLength; n > 0 {
		c.answer.Grow(int(n) + bytes.MinRead)
	}
	if _, err := c.answer.ReadFrom(resp.Body); err != nil {
		return nil, fmt.Errorf("%w: %w", errCut, err)
	}
	c.message = c.answer.Bytes()
	return resp, resp.Body.Close()
}

// lastEvent returns the data of the last event of a stream, on one line as all
// servers write it.
func lastEvent(stream []byte) ([]byte, error) {
	at := bytes.LastIndex(stream, []byte("\ndata:")) + 1
	data, ok := bytes.CutPrefix(stream[at:], []byte("data:"))
	if !ok {
		return nil, fmt.Errorf("%w: a stream without an answer", errLost)
	}
	data, _, _ = bytes.Cut(data, []byte("\n"))
	return bytes.TrimSpace(data), nil
}

// watch opens the session's stream for messages from the server, on a
// connection of its own.
func (c *client) watch() (io.Closer, error) {
	conn, err := net.DialTimeout("tcp", c.url.Host, patience)
	if err != nil {
		return nil, err
	}
	request := strings.Replace(c.head, "POST", "GET", 1)
	request = strings.Replace(request, "Content-Type: application/json\r\n", "", 1)
	request = strings.Replace(request, "application/json, text/event-stream", "text/event-stream", 1)
	if _, err := io.WriteString(conn, request+c.session+"\r\n"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("GET: %s", resp.Status), conn.Close())
	}
	return conn, nil
}
