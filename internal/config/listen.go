package config

import (
	"maps"
	"os"
	"slices"

	"github.com/goccy/go-yaml"
)

// ListenAddress returns the address that the file says to listen on; "" where it says
// none, or cannot be read. Nothing else in the file is looked at: a command that asks a
// running Switchboard needs no more.
func ListenAddress(file string) string { return peek(file).Listen }

// TenantIDs returns the tenants that the file has a row for, sorted; nil where it has
// none, or cannot be read.
func TenantIDs(file string) []string { return slices.Sorted(maps.Keys(peek(file).Tenants)) }

// A glance is what commands need to know that read no whole configuration.
type glance struct {
	Listen  string         `yaml:"listen"`
	Tenants map[string]any `yaml:"tenants"`
}

// peek reads it; the zero glance where it cannot be read.
func peek(file string) (g glance) {
	data, err := os.ReadFile(file)
	if err != nil || len(data) > MaxFileBytes || yaml.Unmarshal(data, &g) != nil {
		return glance{}
	}
	return g
}

// Instead says what could have been meant in place of a name that is not known: the
// nearest of the known ones, or which there are.
func Instead(name, noun string, known []string) string { return instead(name, noun, known) }
