package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type serverRemoveCmd struct {
	editFlags
	ID []switchboard.ServerID `arg:"" help:"The servers."`
}

// Run removes the servers from the configuration, unless something in it still refers to them. It also removes the files with
// their secrets that a command has written, and to which nothing else refers.
func (s *serverRemoveCmd) Run(ctx context.Context, io streams) error {
	e := newConfigEdit(s.Config, s.DryRun, io)
	r := s.findRunning(ctx)
	var files []string
	err := e.apply(ctx, func(text []byte) (configChange, error) {
		next, err := edit.RemoveServers(e.file, text, s.ID...)
		if err != nil {
			return configChange{}, err
		}
		files, err = e.unused(text, next)
		return configChange{text: next}, err
	})
	if refused, ok := errors.AsType[*edit.Refused](err); ok {
		return fmt.Errorf("nothing was changed, because the configuration still refers to %s; remove these references first:\n%w", joinIDs(s.ID), refused.Faults)
	}
	if err != nil {
		return err
	}
	if s.DryRun {
		for _, f := range files {
			fmt.Fprintf(io.err, "the secret in %s would be removed\n", e.secrets.path(f))
		}
		return nil
	}
	fmt.Fprintf(io.out, "%s: removed %s\n", e.file, joinIDs(s.ID))
	if err := e.secrets.remove(ctx, files); err != nil {
		return err
	}
	for _, f := range files {
		fmt.Fprintf(io.out, "removed the secret in %s\n", e.secrets.path(f))
	}
	return r.tellRemoved(ctx, io, e.file, s.ID, s.Wait)
}

// unused returns the files with secrets that only the old text of the configuration names, and that commands have written.
func (e *configEdit) unused(old, next []byte) ([]string, error) {
	before, elsewhere, err := edit.ListFiles(e.file, old)
	if err != nil {
		return nil, err
	}
	after, _, err := edit.ListFiles(e.file, next)
	if err != nil {
		return nil, err
	}
	var names []string
	for id, files := range before {
		if _, stays := after[id]; !stays {
			names = append(names, files...)
		}
	}
	for _, files := range after {
		elsewhere = append(elsewhere, files...)
	}
	return e.secrets.removable(slices.DeleteFunc(names, func(f string) bool { return slices.Contains(elsewhere, f) }))
}
