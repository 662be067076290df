package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/rewrite"
)

type capabilityCmd struct {
	List    capabilityListCmd    `cmd:"" help:"List the versions in the folder capabilities, and whether they are published."`
	Show    capabilityShowCmd    `cmd:"" help:"Show a version: what it promises, what it needs, and the tools that clients see."`
	Publish capabilityPublishCmd `cmd:"" help:"Write the digest of a version into the lock. From then on its content never changes."`
}

// A capabilityRef is an argument that names a capability, or a version of it.
type capabilityRef string

// registryFlags say which registry a command reads.
type registryFlags struct {
	outputFlags
	Config string `help:"The configuration beside which the folder capabilities stands." placeholder:"FILE" default:"${config}"`
}

// lockPath returns the path of the lock.
func (f *registryFlags) lockPath() string {
	return filepath.Join(filepath.Dir(f.Config), config.CapabilitiesFolder, capability.LockFile)
}

// read returns the versions and the lock. What the configuration has else is not looked at, and a version need not be published.
func (f *registryFlags) read() (*capability.Registry, map[string]capability.Locked, error) {
	r, err := config.ReadRegistry(f.Config, config.Options{Env: os.LookupEnv})
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(f.lockPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	lines, faults := capability.ReadLock(f.lockPath(), text)
	if faults != nil {
		return nil, nil, faults
	}
	locked := map[string]capability.Locked{}
	for _, l := range lines {
		locked[l.Name()] = l
	}
	return r, locked, nil
}

// A listedVersion is one version in the output with --json.
type listedVersion struct {
	Capability  string            `json:"capability"`
	Version     string            `json:"version"`
	Status      capability.Status `json:"status"`
	Published   bool              `json:"published"`
	Digest      string            `json:"digest"`
	Description string            `json:"description,omitempty"`
	Needs       string            `json:"needs"` // such as read fs [readonly]
	Permissions []string          `json:"permissions,omitempty"`
	Models      []string          `json:"models,omitempty"`
	Requires    []string          `json:"requires,omitempty"`
	Tools       []json.RawMessage `json:"tools,omitempty"`
	File        string            `json:"file"`
}

func listVersion(v *capability.ContractVersion, locked map[string]capability.Locked) listedVersion {
	file := fileOf(v.Position)
	l := listedVersion{
		Capability: v.ID, Version: v.Number.String(), Status: v.Status, Digest: string(v.Digest), Description: v.Description,
		Needs: strings.TrimSuffix(fmt.Sprintf("%s %s %s", v.Verb, v.Resource, v.Constraints), " []"), Permissions: v.Permissions, Models: v.Models, Requires: v.Atoms, File: file,
	}
	l.Published = locked[v.Name()].Digest == v.Digest && v.Digest != ""
	for _, ref := range v.Capabilities {
		l.Requires = append(l.Requires, ref.String())
	}
	for _, t := range v.Tools {
		l.Tools = append(l.Tools, t.Definition)
	}
	return l
}

// fileOf returns the file of a position, file:line:column.
func fileOf(position string) string {
	for range 2 {
		if at := strings.LastIndexByte(position, ':'); at >= 0 {
			position = position[:at]
		}
	}
	return position
}

func yesOrNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

type capabilityListCmd struct{ registryFlags }

// Run prints one line for each version, the newest of each capability first.
func (c *capabilityListCmd) Run(io streams) error {
	r, locked, err := c.read()
	if err != nil {
		return err
	}
	all := []listedVersion{}
	for _, id := range r.IDs() {
		for _, v := range r.Versions(id) {
			l := listVersion(v, locked)
			l.Tools = nil // show has them
			all = append(all, l)
		}
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(all)
	}
	if len(all) == 0 {
		fmt.Fprintf(io.out, "there are no capabilities; write one into %s, such as io.fs.read.yaml: switchboard docs capabilities\n", filepath.Dir(c.lockPath()))
		return nil
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CAPABILITY\tVERSION\tSTATUS\tPUBLISHED\tNEEDS\tPERMISSIONS\tFILE")
	for _, l := range all {
		permissions := strings.Join(l.Permissions, " ")
		if permissions == "" {
			permissions = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Capability, l.Version, l.Status, yesOrNo(l.Published), l.Needs, permissions, printable(filepath.Base(l.File), 100))
	}
	return w.Flush()
}

type capabilityShowCmd struct {
	registryFlags
	Ref capabilityRef `arg:"" name:"id" help:"The capability, such as io.fs.read, and perhaps a version or a range: io.fs.read@1.2.0, io.fs.read@^1. Without one, the newest version that can be bound; if there is none, the newest."`
}

// Run prints the version that the argument means.
func (c *capabilityShowCmd) Run(io streams) error {
	r, locked, err := c.read()
	if err != nil {
		return err
	}
	v, err := findVersion(r, string(c.Ref))
	if err != nil {
		return err
	}
	l := listVersion(v, locked)
	if c.JSON {
		return encodeJSON(io.raw, l)
	}
	fmt.Fprintf(io.out, "%s (%s)\n", v.Name(), v.Status)
	if v.Description != "" {
		fmt.Fprintln(io.out, printable(v.Description, 400))
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	row := func(name string, values ...string) {
		if text := strings.Join(values, ", "); text != "" {
			fmt.Fprintf(w, "  %s\t%s\n", name, printable(text, 400))
		}
	}
	row("needs", l.Needs)
	row("permissions", v.Permissions...)
	row("models", v.Models...)
	row("requires", l.Requires...)
	row("side effects", v.Facts.SideEffects...)
	row("risk", v.Facts.RiskLevel)
	row("cost", string(v.CostClass()))
	row("published", yesOrNo(l.Published))
	row("digest", l.Digest)
	row("file", l.File)
	if err := w.Flush(); err != nil {
		return err
	}
	for _, t := range v.Tools {
		fmt.Fprintf(io.out, "  tool %s\n    %s\n", t.Name, printable(string(t.Definition), 4000))
	}
	return nil
}

// findVersion returns the version that the text means.
func findVersion(r *capability.Registry, text string) (*capability.ContractVersion, error) {
	ref, err := capability.ParseRef(text)
	if err != nil {
		return nil, usageError{err}
	}
	if v := r.Find(ref, nil); v != nil {
		return v, nil
	}
	var numbers []string
	for _, v := range r.Versions(ref.ID) {
		if ref.Admits(v.Number) {
			return v, nil
		}
		numbers = append(numbers, v.Number.String())
	}
	if numbers != nil {
		return nil, usageError{fmt.Errorf("%s has no version in the range %s; it has %s", ref.ID, ref.Range, strings.Join(numbers, ", "))}
	}
	return nil, usageError{fmt.Errorf("there is no capability %s%s", ref.ID, config.SuggestName(ref.ID, "capabilities", r.IDs()))}
}

type capabilityPublishCmd struct {
	registryFlags
	Ref capabilityRef `arg:"" name:"version" help:"The version, such as io.fs.read@1.2.0."`
}

// Run adds the version to the lock. A version that is published with the same content stays as it is.
func (c *capabilityPublishCmd) Run(ctx context.Context, io streams) error {
	r, _, err := c.read()
	if err != nil {
		return err
	}
	v, err := findVersion(r, string(c.Ref))
	if err != nil {
		return err
	}
	if v.Name() != string(c.Ref) {
		return usageError{fmt.Errorf("%s does not name one version; write %s", c.Ref, v.Name())}
	}
	ctx, cancel := context.WithTimeout(ctx, editTimeout)
	defer cancel()
	added := false
	err = rewrite.File(ctx, c.lockPath(), 0o644, func(old []byte) ([]byte, error) {
		next, err := capability.AddToLock(c.lockPath(), old, v)
		added = err == nil && len(next) != len(old)
		return next, err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(struct {
			Capability string `json:"capability"`
			Version    string `json:"version"`
			Digest     string `json:"digest"`
			Lock       string `json:"lock"`
			Added      bool   `json:"added"`
		}{v.ID, v.Number.String(), string(v.Digest), c.lockPath(), added})
	}
	if !added {
		fmt.Fprintf(io.out, "%s is published already, with this content\n", v.Name())
		return nil
	}
	fmt.Fprintf(io.out, "%s is published: %s\n", v.Name(), v.Digest)
	file := fileOf(v.Position)
	if !v.Bindable() {
		fmt.Fprintf(io.out, "Its status is %s. To have it bound, write status: active in %s; the digest leaves the status out.\n", v.Status, file)
	}
	_, err = fmt.Fprintf(io.out, "Commit %s together with %s, and check all: switchboard validate\n", c.lockPath(), file)
	return err
}
