package atom

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

const (
	attemptTimeout = 5 * time.Second
	maxAnswer      = 64 << 10 // bytes; an atom with a longer answer is red
)

// errUntold says that no probe could be made, so there is no result.
var errUntold = errors.New("no probe could be made")

var errTooLong = fmt.Errorf("its answer is longer than %d KiB", maxAnswer>>10)

// A dialer opens a connection like net.Dialer.DialContext.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// checkOnce makes one attempt. The error is the reason why the atom is not well, in our own words: an answer of the other end may
// repeat a secret.
func (p *Prober) checkOnce(ctx context.Context, probe *capability.AtomProbe) error {
	attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := p.check(attempt, probe)
	if err != nil && !errors.Is(err, errUntold) && attempt.Err() != nil {
		return fmt.Errorf("it did not answer within %s", attemptTimeout)
	}
	return err
}

func (p *Prober) check(ctx context.Context, probe *capability.AtomProbe) error {
	switch {
	case probe.HTTP != "":
		return p.checkHTTP(ctx, probe)
	case probe.TCP != "":
		conn, err := guarded(p.o.Dial)(ctx, "tcp", probe.TCP)
		if err != nil {
			return connectReason(err)
		}
		_ = conn.Close() // the connection was opened, which is the answer
		return nil
	case probe.Env != "":
		return checkEnv(probe.Env)
	case probe.File != "":
		return checkFile(p.o.Folder, probe.File)
	case probe.Tool.Name != "":
		return p.checkTool(ctx, probe)
	case probe.OAuth != "" && p.o.Connection != nil:
		return checkConnection(p.o.Connection(ctx, probe.OAuth))
	}
	return errUntold
}

// checkConnection returns the reason of Options.Connection as an error.
func checkConnection(why string, known bool) error {
	switch {
	case !known:
		return errUntold
	case why != "":
		return errors.New(why)
	}
	return nil
}

// newClient returns the client of all http probes. It keeps no connection, because the next probe is far away.
func newClient(open dialer) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: guarded(open), Proxy: http.ProxyFromEnvironment,
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxAnswer,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A linkLocalError says that a probe names a link-local address. Clouds give out a machine's credentials there.
type linkLocalError struct{ addr netip.Addr }

func (e *linkLocalError) Error() string {
	return fmt.Sprintf("the probe leads to the link-local or metadata address %s, which no probe may reach", e.addr)
}

// guarded returns a dialer that also refuses link-local addresses that the operator wrote: package dial allows these.
func guarded(open dialer) dialer {
	if open == nil {
		open = dial.Context
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		if err := checkHost(host); err != nil {
			return nil, err
		}
		return open(ctx, network, address)
	}
}

// checkHost refuses a host that is a link-local address.
func checkHost(host string) error {
	ip, err := netip.ParseAddr(strings.TrimSuffix(host, "."))
	if err == nil && dial.OnLink(ip) {
		return &linkLocalError{ip}
	}
	return nil
}

func (p *Prober) checkHTTP(ctx context.Context, probe *capability.AtomProbe) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, probe.HTTP, nil)
	if err != nil {
		return errors.New("its URL is not valid")
	}
	if err := checkHost(req.URL.Hostname()); err != nil { // a proxy would open the connection for us
		return err
	}
	req.Header.Set("User-Agent", "switchboard")
	for name, secret := range probe.Headers {
		req.Header.Set(name, secret.Reveal())
	}
	resp, err := p.send(req)
	if err != nil {
		return connectReason(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return fmt.Errorf("it answers %d, and a redirect is not followed: write the new address into the probe", resp.StatusCode)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return fmt.Errorf("it answers %d", resp.StatusCode)
	}
	switch n, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer+1)); {
	case n > maxAnswer:
		return errTooLong
	case err != nil:
		return errors.New("its answer breaks off")
	}
	return nil
}

// connectReason says why there is no connection or no answer.
func connectReason(err error) error {
	if own, ok := errors.AsType[*linkLocalError](err); ok {
		return own
	}
	if own, ok := errors.AsType[*dial.RefusedError](err); ok {
		return fmt.Errorf("%w; %s", own, own.Remedy)
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return errors.New("its host name leads to no address")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return errors.New("its certificate is not valid")
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return errors.New("its port refuses connections")
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return errors.New("no connection can be opened")
	}
	return errors.New("it gives no proper answer")
}

func checkEnv(name string) error {
	switch value, ok := os.LookupEnv(name); {
	case !ok:
		return fmt.Errorf("the variable %s is not set", name)
	case value == "":
		return fmt.Errorf("the variable %s is empty", name)
	}
	return nil
}

// checkFile looks at a file within the folder. It does not open the file, so a pipe does not block it.
func checkFile(folder, name string) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return errors.New("the folder of the configuration cannot be opened")
	}
	defer root.Close() //nolint:errcheck // it was only read
	switch info, err := root.Stat(name); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the file %q does not exist", name)
	case err != nil:
		return fmt.Errorf("the file %q cannot be read within the folder of the configuration", name)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%q is not a file", name)
	case info.Size() == 0:
		return fmt.Errorf("the file %q is empty", name)
	}
	return nil
}

// checkTool calls a tool. The operator's word that the tool only reads is checked before each call, because it can change.
func (p *Prober) checkTool(ctx context.Context, probe *capability.AtomProbe) error {
	if p.o.Find == nil || p.o.Call == nil {
		return errUntold
	}
	tool, ok := p.o.Find(probe.Tool)
	switch {
	case !ok:
		return errUntold // its server may not be connected yet
	case !tool.Contract.OnlyReads():
		return fmt.Errorf("a probe calls only a tool that changes nothing; declare in an overlay that %q is readonly", probe.Tool)
	}
	r, err := p.o.Call(ctx, tool, probe.Arguments)
	if err != nil {
		return errors.New("the call of its tool fails" + code(err))
	}
	if r.Release != nil {
		defer r.Release()
	}
	if len(r.JSON) > maxAnswer {
		return errTooLong
	}
	if failed, _ := wire.Field(r.JSON, wire.MemberError); string(failed) == "true" {
		return errors.New("its tool answers with an error")
	}
	return checkValues(r.JSON, probe.Is)
}

// checkValues checks that the structured part of a result has these values.
func checkValues(result []byte, is map[string]json.RawMessage) error {
	if len(is) == 0 {
		return nil
	}
	structured, ok := wire.Field(result, "structuredContent")
	if !ok {
		return errors.New("the result of its tool has no structured content")
	}
	for _, pointer := range slices.Sorted(maps.Keys(is)) {
		got, ok := valueAt(structured, pointer)
		if !ok {
			return fmt.Errorf("the result of its tool has no value at %q", pointer)
		}
		have, err1 := canonical.Append(nil, got)
		want, err2 := canonical.Append(nil, is[pointer])
		if err1 != nil || err2 != nil || !bytes.Equal(have, want) {
			return fmt.Errorf("the result of its tool has another value at %q than the probe wants", pointer)
		}
	}
	return nil
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// valueAt returns the value at the JSON Pointer (RFC 6901).
func valueAt(value []byte, pointer string) ([]byte, bool) {
	if pointer == "" {
		return value, true
	}
	rest, ok := strings.CutPrefix(pointer, "/")
	if !ok {
		return nil, false
	}
	for name := range strings.SplitSeq(rest, "/") {
		name = unescapePointer.Replace(name)
		switch value[0] {
		case '{':
			value, ok = wire.Field(value, name)
		case '[':
			value, ok = elementAt(value, name)
		default:
			ok = false
		}
		if !ok {
			return nil, false
		}
	}
	return value, true
}

func elementAt(array []byte, name string) ([]byte, bool) {
	n, err := strconv.Atoi(name)
	if err != nil || strconv.Itoa(n) != name {
		return nil, false
	}
	for element := range wire.Elements(array) {
		if n == 0 {
			return element, true
		}
		n--
	}
	return nil, false
}
