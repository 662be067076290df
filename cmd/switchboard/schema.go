package main

import (
	"fmt"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/config"
)

type schemaCmd struct {
	Kind string `arg:"" optional:"" help:"The kind of file: switchboard, taxonomy, capability, atoms, boundaries, parties, overlay, tenant or task. Without KIND, list the kinds."`
}

// Run prints the JSON Schema of one kind of configuration file, for editors.
func (s *schemaCmd) Run(io streams) error {
	var known []string
	for _, k := range config.FileKinds() {
		known = append(known, k.Name)
		if s.Kind == "" {
			fmt.Fprintf(io.out, "%-12s %s\n", k.Name, k.Files)
		}
		if s.Kind == k.Name {
			text, err := k.Schema()
			if err != nil {
				return err
			}
			_, err = io.raw.Write(text)
			return err
		}
	}
	if s.Kind == "" {
		return nil
	}
	return usageError{fmt.Errorf("%q is no kind of file; known kinds: %s", s.Kind, strings.Join(known, ", "))}
}
