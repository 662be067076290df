package config

import (
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/certfile"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/route"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// networkRows are the keys that say how connections to a server are opened.
func (r *serverRow) networkRows() []document.Row {
	text := document.Schema{"type": "string", "minLength": 1}
	return []document.Row{
		{Key: "proxy", Type: r.forHTTP("proxy", document.Custom("the address of a proxy, or `none`", text, r.readProxy)), Doc: "For http: the proxy to the server, `http://`, `https://` or `socks5://`; `none` for no proxy. The one that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name if absent. A password is a reference: `http://user:${env:NAME}@proxy.example.com:3128`."},
		{Key: "tls", Type: r.forHTTP("tls", document.Map(r.tlsKeys, r.checkTLS)), Doc: "For http with an `https://` address: certificates of connections to the server. The files are read again when they change."},
	}
}

// tlsKeys are the keys of the certificates of connections to a server.
func (r *serverRow) tlsKeys() *document.Keys {
	n := &r.server.Network
	keys := &document.Keys{
		Rows: []document.Row{
			{Key: "ca", Type: document.Text("a path", func(v document.Value, s string) { n.CA = r.readRoots(v, s) }), Doc: "A file with the certificates of authorities, as PEM text, that are trusted besides those of the system."},
			{Key: "server_name", Type: document.Text("a name", func(v document.Value, s string) {
				if strings.Contains(s, ":") || badHost(s) != "" {
					v.Fault("%s: want the name in the server's certificate, without a port, such as mcp.example.com", v.Shown())
					return
				}
				n.ServerName = s
			}), Doc: "The name in the server's certificate; the host of `url` if absent."},
		},
		Hints: map[string]string{
			"insecure": insecureHint, "skip_verify": insecureHint, "insecure_skip_verify": insecureHint, "verify": insecureHint,
			"cafile": `write "ca"`, "ca_file": `write "ca"`, "cert_file": `write "cert"`, "key_file": `write "key"`, "servername": `write "server_name"`,
		},
	}
	keys.Rows = slices.Insert(keys.Rows, 1, r.pair.rows(r.loader, "A file with the client certificate, and those between it and the authority, as PEM text.",
		"A file with the key of the client certificate, as PEM text, for its owner only (mode 600).")...)
	return keys
}

const insecureHint = `certificates are always checked; write ca: PATH for an authority that this machine does not know`

// checkTLS checks the keys together.
func (r *serverRow) checkTLS(m document.FixedMap) {
	if strings.HasPrefix(r.server.URL, "http://") {
		m.Fault("the server's url begins with http://, so its connections have no TLS; write https://, or remove this")
	}
	if m.HasKey("cert") {
		m.Require("key", "name the file with the key of the certificate")
	}
	if m.HasKey("key") {
		m.Require("cert", "name the file with the certificate")
	}
	r.pair.check(m)
	r.server.Network.Cert, r.server.Network.Key = r.pair.cert, r.pair.key
}

// A certificatePair is what cert and key name. A path is "" if it is absent, or after a fault of its own.
type certificatePair struct {
	cert, key         string // absolute paths
	certText, keyText []byte
}

// rows are the keys of a certificate and its key. l is nil when they are only described.
func (p *certificatePair) rows(l *loader, ofCert, ofKey string) []document.Row {
	return []document.Row{
		{Key: "cert", Type: document.Text("a path", func(v document.Value, s string) { p.cert, p.certText, _ = l.readCertificateFile(v, s, false) }), Doc: ofCert},
		{Key: "key", Type: document.Text("a path", func(v document.Value, s string) { p.key, p.keyText, _ = l.readCertificateFile(v, s, true) }), Doc: ofKey},
	}
}

// check checks that certificate and key go together.
func (p *certificatePair) check(m document.FixedMap) {
	if p.cert == "" || p.key == "" {
		return
	}
	if _, err := certfile.ParsePair(p.certText, p.keyText); err != nil {
		v, _ := m.Lookup("cert")
		v.Fault("%v", err)
	}
}

// readCertificateFile returns the absolute path of a file with PEM text, and the text. A relative path is one within the folder of
// the configuration. A secret file must be for its owner only.
func (f *configFolder) readCertificateFile(v document.Value, s string, secret bool) (path string, text []byte, ok bool) {
	name := s
	var err error
	switch {
	case strings.HasPrefix(strings.TrimSpace(s), "-----BEGIN"):
		v.Hidden = true
		v.Fault("want the path of a file, not its text")
		return "", nil, false
	case strings.Contains(s, "${"):
		v.Fault("${…} is not read here; write the path of a file")
		return "", nil, false
	case !filepath.IsAbs(s):
		if name, err = localPath(s); err != nil {
			v.Fault("%s: %v", v.Shown(), err)
			return "", nil, false
		}
	}
	path = f.pathOf(name)
	check := document.AnyFile
	if secret {
		check = func(info fs.FileInfo) error { return ownfile.Check(document.Shown(s), path, info) }
	}
	if text, err = f.readUnwatched(name, certfile.MaxBytes, check); err != nil {
		v.Fault("file %s: %s", document.Shown(s), document.ErrorText(err))
		return "", nil, false
	}
	return path, text, true
}

// CertificateFiles are the absolute paths of a certificate and its key.
type CertificateFiles struct{ Cert, Key string }

// listenerKeys are the keys of a listener's certificate, and the check of them together.
func (f mainFile) listenerKeys(to *CertificateFiles) (keys func() *document.Keys, after func(document.FixedMap)) {
	pair := &certificatePair{}
	keys = func() *document.Keys {
		return &document.Keys{
			Rows: pair.rows(f.loader, "A file with the certificate, and those between it and the authority, as PEM text.", "A file with the key of the certificate, as PEM text, for its owner only (mode 600)."),
			Hints: map[string]string{
				"ca":   "Switchboard identifies its clients by keys and tokens, not by certificates",
				"acme": "Switchboard gets no certificates itself; let a program such as certbot, lego or step renew the files, which are read again",
			},
		}
	}
	after = func(m document.FixedMap) {
		m.Require("cert", "name the file with the certificate")
		m.Require("key", "name the file with the key of the certificate")
		pair.check(m)
		*to = CertificateFiles{pair.cert, pair.key}
	}
	return keys, after
}

// readRoots returns the absolute path of a file with authorities.
func (f *configFolder) readRoots(v document.Value, s string) string {
	path, text, ok := f.readCertificateFile(v, s, false)
	if !ok {
		return ""
	}
	if _, err := certfile.ParseRoots(text); err != nil {
		v.Fault("file %s: %v", document.Shown(s), err)
		return ""
	}
	return path
}

// readProxy reads the proxy to a server. The value of a reference in its user and password is taken as it is: it may have any
// character.
func (r *serverRow) readProxy(v document.Value) {
	v.Hidden = true
	s, ok := v.ReadText()
	if !ok {
		return
	}
	if s == switchboard.NoProxy {
		r.server.Network.Proxy = switchboard.NewSecret(s)
		return
	}
	pieces, err := document.SplitReferences(s)
	if err != nil {
		v.Fault("%v", err)
		return
	}
	if literalPassword(pieces) {
		v.Fault("a secret stands in the file itself; put it elsewhere and write ${env:NAME} or ${file:/path} in its place")
		return
	}
	var b strings.Builder
	for i, p := range pieces {
		text, err := r.resolvePiece(p)
		if err != nil {
			v.Fault("%v", err)
			return
		}
		inUser := i > 0 && slices.ContainsFunc(pieces[i+1:], func(after document.Piece) bool { return after.Kind == "" && strings.Contains(after.Text, "@") })
		if p.Kind != "" && inUser {
			text = strings.TrimPrefix(url.UserPassword("", text).String(), ":")
		}
		b.WriteString(text)
	}
	if _, err := route.ParseProxy(b.String()); err != nil {
		v.Fault("%v", err)
		return
	}
	r.server.Network.Proxy = switchboard.NewSecret(b.String())
}

// literalPassword reports whether the address of a proxy has a password that stands in the file itself.
func literalPassword(pieces []document.Piece) bool {
	const reference = "reference"
	var b strings.Builder
	for _, p := range pieces {
		if p.Kind == "" {
			b.WriteString(p.Text)
		} else {
			b.WriteString(reference)
		}
	}
	_, rest, _ := strings.Cut(b.String(), "://")
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return false
	}
	_, password, ok := strings.Cut(rest[:at], ":")
	return ok && password != "" && !strings.Contains(password, reference)
}
