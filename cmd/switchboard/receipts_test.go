package main

import (
	"context"
	"os"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// writeReceipts is a program for scripts. Its arguments are the URL of a store, a file for checkpoints and
// names of tools. It writes a receipt of a call for each tool, as node n1.
func writeReceipts() {
	ctx := context.Background()
	try := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	s, err := store.Open(ctx, os.Args[1], store.Options{})
	try(err)
	anchor, err := receipt.OpenAnchor(os.Args[2])
	try(err)
	b, err := receipt.Open(ctx, s, receipt.ChainOptions{
		Node: "n1", Key: switchboard.NewSecret("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), DigestKey: switchboard.NewSecret("a secret"),
		Anchor: anchor, Version: "v1",
	})
	try(err)
	for _, tool := range os.Args[3:] {
		r := receipt.Receipt{
			Kind: receipt.Call, Tenant: "acme", Principal: receipt.Subject{ID: "ci", Auth: switchboard.AuthAPIKey}, Task: "work",
			Method: "tools/call", Server: "notes", Tool: tool, Outcome: receipt.OK, Took: receipt.CallTime{Total: 1500},
		}
		if tool == "send" {
			r.Outcome, r.Code, r.Effect = receipt.Refused, switchboard.CodeDenied, true
		}
		b.Add(&r)
	}
	try(b.Close(ctx))
	try(s.Close())
}
