package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type validateCmd struct {
	commonFlags
	outputFlags
}

// Run reads the configuration and prints its faults, or a summary.
func (v *validateCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	c, err := v.checkConfig(ctx, log)
	if err != nil {
		return err
	}
	tasks := 0
	for _, t := range c.Tenants {
		tasks += len(t.Tasks)
	}
	sum := struct {
		Servers  int `json:"servers"`
		Tenants  int `json:"tenants"`
		Tasks    int `json:"tasks"`
		Keys     int `json:"keys"`
		Overlays int `json:"tools_in_overlays"`

		Pins     []serverPins `json:"pins,omitempty"`
		Warnings []string     `json:"warnings,omitempty"`
	}{Servers: len(c.Servers), Tenants: len(c.Tenants), Tasks: tasks, Keys: len(c.Keys), Overlays: len(c.Overlays), Pins: countPins(c)}
	for _, w := range c.Warnings {
		sum.Warnings = append(sum.Warnings, w.String())
	}
	if v.JSON {
		return json.NewEncoder(io.raw).Encode(sum)
	}
	for _, w := range sum.Warnings {
		fmt.Fprintln(io.err, "warning:", w)
	}
	file := v.Config
	if v.MCPConfig != "" {
		file = v.MCPConfig
	}
	var holds []string
	for _, h := range []struct {
		n    int
		what string
	}{{sum.Servers, "server"}, {sum.Tenants, "tenant"}, {sum.Tasks, "task"}, {sum.Keys, "key"}} {
		if h.n > 0 {
			holds = append(holds, count(h.n, h.what))
		}
	}
	fmt.Fprintf(io.out, "%s: good: %s\n", file, strings.Join(holds, ", "))
	for _, p := range sum.Pins {
		fmt.Fprintf(io.out, "%s: server %s: %s\n", config.AdmittedFile, p.Server, p)
	}
	return nil
}

// serverPins says how many definitions of a server people have let in, and took out.
type serverPins struct {
	Server   switchboard.ServerID `json:"server"`
	LetIn    int                  `json:"let_in"`
	TakenOut int                  `json:"taken_out"`
	Strict   bool                 `json:"strict"` // only these are served
}

// String returns the numbers in words.
func (p serverPins) String() string {
	s := count(p.LetIn, "definition") + " let in"
	if p.TakenOut > 0 {
		s += fmt.Sprintf(", %d taken out", p.TakenOut)
	}
	switch {
	case p.Strict && p.LetIn == 0:
		s += "; its trust is strict, so nothing of it is served"
	case p.Strict:
		s += "; its trust is strict, so nothing else of it is served"
	}
	return s
}

// countPins counts the pins of each server that has some, or whose trust is strict.
func countPins(c *config.Config) (all []serverPins) {
	letIn, takenOut := map[switchboard.ServerID]int{}, map[switchboard.ServerID]int{}
	for id, pin := range c.Admitted {
		if pin.State == switchboard.LifeRetired || pin.State == switchboard.LifeSuspended {
			takenOut[id.Server]++
		} else {
			letIn[id.Server]++
		}
	}
	for i := range c.Servers {
		s := &c.Servers[i]
		p := serverPins{s.ID, letIn[s.ID], takenOut[s.ID], s.Admission.Strict()}
		if p.LetIn+p.TakenOut > 0 || p.Strict {
			all = append(all, p)
		}
	}
	return all
}

// count returns "1 server" or "2 servers".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprint(n, " ", what)
}
