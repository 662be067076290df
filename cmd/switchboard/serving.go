package main

import (
	"cmp"
	"net"
	"path/filepath"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/serving"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// findServing returns a process that serves the configuration from the data folder: the oldest one that serves HTTP, else the oldest
// one that clients on stdio share. tenant is that of its keyless callers; "" means any. ok is false if there is none.
func (c *commonFlags) findServing(tenant switchboard.TenantID) (at serving.Neighbor, ok bool) {
	own := c.configPath()
	return findRow(c.dataDir(), tenant, func(configuration string) bool { return configuration == own })
}

// findNearby is findServing for commands that read no configuration. If no process serves the configuration, and it is not of this folder, it
// returns one that serves a client's file (--mcp-config) of this folder, or one that serves from the data folder that was named.
func (c *commonFlags) findNearby(tenant switchboard.TenantID) (at serving.Neighbor, ok bool) {
	if at, ok = c.findServing(tenant); ok || c.MCPConfig != "" || c.Config != homeConfig() {
		return at, ok
	}
	if c.Data != "" {
		return findRow(c.Data, tenant, func(string) bool { return true })
	}
	// Without a data folder, the row is beside the user's own configuration.
	here := (&commonFlags{MCPConfig: "mcp.json"}).configPath()
	return findRow((&commonFlags{MCPConfig: "mcp.json"}).rowFolder(), tenant, func(configuration string) bool { return filepath.Dir(configuration) == filepath.Dir(here) })
}

// findRow is findServing for the rows in a folder of those configurations that are served; see serving.Rows. Without a folder there are none.
func findRow(dir string, tenant switchboard.TenantID, served func(configuration string) bool) (at serving.Neighbor, ok bool) {
	if dir == "" {
		return at, false
	}
	rows, err := serving.Rows(dir)
	if err != nil {
		return at, false
	}
	for _, row := range rows { // the newest first
		if served(row.Configuration) && (tenant == "" || row.Tenant == tenant) && (row.URL != "" || at.URL == "") {
			at, ok = row, true
		}
	}
	return at, ok
}

// configPath returns the absolute path of the configuration. It is the same one for all names of its folder: a program that was
// started in the folder may know it by a link.
func (c *commonFlags) configPath() string {
	file := cmp.Or(c.MCPConfig, c.Config)
	path, err := filepath.Abs(file)
	if err != nil {
		return file
	}
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(folder, filepath.Base(path))
	}
	return path
}

// A runningURL names a Switchboard that runs.
type runningURL struct {
	URL string // without a path

	// fault says why the rows of a data folder could not be read.
	fault error

	// guessed says that nothing but the defaults names it.
	guessed bool

	// row, if set, is its row in the data folder. Then commands reach it as its operator, whether it serves HTTP or not.
	row *serving.Neighbor
}

// runningAt returns the Switchboard of a row.
func runningAt(row serving.Neighbor) runningURL {
	return runningURL{URL: cmp.Or(row.URL, "http://"+row.Address), row: &row}
}

// findRunningAt returns the Switchboard at a URL, with its row if it serves from the data folder.
func (c *commonFlags) findRunningAt(url string) runningURL {
	url = strings.TrimSuffix(url, "/")
	at := runningURL{URL: url}
	for _, dir := range []string{c.dataDir(), (&commonFlags{MCPConfig: "none"}).rowFolder()} {
		if dir == "" {
			continue
		}
		rows, err := serving.Rows(dir)
		at.fault = cmp.Or(at.fault, err)
		for _, row := range rows {
			if row.URL != "" && row.URL == url || row.Admin != "" && row.Admin == url {
				return runningAt(row)
			}
		}
	}
	return at // it is asked as any program asks it
}

// findAny returns the Switchboard whose admin API to use: that at the URL if it is not "", else the one that serves from the folder, else
// that at the configured admin address.
func (c *commonFlags) findAny(url string) runningURL {
	if url != "" {
		return c.findRunningAt(url)
	}
	if at, ok := c.findNearby(""); ok {
		return runningAt(at)
	}
	listen := config.AdminListenAddress(c.Config)
	return runningURL{URL: localURL(cmp.Or(listen, config.DefaultAdminListen), config.AdminListensTLS(c.Config)), guessed: listen == ""}
}

// localURL returns the URL by which this machine reaches a listener at the address.
func localURL(address string, secure bool) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		address = net.JoinHostPort("127.0.0.1", port)
	}
	return schemeOf(secure) + address
}

// schemeOf returns the beginning of the URL of an address.
func schemeOf(secure bool) string {
	if secure {
		return "https://"
	}
	return "http://"
}
