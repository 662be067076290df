package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// servingFile is in the data folder while a Switchboard serves from it. That process holds a lock on
// the file. A file without a lock was left by a killed process.
const servingFile = "serving.json"

// servingRecord is the content of servingFile: the address of a Switchboard, its configuration,
// and the tenant of its keyless callers.
type servingRecord struct {
	URL    string               `json:"url"`
	Config string               `json:"config"`
	Tenant switchboard.TenantID `json:"tenant"`
}

// writeServingFile writes our address into the data folder, until release is called. If several
// processes serve from one folder, only the first writes it.
func writeServingFile(c *commonFlags, at net.Addr, log *slog.Logger) (release func()) {
	dir := c.dataDir()
	if dir == "" {
		return func() {}
	}
	name := filepath.Join(dir, servingFile)
	text, err := json.Marshal(servingRecord{localURL(at.String()), c.configPath(), c.Tenant})
	var f *os.File
	if err == nil {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			f, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		}
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		for again := 0; again < 20 && errors.Is(err, unix.EWOULDBLOCK); again++ { // a reader holds the lock for an instant
			time.Sleep(5 * time.Millisecond)
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return func() { _ = f.Close() }
	}
	if err == nil {
		err = errors.Join(f.Truncate(0), writeAll(f, text))
	}
	if err != nil {
		log.Warn("commands in this folder do not find the Switchboard that serves from it; give them --url", "err", err)
	}
	return func() {
		if f != nil {
			_, _ = f.Truncate(0), f.Close()
		}
	}
}

func writeAll(w io.WriterAt, text []byte) error {
	_, err := w.WriteAt(text, 0)
	return err
}

// findServing returns the Switchboard that serves the configuration from the data folder; ok is
// false if none does.
func (c *commonFlags) findServing() (at servingRecord, ok bool) {
	dir := c.dataDir()
	if dir == "" {
		return at, false
	}
	f, err := os.Open(filepath.Join(dir, servingFile))
	if err != nil {
		return at, false
	}
	defer f.Close() //nolint:errcheck // it was only read from
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return at, false // no process holds the lock
	}
	text, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil || json.Unmarshal(text, &at) != nil || !strings.HasPrefix(at.URL, "http://") {
		return at, false
	}
	return at, at.Config == c.configPath()
}

// configPath returns the absolute path of the configuration.
func (c *commonFlags) configPath() string {
	if path, err := filepath.Abs(c.Config); err == nil {
		return path
	}
	return c.Config
}

// servingURL returns the URL of the Switchboard to use: url if it is not "", else that of the
// Switchboard that serves from the folder, else the configured address.
func (c *commonFlags) servingURL(url string) string {
	if url != "" {
		return url
	}
	if at, ok := c.findServing(); ok {
		return at.URL
	}
	return localURL(cmp.Or(config.ListenAddress(c.Config), config.DefaultListen))
}

// localURL returns the URL by which this machine reaches a listener at the address.
func localURL(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	return "http://" + address
}
