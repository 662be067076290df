package certfile_test

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/certfile"
	"github.com/summit-switchboard/switchboard/test/certs"
)

func TestAPairIsReadAgainWhenItsFilesChangeAndABadOneIsReportedOnce(t *testing.T) {
	dir, ca := t.TempDir(), certs.NewAuthority(t, "test")
	later := time.Now().Add(time.Hour)
	var reported []string
	cert1, key1 := ca.Issue(later, "one.test")
	cert2, key2 := ca.Issue(later, "two.test")
	certFile, keyFile := certs.WritePair(t, dir, cert1, key1)
	pair := certfile.NewPair(certFile, keyFile, func(err error) { reported = append(reported, err.Error()) })
	check := func(step, want string) *tls.Certificate {
		t.Helper()
		c, err := pair.Certificate()
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if got := c.Leaf.DNSNames[0]; got != want {
			t.Errorf("%s: %s, want %s", step, got, want)
		}
		return c
	}
	if check("at first", "one.test") != check("unchanged", "one.test") {
		t.Error("unchanged files were parsed again")
	}
	certs.Write(t, certFile, cert2)
	for range 3 {
		check("between the two files", "one.test")
	}
	if len(reported) != 1 || !strings.Contains(reported[0], "do not go together") || !strings.Contains(reported[0], "stays in use") {
		t.Errorf("reported: %q", reported)
	}
	certs.Write(t, keyFile, key2)
	check("after both", "two.test")
	for _, step := range []struct {
		name   string
		change func() error
		want   string
	}{
		{"the key may be read by others", func() error { return os.Chmod(keyFile, 0o644) }, "chmod 600"},
		{"it may not any more", func() error { return os.Chmod(keyFile, 0o600) }, ""},
		{"the certificate is gone", func() error { return os.Remove(certFile) }, "no such file"},
		{"it is a pipe's worth of nothing", func() error { return os.WriteFile(certFile, nil, 0o600) }, "no PEM text"},
		{"it is a folder", func() error { return errors.Join(os.Remove(certFile), os.Mkdir(certFile, 0o700)) }, "no regular file"},
		{"it is too large", func() error {
			return errors.Join(os.Remove(certFile), os.WriteFile(certFile, make([]byte, certfile.MaxBytes+1), 0o600))
		}, "larger than"},
	} {
		reported = nil
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		check(step.name, "two.test")
		check(step.name, "two.test")
		if got := strings.Join(reported, "\n"); (step.want == "") != (got == "") || !strings.Contains(got, step.want) || len(reported) > 1 {
			t.Errorf("%s: reported %q, want %q", step.name, reported, step.want)
		}
	}
	certs.Write(t, certFile, cert1)
	certs.Write(t, keyFile, key1)
	check("in the end", "one.test")
}

func TestAPairThatWasNeverValidIsAnErrorUntilItIs(t *testing.T) {
	dir, ca := t.TempDir(), certs.NewAuthority(t, "test")
	pair := certfile.NewPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), nil)
	if _, err := pair.Certificate(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	cert, key := ca.Issue(time.Now().Add(time.Hour), "one.test")
	certs.WritePair(t, dir, cert, key)
	if _, err := pair.Certificate(); err != nil {
		t.Error(err)
	}
}

func TestAnEncryptedKeySaysWhatToDo(t *testing.T) {
	cert, _ := certs.NewAuthority(t, "test").Issue(time.Now().Add(time.Hour), "one.test")
	_, err := certfile.ParsePair(cert, []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"))
	if err == nil || !strings.Contains(err.Error(), "openssl pkey") {
		t.Error(err)
	}
}

func TestRootsAreReadAgainAndAddToThoseOfTheSystem(t *testing.T) {
	one, two := certs.NewAuthority(t, "one"), certs.NewAuthority(t, "two")
	file := certs.Write(t, filepath.Join(t.TempDir(), "ca.pem"), one.PEM)
	roots := certfile.NewRoots(file, nil)
	system, err := certfile.ParseRoots(one.PEM)
	if err != nil {
		t.Fatal(err)
	}
	first, err := roots.Pool()
	if err != nil || !first.Equal(system) {
		t.Errorf("%v", err)
	}
	certs.Write(t, file, two.PEM)
	second, err := roots.Pool()
	if err != nil || second.Equal(first) {
		t.Errorf("a changed file is not read again: %v", err)
	}
	certs.Write(t, file, []byte("half"))
	if third, err := roots.Pool(); err != nil || !third.Equal(second) {
		t.Errorf("a bad file counts: %v", err)
	}
}

func FuzzParsePair(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		pair, err := certfile.ParsePair(cert, key)
		if (err == nil) != (pair != nil) {
			t.Errorf("%v, %v", pair, err)
		}
	})
}
