package upstream

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The limits of one server's list of tools. What is beyond them is left out,
// and the status says so.
const (
	maxPages     = 1_000
	maxTools     = 10_000
	maxListBytes = 32 << 20
	listPatience = 30 * time.Second
)

// A listing is what a server offers: its tools, and what was wrong with how it
// listed them.
type listing struct {
	tools [][]byte
	note  string
}

// list asks for all pages of tools/list. The definitions are the server's own
// bytes.
func (l *link) list(ctx context.Context) (listing, error) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	var (
		got    listing
		size   int
		cursor []byte
	)
	seen := map[string]bool{}
	for page := 0; ; page++ {
		if page == maxPages {
			got.note = fmt.Sprintf("its tools are cut after %d pages", maxPages)
			return got, nil
		}
		own := []byte("{}")
		if cursor != nil {
			own = wire.Rewrite(nil, own, wire.Edit{Name: "cursor", Value: cursor})
		}
		result, err := l.ask(ctx, wire.MethodToolsList, l.params(own, l.hello().version))
		if err != nil {
			_, declared := wire.Field(l.hello().capabilities, "tools")
			if asFault(err).code == wire.CodeMethodNotFound && !declared && page == 0 {
				return listing{}, nil // it has none, and never said so
			}
			return listing{}, err
		}
		if size += len(result); size > maxListBytes {
			got.note = fmt.Sprintf("its tools are cut after %d bytes", maxListBytes)
			return got, nil
		}
		tools, ok := wire.Field(result, "tools")
		if !ok || tools[0] != '[' {
			return listing{}, faultf(kindInvalid, true, "its answer to tools/list holds no list of tools")
		}
		for tool := range wire.Elements(tools) {
			if len(got.tools) == maxTools {
				got.note = fmt.Sprintf("its tools are cut after %d", maxTools)
				return got, nil
			}
			got.tools = append(got.tools, tool)
		}
		next, ok := wire.Field(result, "nextCursor")
		if !ok || string(next) == "null" {
			return got, nil
		}
		if _, ok := wire.String(next); !ok {
			return listing{}, faultf(kindInvalid, true, "its answer to tools/list has a cursor that is no string")
		}
		// An empty cursor is a cursor like any other, and so followed once.
		if seen[string(next)] {
			got.note = fmt.Sprintf("its tools are cut after page %d, where it starts over", page+1)
			return got, nil
		}
		seen[string(next)] = true
		cursor = next
	}
}

// same reports whether two lists hold the same bytes.
func same(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
