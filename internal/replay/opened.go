package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A PolicyVersion is the archived policy that made a receipt's decision.
type PolicyVersion struct {
	// Digest identifies it: status reports the same digest for the policy in force. "" means that the
	// decision is not archived.
	Digest switchboard.Digest `json:"digest,omitempty"`
	Layers []PolicyLayer      `json:"layers"`
}

// A PolicyLayer is one layer of a policy: the files that it was compiled from.
type PolicyLayer struct {
	Layer  string             `json:"layer"` // "operator" or "tenant"
	Digest switchboard.Digest `json:"digest"`
	Files  []PolicyFileDigest `json:"files"`

	// Why says why the files are not known. It is "" if they are known.
	Why string `json:"why,omitempty"`
}

// A PolicyFileDigest identifies one file of a layer.
type PolicyFileDigest struct {
	Path   string             `json:"path"`
	Digest switchboard.Digest `json:"digest"` // SHA-256 of its bytes
	Bytes  int                `json:"bytes"`
}

// PolicyVersions looks up the digests of a receipt. It returns the policies that made its
// decisions, in the order of the receipt. A receipt has none if policy was not asked.
func PolicyVersions(ctx context.Context, records Records, r *receipt.Receipt) (all []PolicyVersion) {
	type decided struct{ decision, basis switchboard.Digest }
	var by []decided
	add := func(d decided) {
		if d.basis != "" && !slices.ContainsFunc(by, func(o decided) bool { return o.basis == d.basis }) {
			by = append(by, d)
		}
	}
	for _, d := range r.Rulings {
		var said archivedRuling
		if text, err := archive.Read(ctx, records, d); err == nil && json.Unmarshal(text, &said) == nil {
			add(decided{r.Decision, said.Basis})
		}
	}
	if by == nil || r.Kind == receipt.Decision {
		add(decided{r.Decision, r.Basis})
	}
	for _, d := range by {
		all = append(all, policyVersion(ctx, records, d.decision, d.basis))
	}
	return all
}

func policyVersion(ctx context.Context, records Records, decision, basis switchboard.Digest) (v PolicyVersion) {
	var record struct {
		Snapshot struct{ Policy switchboard.Digest }
	}
	if text, err := archive.Read(ctx, records, decision); err == nil && json.Unmarshal(text, &record) == nil {
		v.Digest = record.Snapshot.Policy
	}
	var refs map[string]switchboard.Digest
	text, err := archive.Read(ctx, records, basis)
	if err == nil {
		err = json.Unmarshal(text, &refs)
	}
	if err != nil {
		v.Layers = []PolicyLayer{{Layer: "operator", Why: err.Error()}}
		return v
	}
	for _, l := range []struct{ name, text string }{{"operator", textOperator}, {"tenant", textTenantPolicy}} {
		if refs[l.text] == "" {
			continue
		}
		layer := PolicyLayer{Layer: l.name, Digest: refs[l.text]}
		var files []switchboard.PolicyFile
		text, err := archive.Read(ctx, records, layer.Digest)
		if err == nil {
			err = json.Unmarshal(text, &files)
		}
		if err != nil {
			layer.Why = err.Error()
		}
		for _, f := range files {
			layer.Files = append(layer.Files, PolicyFileDigest{f.Path, canonical.Sum(f.Data), len(f.Data)})
		}
		v.Layers = append(v.Layers, layer)
	}
	return v
}

// An OpenedDecision is a recorded decision on a task, made again from its archived inputs.
type OpenedDecision struct {
	Tenant   *bind.Tenant // as it was then, without the equivalents of its tools
	Decision *decide.Decision
}

// A DecisionOpener makes recorded decisions again. It keeps the tools and the compiled policies of the last one, because to compile them takes
// most of the time, and most decisions that are looked at have the same ones. It is for one goroutine at a time.
type DecisionOpener struct{ reader *basisReader }

// NewDecisionOpener returns a DecisionOpener that reads the archive in records.
func NewDecisionOpener(records Records) *DecisionOpener {
	return &DecisionOpener{&basisReader{records: records, engine: policy.NewEngine(replayTimeout, 0)}}
}

// Open makes the decision again that a receipt of kind Decision records. The error says why that is not possible. A decision that
// comes out differently is an error too.
func (o *DecisionOpener) Open(ctx context.Context, r *receipt.Receipt) (*OpenedDecision, error) {
	a, records := o.reader, o.reader.records
	e := &decisionRecord{when: r.Time, digest: r.Decision, basis: r.Basis}
	text, err := archive.Read(ctx, records, r.Basis)
	if err == nil {
		err = json.Unmarshal(text, &e.refs)
	}
	if err == nil {
		err = a.readText(ctx, e)
	}
	if err != nil {
		return nil, errors.New(skipReason(err))
	}
	was, err := a.readBasis(ctx, e)
	if err != nil {
		return nil, errors.New(skipReason(err))
	}
	t, err := a.rebuildTenant(was, 0)
	if err != nil {
		return nil, fmt.Errorf("the archived inputs of the decision are refused now: %w", err)
	}
	_, d, err := a.remake(ctx, t, e)
	switch {
	case err != nil:
		return nil, err
	case d == nil || policyFailed(e.text):
		return nil, errors.New(whyTime)
	case !bytes.Equal(d.Canonical(), e.text):
		return nil, errors.New("made again from its archived inputs, the decision comes out differently: a defect in Switchboard or in its records")
	}
	return &OpenedDecision{t, d}, nil
}
