package catalog

import (
	"strconv"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A digest covers a sequence of fields. Each field is written as its length in decimal, a colon, and its bytes. A list
// is written as its length followed by its fields. So different values never have the same bytes.

func appendField(dst []byte, s string) []byte {
	dst = strconv.AppendInt(dst, int64(len(s)), 10)
	dst = append(dst, ':')
	return append(dst, s...)
}

func appendCount(dst []byte, n int) []byte {
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, ';')
}

// appendTool appends the parts of a tool that decisions read. Stale is left out, because a server that is away still
// has its tools.
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
	dst = appendPrice(dst, t.Price)
	dst = appendEvidence(appendAdmission(dst, t.Admission), t.Evidence)
	return appendTexts(dst, "redact;", t.Redact)
}

// appendAdmission appends nothing for a tool that is plainly active, so that the digests of such tools stay as they were before admission existed.
func appendAdmission(dst []byte, a *switchboard.Admission) []byte {
	if a == nil {
		return dst
	}
	dst = appendField(append(dst, "admission;"...), string(a.State))
	dst = strconv.AppendBool(dst, a.Frozen)
	return appendField(appendField(dst, a.Why), a.Successor)
}

// appendEvidence appends nothing if nothing is known of the tool.
func appendEvidence(dst []byte, e *switchboard.ToolEvidence) []byte {
	if e.Equal(nil) {
		return dst
	}
	dst = appendField(append(dst, "evidence;"...), e.Diff)
	dst = appendCount(strconv.AppendBool(strconv.AppendBool(dst, e.Person), e.Read), len(e.Findings))
	for _, f := range e.Findings {
		dst = appendField(appendField(dst, f.Rule), f.Tier)
	}
	if r := e.Report; r != nil {
		dst = strconv.AppendBool(appendField(appendCount(append(dst, "report;"...), r.Score), r.Leave), r.Verified)
		dst = appendTexts(appendTexts(dst, "failed;", r.Failed), "walls;", r.Walls)
	}
	return dst
}

// appendContract appends nothing for an empty contract, so that the digests of tools without a contract stay as they
// were before contracts existed. Otherwise the first bytes cannot be those of a field.
func appendContract(dst []byte, c *switchboard.Contract) []byte {
	if c.Equal(&switchboard.Contract{}) {
		return dst
	}
	dst = append(dst, "contract;"...)
	for _, f := range []switchboard.Fact{c.ReadOnly, c.Idempotent, c.Stateful, c.Deterministic} {
		dst = appendField(dst, string(f.Source))
		dst = strconv.AppendBool(dst, f.Holds)
		dst = strconv.AppendBool(dst, f.Trusted)
	}
	dst = strconv.AppendBool(appendCount(dst, int(c.Timeout)), c.Hurried)
	if c.CostClass != "" {
		dst = appendField(append(dst, "class;"...), string(c.CostClass))
	}
	for _, one := range []struct{ name, says string }{{"capability;", c.Capability}, {"risk;", c.RiskLevel}, {"risk class;", string(c.Risk)}} {
		if one.says != "" {
			dst = appendField(append(dst, one.name...), one.says)
		}
	}
	dst = appendTexts(dst, "accounts;", c.Accounts)
	dst = appendTexts(dst, "effects;", c.SideEffects)
	dst = appendTexts(dst, "flow;", c.Flow.Bits.Names())
	return appendTexts(dst, "approval;", c.ApprovalRequired)
}

// appendTexts appends the name of a list and the list, or nothing for an empty list. The name cannot be the beginning of a field.
func appendTexts[T ~string](dst []byte, name string, list []T) []byte {
	if len(list) == 0 {
		return dst
	}
	dst = appendCount(append(dst, name...), len(list))
	for _, s := range list {
		dst = appendField(dst, string(s))
	}
	return dst
}

// appendPrice appends nothing for a tool without a price, so that the digests of such tools stay as they were before prices
// existed.
func appendPrice(dst []byte, p *switchboard.Price) []byte {
	if p == nil {
		return dst
	}
	dst = appendCount(append(dst, "price;"...), int(p.Call))
	dst = strconv.AppendBool(appendCount(dst, int(p.Most)), p.Reported)
	dst = appendCount(dst, len(p.Each))
	for _, e := range p.Each {
		dst = appendCount(appendField(dst, e.Pointer), int(e.Micros))
	}
	return dst
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

// taxonomyFields returns the taxonomy as fields. Equal taxonomies give equal strings.
func taxonomyFields(tax *switchboard.Taxonomy) string {
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
