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

// servingFile lies in the data folder while a Switchboard serves from it. That process
// holds a lock on the file: without the lock, the file is a rest of a killed process.
const servingFile = "serving.json"

// serving is the content of servingFile: the address of a Switchboard, its configuration,
// and the tenant of its keyless callers.
type serving struct {
	URL    string               `json:"url"`
	Config string               `json:"config"`
	Tenant switchboard.TenantID `json:"tenant"`
}

// announce writes our address into the data folder, until release is called. Of several
// that serve from one folder, the first does so.
func announce(c *common, at net.Addr, log *slog.Logger) (release func()) {
	dir := c.data()
	if dir == "" {
		return func() {}
	}
	name := filepath.Join(dir, servingFile)
	text, err := json.Marshal(serving{reachable(at.String()), c.file(), c.Tenant})
	var f *os.File
	if err == nil {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			f, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		}
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		for again := 0; again < 20 && errors.Is(err, unix.EWOULDBLOCK); again++ { // a reader holds it for an instant
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

// served returns the Switchboard that serves the configuration from the data folder; ok is
// false if none does.
func (c *common) served() (at serving, ok bool) {
	dir := c.data()
	if dir == "" {
		return at, false
	}
	f, err := os.Open(filepath.Join(dir, servingFile))
	if err != nil {
		return at, false
	}
	defer f.Close() //nolint:errcheck // it was only read
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return at, false // nobody holds it
	}
	text, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil || json.Unmarshal(text, &at) != nil || !strings.HasPrefix(at.URL, "http://") {
		return at, false
	}
	return at, at.Config == c.file()
}

// file is the path of the configuration, the same for whoever names it.
func (c *common) file() string {
	if path, err := filepath.Abs(c.Config); err == nil {
		return path
	}
	return c.Config
}

// address returns the URL of the Switchboard that a command asks: url if that is not "",
// else that of the Switchboard that serves from the folder, else the configured one.
func (c *common) address(url string) string {
	if url != "" {
		return url
	}
	if at, ok := c.served(); ok {
		return at.URL
	}
	return reachable(cmp.Or(config.ListenAddress(c.Config), config.DefaultListen))
}

// reachable returns the URL at which this machine reaches a listener on the address.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	return "http://" + address
}
