package route

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// A Leg is a part of the way to a server.
type Leg string

// The steps, in their order.
const (
	StepResolve Leg = "resolve" // the name of the server or proxy
	StepConnect Leg = "connect" // to the server or proxy
	StepProxy   Leg = "proxy"   // the proxy connects to the server
	StepTLS     Leg = "tls"     // with the server
)

// A StepError says which step failed and, where that is known, what to do. Its text contains no user and no password.
type StepError struct {
	Step   Leg
	Text   string
	Remedy string // a sentence for operators; "" means that none is known
	Err    error  // the cause; nil if Text has everything
}

func (e *StepError) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// Remedy returns what an operator can do about err, "" if that is not known.
func Remedy(err error) string {
	if e, ok := errors.AsType[*StepError](err); ok {
		return e.Remedy
	}
	_, remedy := explainAlert(err)
	return remedy
}

// explainConnect explains why no connection to address, the server or the proxy, was opened.
func (r *ServerRoute) explainConnect(address string, err error) error {
	e := &StepError{Step: StepConnect, Text: err.Error(), Err: err}
	if errors.As(err, new(*net.DNSError)) {
		e.Step = StepResolve
	}
	if r.proxy == nil {
		return err // its text and remedy are known elsewhere
	}
	e.Text = fmt.Sprintf("its proxy %s cannot be reached: %v", address, err)
	e.Remedy = "check that the proxy runs and that its address is right: " + r.whereProxy()
	return e
}

// whereProxy says where the proxy is configured.
func (r *ServerRoute) whereProxy() string {
	if r.environment {
		return "the environment names it (HTTPS_PROXY, HTTP_PROXY); for a server that needs no proxy, add its host to NO_PROXY, or write proxy: none into its row"
	}
	return `it stands at "proxy" in the server's row`
}

// explainProxy explains why the proxy opened no connection.
func (r *ServerRoute) explainProxy(ctx context.Context, err error) error {
	e := &StepError{Step: StepProxy, Err: err}
	because := err.Error()
	status, isStatus := errors.AsType[statusError](err)
	wantsPassword := isStatus && (status == http.StatusProxyAuthRequired || status == http.StatusUnauthorized) // tinyproxy says 401 to a wrong one
	reply, isReply := errors.AsType[socksError](err)
	switch {
	case ctx.Err() != nil:
		because = "it did not answer in time"
		e.Remedy = "the proxy may not reach the server; ask who operates it"
		e.Err = ctx.Err()
	case wantsPassword && r.proxy.User == nil, errors.Is(err, errSOCKSMethod):
		e.Remedy = "the proxy wants a user and a password: " + r.writeUser()
	case wantsPassword, errors.Is(err, errSOCKSPassword):
		because = "it does not accept the user and the password"
		e.Remedy = "correct the user and the password: " + r.writeUser()
	case isStatus && (status == http.StatusForbidden || status == http.StatusMethodNotAllowed), isReply && reply == 2:
		e.Remedy = "the rules of the proxy do not allow this server or its port; ask who operates the proxy"
	case isStatus && status/100 == 5, isReply:
		e.Remedy = "the proxy does not reach the server: correct the server's \"url\", or ask who operates the proxy"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		because = "it closed the connection without an answer"
		e.Remedy = "check that it is a proxy of this kind (" + r.proxy.Scheme + "), and that it lets this machine in: " + r.whereProxy()
	case errors.Is(err, errNotSOCKS):
		e.Remedy = "check its kind and its port: " + r.whereProxy()
	}
	if text, remedy := explainCertificate(err); text != "" {
		because = text + " (" + because + ")"
		e.Remedy = strings.ReplaceAll(remedy, "the server", "the proxy")
	}
	e.Text = fmt.Sprintf("its proxy %s opened no connection to it: %s", proxyAddress(r.proxy), because)
	return e
}

// writeUser says where user and password of the proxy are written.
func (r *ServerRoute) writeUser() string {
	if r.environment {
		return "write them into HTTPS_PROXY and HTTP_PROXY, as http://USER:PASSWORD@HOST:PORT"
	}
	return fmt.Sprintf(`proxy: "%s://USER:${env:PROXY_PASSWORD}@%s"`, r.proxy.Scheme, proxyAddress(r.proxy))
}

// explainTLS explains why TLS with the server failed. name is the name that its certificate must have.
func (r *ServerRoute) explainTLS(name string, err error) error {
	e := &StepError{Step: StepTLS, Text: err.Error(), Err: err}
	text, remedy := explainCertificate(err)
	if text == "" {
		text, remedy = explainAlert(err)
	}
	switch {
	case text != "":
		e.Text, e.Remedy = text+": "+err.Error(), remedy
	case errors.As(err, new(tls.RecordHeaderError)):
		e.Remedy = `write http:// into the server's "url", or the port at which it speaks TLS`
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		e.Text = "the connection was closed during the TLS handshake: " + err.Error()
		if r.proxy != nil {
			e.Remedy = "the proxy may not allow this server, or not reach it; ask who operates the proxy"
		} else {
			e.Remedy = "a firewall may not allow the name " + name + ", or the server does not speak TLS at this port"
		}
	}
	return e
}

// explainCertificate explains why a certificate is not accepted. It returns "" for other errors.
func explainCertificate(err error) (text, remedy string) {
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		by := ""
		if unknown.Cert != nil {
			by = fmt.Sprintf(" (%.200q)", unknown.Cert.Issuer.String())
		}
		return "its certificate is signed by an authority that this machine does not know" + by,
			"if your network inspects TLS, or the server has an authority of its own, get the authority's certificate and add it: tls: {ca: PATH}"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired && invalid.Cert != nil {
		if now := time.Now(); now.Before(invalid.Cert.NotBefore) {
			return "its certificate counts only from " + invalid.Cert.NotBefore.UTC().Format(time.RFC3339), "set the clock of this machine if it is wrong; else the owner of the server must look at the certificate"
		}
		return "its certificate has expired on " + invalid.Cert.NotAfter.UTC().Format(time.RFC3339), "the owner of the server must renew the certificate; if the clock of this machine is wrong, set it"
	}
	if wrong, ok := errors.AsType[x509.HostnameError](err); ok {
		return "its certificate is for another name than " + fmt.Sprintf("%.200q", wrong.Host), `write a name of the certificate into the server's "url", or, if you know the server by that name: tls: {server_name: NAME}`
	}
	return "", ""
}

// The alerts by which a server refuses our certificate, or wants one: RFC 8446, section 6.2. Go gives their text only.
var (
	alertNothingInCommon    = "tls: handshake failure"
	alertWantsCertificate   = []string{"tls: certificate required"}
	alertRefusesCertificate = []string{"tls: bad certificate", "tls: unsupported certificate", "tls: revoked certificate", "tls: expired certificate", "tls: unknown certificate", "tls: unknown certificate authority", "tls: access denied"}
)

// explainAlert explains an alert that a server has sent because of our certificate. With TLS 1.3, it can come after the
// handshake, when the first answer is read. explainAlert returns "" for other errors.
func explainAlert(err error) (text, remedy string) {
	alert, ok := errors.AsType[*net.OpError](err)
	if !ok || alert.Op != "remote error" {
		return "", ""
	}
	is := func(texts []string) bool {
		for _, t := range texts {
			if alert.Err.Error() == t {
				return true
			}
		}
		return false
	}
	switch {
	case alert.Err.Error() == alertNothingInCommon: // also what some servers say with TLS 1.2 if they get no certificate
		return "it refuses the TLS handshake", "the server may want a client certificate (tls: {cert: PATH, key: PATH}), or has no version of TLS in common with us (1.2 or later)"
	case is(alertWantsCertificate):
		return "it wants a client certificate", "get a certificate from the server's owner, and name it: tls: {cert: PATH, key: PATH}"
	case is(alertRefusesCertificate):
		return "it does not accept the client certificate, or wants one", "name a certificate that it accepts: tls: {cert: PATH, key: PATH}; its owner says which authority must sign it, and whether it has expired"
	}
	return "", ""
}
