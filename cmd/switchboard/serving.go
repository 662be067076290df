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

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// servingFile stands in the data folder while a Switchboard serves from it. The process
// holds a lock on it, so that what one that was killed has left says nothing.
const servingFile = "serving.json"

// serving says where a Switchboard listens, and which tenant keyless callers are of.
type serving struct {
	URL    string               `json:"url"`
	Tenant switchboard.TenantID `json:"tenant"`
}

// announce says in the data folder where we listen, until release is called. The first of
// several that serve from one folder says so.
func announce(c *common, at net.Addr, log *slog.Logger) (release func()) {
	dir := c.data()
	if dir == "" {
		return func() {}
	}
	name := filepath.Join(dir, servingFile)
	text, err := json.Marshal(serving{reachable(at.String()), c.Tenant})
	var f *os.File
	if err == nil {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			f, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		}
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
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

// served returns where a Switchboard serves from the data folder; ok is false where none
// does.
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
	return at, true
}

// address is where the Switchboard is that a command is for: at url, if that is not "",
// else the one that serves from the folder, else where the configuration there says.
func (c *common) address(url string) string {
	if url != "" {
		return url
	}
	if at, ok := c.served(); ok {
		return at.URL
	}
	return reachable(cmp.Or(config.ListenAddress(c.Config), config.DefaultListen))
}

// reachable is the URL by which this machine reaches who listens on the address.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	return "http://" + address
}
