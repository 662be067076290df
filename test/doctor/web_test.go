//go:build linux

package doctor_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/doctor"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/scratch"
)

// page serves a server over HTTP that works when ok returns true, and otherwise answers by broken.
func (i *installation) page(ok func(*http.Request) bool, broken http.HandlerFunc) *httptest.Server {
	fake := fakeserver.New([]string{"modern", tool})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ok(r) {
			fake.ServeHTTP(w, r)
		} else {
			broken(w, r)
		}
	}))
	i.Cleanup(s.Close)
	return s
}

// addPage adds a row for a server over HTTP.
func (i *installation) addPage(url string) {
	i.addServer("page" + i.row + ": {transport: http, url: \"" + url + "\"}")
}

// answers is a row for a server that answers with an HTTP status until it is mended.
func answers(name string, status int, cause, remedy string) broken {
	return broken{
		name: name, cause: cause, subject: "page", remedy: remedy,
		breaks: func(i *installation) {
			mended := filepath.Join(i.home, "mended"+i.row)
			i.addPage(i.page(func(*http.Request) bool { _, err := os.Stat(mended); return err == nil }, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }).URL + "/mcp")
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.write("mended"+i.row, "") },
	}
}

// pageRows are servers over HTTP that can be broken side by side.
var pageRows = []broken{
	answers("a server over HTTP fails", http.StatusBadGateway, "server-failed", "look at its log"),
	answers("a key has too few rights", http.StatusForbidden, "key-too-weak", "give the key the rights"),
	{
		name: "nothing listens at the address of a server", cause: "refused", subject: "page", remedy: "start the server",
		breaks: func(i *installation) {
			i.write("address", freeAddress(i.T))
			i.addPage("http://" + rig.ReadFile(i.T, filepath.Join(i.home, "address")) + "/mcp")
		},
		mend: func(i *installation, _ doctor.Diagnosis) {
			l, err := net.Listen("tcp", rig.ReadFile(i.T, filepath.Join(i.home, "address")))
			i.do(err)
			s := &http.Server{Handler: http.HandlerFunc(fakeserver.New([]string{"modern", tool}).ServeHTTP)} //nolint:gosec // a test
			go s.Serve(l)                                                                                    //nolint:errcheck // it is closed
			i.Cleanup(func() { _ = s.Close() })
		},
	},
	{
		name: "a server over HTTP refuses the key", cause: "key-refused", subject: "page", remedy: "write it into the file",
		breaks: func(i *installation) {
			s := i.page(func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer right-key" }, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
			i.write(".config/switchboard/secrets/page"+i.row, "wrong-key")
			i.addServer("page" + i.row + ": {transport: http, url: \"" + s.URL + "/mcp\", headers: {Authorization: \"Bearer ${file:secrets/page" + i.row + "}\"}}")
		},
		mend: func(i *installation, f doctor.Diagnosis) {
			if strings.Contains(f.What+f.Remedy+f.Command, "wrong-key") {
				i.Errorf("doctor prints the key: %+v", f)
			}
			i.write(".config/switchboard/secrets/page"+i.row, "right-key")
		},
	},
	{
		name: "the path of a server is wrong", cause: "not-mcp", subject: "page", remedy: "ends with /mcp",
		breaks: func(i *installation) {
			i.addPage(i.page(func(r *http.Request) bool { return r.URL.Path == "/mcp" }, http.NotFound).URL + "/pcm")
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.edit("/pcm", "/mcp") },
	},
	{
		name: "a server has moved", cause: "moved", subject: "page", remedy: "Location",
		breaks: func(i *installation) {
			i.addPage(i.page(func(r *http.Request) bool { return r.URL.Path == "/new" }, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "/new", http.StatusPermanentRedirect)
			}).URL + "/old")
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.edit("/old", "/new") },
	},
	{
		name: "a server speaks no TLS", cause: "not-tls", subject: "page", remedy: "write http://",
		breaks: func(i *installation) {
			i.addPage(strings.Replace(i.page(func(*http.Request) bool { return true }, nil).URL, "http:", "https:", 1) + "/mcp")
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.edit("https:", "http:") },
	},
}

var webRows = []broken{
	{
		name: "nobody knows the authority of a certificate", cause: "certificate-not-trusted", subject: "page", remedy: "tls: {ca: PATH}",
		breaks: func(i *installation) {
			i.addPage(i.securePage("127.0.0.1", time.Now().Add(time.Hour)))
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.trustPages() },
	},
	{
		name: "a certificate has expired", cause: "certificate-expired", subject: "page", remedy: "renew the certificate",
		breaks: func(i *installation) {
			i.trustPages()
			i.addPage(i.securePage("127.0.0.1", time.Now().Add(-time.Hour)))
		},
		mend: func(i *installation, _ doctor.Diagnosis) {
			renewed := i.securePage("127.0.0.1", time.Now().Add(time.Hour))
			i.do(os.WriteFile(i.config, []byte(strings.Replace(rig.ReadFile(i.T, i.config), i.found(`(https://[^"]+)"`, rig.ReadFile(i.T, i.config)), renewed, 1)), 0o600))
		},
	},
	{
		name: "a certificate belongs to another name", cause: "certificate-wrong-name", subject: "page", remedy: "a name of the certificate",
		breaks: func(i *installation) {
			i.trustPages()
			i.addPage(i.securePage("localhost", time.Now().Add(time.Hour)))
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.edit("https://127.0.0.1", "https://localhost") },
	},
	{
		name: "the clocks of a server and of this machine differ", cause: "clock", subject: "page", remedy: "the clock of the server",
		breaks: func(i *installation) {
			fake := fakeserver.New([]string{"modern", tool})
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := os.Stat(filepath.Join(i.home, "mended")); err != nil {
					w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
				}
				fake.ServeHTTP(w, r)
			}))
			i.Cleanup(s.Close)
			i.edit(i.webRow(), "  page: {transport: http, url: \""+s.URL+"\"}\n")
		},
		mend: func(i *installation, _ doctor.Diagnosis) { i.write("mended", "") },
	},
}

// authority signs the certificates of all tests.
var authority = func() *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tests"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
}()

var authorityKey = func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
}()

// trustPages lets the installation trust the authority.
func (i *installation) trustPages() {
	i.Helper()
	text, err := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	i.do(err)
	i.write("authority.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text})))
	i.env["SSL_CERT_FILE"] = filepath.Join(i.home, "authority.pem")
}

// securePage serves a server over TLS with a certificate for the name, and returns its address at 127.0.0.1.
func (i *installation) securePage(name string, end time.Time) string {
	i.Helper()
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: end}
	if ip := net.ParseIP(name); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	} else {
		leaf.DNSNames = []string{name}
	}
	text, err := x509.CreateCertificate(rand.Reader, leaf, authority, &authorityKey.PublicKey, authorityKey)
	i.do(err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(fakeserver.New([]string{"modern", tool}).ServeHTTP))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{text}, PrivateKey: authorityKey}}} //nolint:gosec // a test
	s.Config.ErrorLog = nil
	l, err := scratch.Listen()
	i.do(err)
	_ = s.Listener.Close()
	s.Listener = l
	s.StartTLS()
	i.Cleanup(s.Close)
	return s.URL + "/mcp"
}
