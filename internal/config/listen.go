package config

import (
	"io"
	"maps"
	"os"
	"slices"

	"github.com/goccy/go-yaml"
	"github.com/summit-switchboard/switchboard/internal/document"
)

// ListenAddress returns the listen address in the file, or "" if the file has none or cannot be read.
// It ignores the rest of the file: a command that asks a running Switchboard needs only the address.
func ListenAddress(file string) string { return readSummary(file).Listen }

// AdminListenAddress returns the admin address in the file, or "" alike.
func AdminListenAddress(file string) string { return readSummary(file).Admin.Listen }

// ListensTLS reports whether the listen address in the file is served with TLS. It is false if the file cannot be read.
func ListensTLS(file string) bool { return readSummary(file).TLS != nil }

// AdminListensTLS reports whether the admin address in the file is served with TLS. It is false if the file cannot be read.
func AdminListensTLS(file string) bool { return readSummary(file).Admin.TLS != nil }

// TenantIDs returns the tenants that have a row in the file, sorted; nil if there are none or the file
// cannot be read.
func TenantIDs(file string) []string { return slices.Sorted(maps.Keys(readSummary(file).Tenants)) }

// ServerIDs returns the servers in the file, sorted; nil if there are none or the file cannot be read.
func ServerIDs(file string) []string { return slices.Sorted(maps.Keys(readSummary(file).Servers)) }

// StoreURL returns the store in the file as it is written, "" if the file has none or cannot be read.
func StoreURL(file string) string { return readSummary(file).Store }

// A mainSummary holds the few values of switchboard.yaml that commands need without loading the
// configuration.
type mainSummary struct {
	Listen string `yaml:"listen"`
	TLS    any    `yaml:"tls"`
	Store  string `yaml:"store"`
	Admin  struct {
		Listen string `yaml:"listen"`
		TLS    any    `yaml:"tls"`
	} `yaml:"admin"`
	Tenants map[string]any `yaml:"tenants"`
	Servers map[string]any `yaml:"servers"`
}

// readSummary reads the file; it returns the zero mainSummary if the file cannot be read.
func readSummary(file string) (g mainSummary) {
	f, err := os.Open(file)
	if err != nil {
		return mainSummary{}
	}
	defer f.Close() //nolint:errcheck // it was only read from
	data, err := io.ReadAll(io.LimitReader(f, document.MaxFileBytes+1))
	if err != nil || len(data) > document.MaxFileBytes || yaml.Unmarshal(data, &g) != nil {
		return mainSummary{}
	}
	return g
}

// SuggestName returns a suggestion for an unknown name: the nearest known name, or the list of known
// names.
func SuggestName(name, noun string, known []string) string {
	return document.Suggestion(name, noun, known)
}
