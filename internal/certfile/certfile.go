// Package certfile reads certificates and keys from files, and reads them again when the files change.
//
// It decides when a file is read again: at the next connection after its time, its size or the file itself has
// changed. If the new content is not valid, the last valid content stays in use, and the fault is reported once. So a
// certificate is renewed without a restart, and a half-written file breaks nothing. Which connections use a
// certificate is decided by package route (to servers) and by package app (of listeners).
package certfile

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
)

// MaxBytes is the largest file of certificates. The bundle of all public authorities has a fifth of that.
const MaxBytes = 1 << 20

// A Pair is a certificate and its key, in two files with PEM text. It is safe for concurrent use.
type Pair struct{ files files[*tls.Certificate] }

// NewPair returns the pair in the files. They are read when Certificate is called. report, which may be nil, is called
// with each new fault of the files.
func NewPair(certFile, keyFile string, report func(error)) *Pair {
	p := &Pair{}
	p.files = files[*tls.Certificate]{names: []string{certFile, keyFile}, secret: keyFile, report: report, parse: func(texts [][]byte) (*tls.Certificate, error) {
		return ParsePair(texts[0], texts[1])
	}}
	return p
}

// Certificate returns the pair as it is in the files now, or as it was there when it was valid last. An error says that
// it has never been valid.
func (p *Pair) Certificate() (*tls.Certificate, error) { return p.files.current() }

// ParsePair parses a certificate and its key.
func ParsePair(cert, key []byte) (*tls.Certificate, error) {
	switch c, k := firstBlock(cert), firstBlock(key); {
	case c == "":
		return nil, errors.New("the certificate's file has no PEM text (-----BEGIN CERTIFICATE-----)")
	case k == "":
		return nil, errors.New("the key's file has no PEM text (-----BEGIN PRIVATE KEY-----)")
	case bytes.Contains(key, []byte("ENCRYPTED")):
		return nil, errors.New("the key is encrypted with a password; write it into a file without one (openssl pkey -in OLD -out NEW)")
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate and key do not go together or cannot be read: %w", err)
	}
	return &pair, nil
}

// firstBlock returns the type of the first PEM block in text, or "".
func firstBlock(text []byte) string {
	block, _ := pem.Decode(text)
	if block == nil {
		return ""
	}
	return block.Type
}

// Roots are the authorities of the system, and those in a file with PEM text. They are safe for concurrent use.
type Roots struct{ files files[*x509.CertPool] }

// NewRoots returns the authorities in the file. It is read when Pool is called. report is as for NewPair.
func NewRoots(file string, report func(error)) *Roots {
	r := &Roots{}
	r.files = files[*x509.CertPool]{names: []string{file}, report: report, parse: func(texts [][]byte) (*x509.CertPool, error) {
		return ParseRoots(texts[0])
	}}
	return r
}

// Pool returns the authorities as they are now, or as they were when the file was valid last. An error says that it has
// never been valid.
func (r *Roots) Pool() (*x509.CertPool, error) { return r.files.current() }

// ParseRoots returns the authorities of the system and those in text.
func ParseRoots(text []byte) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("it has no certificate as PEM text (-----BEGIN CERTIFICATE-----)")
	}
	return pool, nil
}

// files are files that are parsed together into a T.
type files[T any] struct {
	names  []string
	secret string // the one that other users must not read
	parse  func(texts [][]byte) (T, error)
	report func(error)

	mu     sync.Mutex
	read   []fs.FileInfo // of the files when value was read
	value  T
	valid  bool
	fault  string        // what was reported last
	faulty []fs.FileInfo // of the files when they were last found faulty; nil if they could not be read
}

// current returns the value, which it reads again if a file has changed.
func (f *files[T]) current() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.stat()
	switch {
	case err == nil && f.valid && same(f.read, now):
		f.fault = ""
		return f.value, nil
	case err == nil && f.valid && same(f.faulty, now):
		return f.value, nil
	}
	var value T
	if err == nil {
		value, err = f.load()
	}
	if err == nil {
		f.value, f.valid, f.read, f.fault, f.faulty = value, true, now, "", nil
		return value, nil
	}
	f.faulty = now
	if f.valid {
		err = fmt.Errorf("%w; the one that was read before stays in use", err)
	}
	if text := err.Error(); f.report != nil && text != f.fault {
		f.fault = text
		f.report(err)
	}
	if f.valid {
		return f.value, nil
	}
	return value, err
}

// stat returns what the files are now; nil with an error.
func (f *files[T]) stat() ([]fs.FileInfo, error) {
	all := make([]fs.FileInfo, len(f.names))
	for i, name := range f.names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() { // to open a pipe would wait for its writer
			return nil, fmt.Errorf("%s is no regular file", name)
		}
		all[i] = info
	}
	return all, nil
}

// same reports whether the files are the same and unchanged.
func same(a, b []fs.FileInfo) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Size() != b[i].Size() || a[i].Mode() != b[i].Mode() || !a[i].ModTime().Equal(b[i].ModTime()) || !os.SameFile(a[i], b[i]) {
			return false
		}
	}
	return true
}

// load reads and parses the files.
func (f *files[T]) load() (value T, err error) {
	texts := make([][]byte, len(f.names))
	for i, name := range f.names {
		if texts[i], err = readFile(name, name == f.secret); err != nil {
			return value, err
		}
	}
	if value, err = f.parse(texts); err != nil {
		return value, fmt.Errorf("%s: %w", f.names[0], err)
	}
	return value, nil
}

// readFile reads a file. A secret one must be for its owner only.
func readFile(name string, secret bool) ([]byte, error) {
	file, err := os.Open(filepath.Clean(name))
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	info, err := file.Stat()
	if err == nil && secret {
		err = ownfile.Check(name, name, info)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err == nil && len(data) > MaxBytes {
		err = fmt.Errorf("%s is larger than %d bytes", name, MaxBytes)
	}
	return data, err
}
