package catalog

import (
	"strconv"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Digests are of a sequence of fields, each as its length in decimal, a colon,
// and its bytes; a list is its length followed by its fields. So no two
// different values have the same bytes.

func appendField(dst []byte, s string) []byte {
	dst = strconv.AppendInt(dst, int64(len(s)), 10)
	dst = append(dst, ':')
	return append(dst, s...)
}

func appendCount(dst []byte, n int) []byte {
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, ';')
}

// appendTool appends what decisions read of a tool. Stale is left out: a
// server that is away still has the tools that it had.
func appendTool(dst []byte, t *switchboard.Tool) []byte {
	dst = appendField(dst, string(t.ID.Server))
	dst = appendField(dst, t.ID.Name)
	dst = appendField(dst, string(t.Digest))
	dst = appendField(dst, t.Class)
	dst = appendField(dst, string(t.Trust))
	dst = appendField(dst, t.Version)
	dst = appendCapabilities(dst, t.Capabilities)
	dst = appendCapabilities(dst, t.Kept)
	dst = appendContract(dst, &t.Contract)
	if len(t.Redact) == 0 {
		return dst
	}
	dst = appendCount(append(dst, "redact;"...), len(t.Redact))
	for _, d := range t.Redact {
		dst = appendField(dst, string(d))
	}
	return dst
}

// appendContract appends nothing where nobody says anything, as for all tools
// before there were contracts. What it appends else begins as no field does.
func appendContract(dst []byte, c *switchboard.Contract) []byte {
	if *c == (switchboard.Contract{}) {
		return dst
	}
	dst = append(dst, "contract;"...)
	for _, f := range []switchboard.Fact{c.ReadOnly, c.Idempotent, c.Stateful, c.Deterministic} {
		dst = appendField(dst, string(f.Source))
		dst = strconv.AppendBool(dst, f.Holds)
		dst = strconv.AppendBool(dst, f.Trusted)
	}
	return strconv.AppendBool(appendCount(dst, int(c.Timeout)), c.Hurried)
}

func appendCapabilities(dst []byte, caps []switchboard.Capability) []byte {
	dst = appendCount(dst, len(caps))
	for _, c := range caps {
		dst = appendField(dst, string(c.Verb))
		dst = appendField(dst, string(c.Resource))
		dst = appendField(dst, string(c.Source))
		dst = appendCount(dst, len(c.Constraints))
		for _, k := range c.Constraints {
			dst = appendField(dst, string(k))
		}
	}
	return dst
}

// taxonomyWords gives the taxonomy as fields: equal taxonomies, equal words.
func taxonomyWords(tax *switchboard.Taxonomy) string {
	rs, cs := tax.Resources(), tax.Constraints()
	dst := appendCount(nil, len(rs))
	for _, r := range rs {
		dst = appendField(dst, string(r))
		dst = appendField(dst, string(tax.Parent(r)))
	}
	dst = appendCount(dst, len(cs))
	for _, c := range cs {
		dst = appendField(dst, string(c))
	}
	return string(dst)
}
