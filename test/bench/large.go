package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/summit-switchboard/switchboard/test/large"
	"github.com/summit-switchboard/switchboard/test/scratch"
)

// largest is the installation with which the limits of the part "admin" hold.
var largest = large.Installation{Servers: 500, Tools: 20, Tenants: 100, Receipts: 1_000_000}

// largeFile is the file in the folder of a large installation with its keys and its admin address.
const largeFile = "large.json"

// A largeNote is the content of largeFile.
type largeNote struct {
	large.Keys
	Admin string        `json:"admin"`
	Took  time.Duration `json:"took,omitempty"` // to write the store; 0 if it was there
}

// runLarge writes a large installation into a folder, and serves its servers until ctx ends. The store is written only if there is none, because that
// takes a minute for a million receipts.
func runLarge(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("large", flag.ContinueOnError)
	in := largest
	f.IntVar(&in.Servers, "servers", in.Servers, "how many servers there are")
	f.IntVar(&in.Tools, "tools", in.Tools, "how many tools each of them has")
	f.IntVar(&in.Tenants, "tenants", in.Tenants, "how many tenants there are")
	f.IntVar(&in.Receipts, "receipts", in.Receipts, "how many receipts there are at least")
	f.StringVar(&in.Admin, "admin", "", "the admin address; without it, a free one")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 || in.Servers < 1 || in.Tools < 2 || in.Tenants < 1 {
		return errors.New("want: large [FLAGS] DIR")
	}
	dir := f.Arg(0)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	free, err := scratch.Addr()
	if err != nil {
		return err
	}
	in.Behind, in.Admin = "http://"+l.Addr().String(), cmp.Or(in.Admin, free)
	keys, err := in.WriteConfiguration(dir)
	if err != nil {
		return err
	}
	note := largeNote{Keys: *keys, Admin: "http://" + in.Admin}
	if _, err := os.Stat(filepath.Join(large.Data(dir), "store.db")); err != nil {
		began := time.Now()
		if err := in.WriteStore(ctx, dir); err != nil {
			return err
		}
		note.Took = time.Since(began)
	}
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, largeFile), text, 0o600); err != nil {
		return err
	}
	servers := http.NewServeMux()
	for s := range in.Servers {
		b := &backend{era: legacy}
		list := append(append([]byte(`{"tools":`), in.Definitions(s)...), b.rest()...)
		b.list = func() []byte { return list }
		servers.Handle("/"+large.ServerID(s), b)
	}
	return listenOn(ctx, l, servers)
}

// serveLarge writes the large installation, and starts its servers. The store is kept for the next part that needs it.
func (b *bench) serveLarge(ctx context.Context) (dir string, note *largeNote, stop func(), err error) {
	if dir = b.folder; dir == "" {
		dir = filepath.Join(b.dir, "large")
	}
	p, err := start(ctx, "", b.self, "large", "-receipts", fmt.Sprint(b.size.Receipts), "-servers", fmt.Sprint(b.size.Servers), "-tools", fmt.Sprint(b.size.Tools), "-tenants", fmt.Sprint(b.size.Tenants), dir)
	if err != nil {
		return "", nil, nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, largeFile))
	if err == nil {
		note = &largeNote{}
		err = json.Unmarshal(text, note)
	}
	if err != nil {
		p.stop()
		return "", nil, nil, err
	}
	return dir, note, p.stop, nil
}
