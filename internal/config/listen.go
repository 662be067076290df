package config

import (
	"maps"
	"os"
	"slices"

	"github.com/goccy/go-yaml"
	"github.com/summit-switchboard/switchboard/internal/document"
)

// ListenAddress returns the listen address in the file, or "" if the file has none or cannot be read.
// It ignores the rest of the file: a command that asks a running Switchboard needs only the address.
func ListenAddress(file string) string { return readSummary(file).Listen }

// TenantIDs returns the tenants that have a row in the file, sorted; nil if there are none or the file
// cannot be read.
func TenantIDs(file string) []string { return slices.Sorted(maps.Keys(readSummary(file).Tenants)) }

// A mainSummary holds the few values of switchboard.yaml that commands need without loading the
// configuration.
type mainSummary struct {
	Listen  string         `yaml:"listen"`
	Tenants map[string]any `yaml:"tenants"`
}

// readSummary reads the file; it returns the zero mainSummary if the file cannot be read.
func readSummary(file string) (g mainSummary) {
	data, err := os.ReadFile(file)
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
