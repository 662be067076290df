package main

import (
	"context"

	"github.com/summit-switchboard/switchboard/internal/sample"
)

type sampleCmd struct {
	Name string `arg:"" help:"The sample server to run."`
	Root string `help:"The folder that code-reader reads." placeholder:"DIR"`
	HTTP string `name:"http" help:"Serve Streamable HTTP on ADDR instead of stdio." placeholder:"ADDR"`

	Reworded bool `help:"Describe a tool of nimbus-search in other words."`
}

// Run serves the sample until it is stopped or its client disconnects.
func (s *sampleCmd) Run(ctx context.Context, io streams) error {
	return sample.Serve(ctx, s.Name, sample.Options{Root: s.Root, HTTP: s.HTTP, Reworded: s.Reworded, Stdin: io.in, Stdout: io.raw, Stderr: io.err})
}
