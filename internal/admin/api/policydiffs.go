package api

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

// defaultPeriod is how far a comparison looks back if the request does not say it.
const defaultPeriod = 7 * 24 * time.Hour

// A ProposedText is a file of a proposal.
type ProposedText struct {
	Path string  `json:"path" minLength:"1" maxLength:"512"`
	Text *string `json:"text" nullable:"true" maxLength:"1048576" doc:"The whole text of the file; null deletes it."`
}

// A ProposedPolicies is a layer of policies that a proposal replaces whole.
type ProposedPolicies struct {
	Tenant switchboard.TenantID `json:"tenant,omitempty" maxLength:"64" doc:"The tenant of the layer. Without it: the operator's layer."`
	Files  []ProposedText       `json:"files" maxItems:"200" nullable:"false" doc:"Its files, with paths in the folder of policies, such as veto.rego. Tests are ignored."`
}

type policyDiffRequest struct {
	TenantQuery
	Body struct {
		Since   time.Time          `json:"since,omitzero" required:"false" doc:"Compare the decisions since then. Without it: those of the last seven days."`
		Receipt string             `json:"receipt,omitempty" maxLength:"128" doc:"Compare only the decisions of the receipt with this id, whenever it was written."`
		Layers  []ProposedPolicies `json:"layers,omitempty" maxItems:"50" doc:"Layers of policies that replace the recorded ones whole."`
		Files   []ProposedText     `json:"files,omitempty" maxItems:"200" doc:"Changed files, with their paths in the folder of the configuration. Policies alone join the recorded layers, and capabilities/boundaries.yaml replaces the recorded boundaries. With any other file, such as tenants/acme/tenant.yaml, the whole configuration that is in force, with the changes, is compared."`
	}
}

type policyDiffPath struct {
	TenantQuery
	Diff string `path:"diff" maxLength:"64" doc:"The id of the comparison."`
}

type policyDiffAnswer struct {
	Location string `header:"Location"`
	Body     whatif.Comparison
}

func badRequest(text string) error {
	return &apiProblem{Problem: access.ProblemOf(http.StatusBadRequest, &switchboard.Error{Text: text})}
}

// addPolicyDiffs adds the routes about comparisons of recorded decisions with proposals.
func (a *API) addPolicyDiffs() {
	const author = switchboard.OfficeAuthor
	add(a, route{
		id: "start-policy-diff", method: http.MethodPost, path: "/v1/policy-diffs", needs: author, status: http.StatusAccepted,
		errors:  []int{http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType},
		summary: "Compare recorded decisions with a proposal. Without layers and files, the decisions are only replayed: each must come out as it was recorded. The answer comes at once; Location says where the progress is, and then the result",
	}, func(ctx context.Context, q asked, in *policyDiffRequest) (*policyDiffAnswer, error) {
		if in.Body.Receipt != "" {
			if _, _, _, err := receipt.ParseID(in.Body.Receipt); err != nil {
				return nil, badRequest(err.Error())
			}
			if row, err := a.o.Reader.FindReceipt(ctx, q.tenant, in.Body.Receipt); err != nil || row == nil {
				return nil, cmp.Or(err, errNoReceipt)
			}
		}
		p, err := a.readProposal(ctx, q, in)
		if err != nil {
			return nil, changed(err)
		}
		since := in.Body.Since
		if since.IsZero() {
			since = time.Now().Add(-defaultPeriod)
		}
		c, err := a.o.Records.Comparisons.Start(q.tenant, q.officer.ID, since, func(ctx context.Context, s replay.Bounds, progress func(done, of int)) (*replay.Diff, error) {
			s.Receipt = in.Body.Receipt
			return a.o.Records.Compare(ctx, s, p, progress)
		})
		if err != nil {
			if own, ok := errors.AsType[*switchboard.Error](err); ok {
				err = &apiProblem{Problem: access.ProblemOf(http.StatusTooManyRequests, own)}
			}
			return nil, err
		}
		at := "/v1/policy-diffs/" + c.ID
		if q.tenant != "" {
			at += "?tenant=" + url.QueryEscape(string(q.tenant))
		}
		return &policyDiffAnswer{at, *c}, nil
	})
	add(a, route{id: "read-policy-diff", method: http.MethodGet, path: "/v1/policy-diffs/{diff}", needs: switchboard.OfficeViewer, summary: "A comparison: how far it is, or its result. It is at the replica that has started it, for ten minutes after its end"},
		func(_ context.Context, q asked, in *policyDiffPath) (*struct{ Body whatif.Comparison }, error) {
			c := a.o.Records.Comparisons.Read(q.tenant, in.Diff)
			if c == nil {
				return nil, errNoPolicyDiff
			}
			if c.Result != nil && !q.operator() {
				c.Result = c.Result.WithoutValues()
			}
			return &struct{ Body whatif.Comparison }{*c}, nil
		})
	add(a, route{id: "cancel-policy-diff", method: http.MethodDelete, path: "/v1/policy-diffs/{diff}", needs: author, status: http.StatusNoContent, summary: "Cancel a comparison, or drop its result"},
		func(_ context.Context, q asked, in *policyDiffPath) (*struct{}, error) {
			if !a.o.Records.Comparisons.Cancel(q.tenant, in.Diff) {
				return nil, errNoPolicyDiff
			}
			return nil, nil
		})
}

var errNoPolicyDiff = notFound("there is no comparison of that id that you may see; results are kept for ten minutes")

// readProposal makes the proposal of a request. The officer must be allowed to change each of its files.
func (a *API) readProposal(ctx context.Context, q asked, in *policyDiffRequest) (*replay.Proposal, error) {
	var layers []replay.ProposedLayer
	for _, l := range in.Body.Layers {
		switch {
		case l.Tenant != "" && q.tenant != "" && l.Tenant != q.tenant:
			return nil, badRequest("the layer of another tenant changes no decision of the tenant that the request is about")
		case l.Tenant == "" && !q.operator():
			return nil, switchboard.Refuse(switchboard.CodeNotAuthorized, "only an operator may propose the operator's layer; name the tenant of the layer")
		}
		one := replay.ProposedLayer{Owner: l.Tenant}
		for _, f := range l.Files {
			if f.Text == nil || !fs.ValidPath(f.Path) {
				return nil, badRequest("a file of a layer needs a text, and a path in the folder of policies")
			}
			one.Files = append(one.Files, switchboard.PolicyFile{Name: f.Path, Path: f.Path, Data: []byte(*f.Text)})
		}
		layers = append(layers, one)
	}
	texts := map[string][]byte{}
	var boundaries *replay.ProposedBoundaries
	var files []replay.ProposedFile
	for _, f := range in.Body.Files {
		if f.Path == config.BoundariesPath {
			if boundaries != nil {
				return nil, badRequest("a file is named twice")
			}
			boundaries = &replay.ProposedBoundaries{Path: f.Path}
			if f.Text != nil {
				boundaries.Text = []byte(*f.Text)
			}
			continue
		}
		owner, rel, isPolicy, err := a.o.Editor.PolicyFile(q.officer, q.tenant, f.Path)
		if err != nil {
			return nil, err
		}
		if _, twice := texts[f.Path]; twice {
			return nil, badRequest("a file is named twice")
		}
		texts[f.Path] = nil
		if f.Text != nil {
			texts[f.Path] = []byte(*f.Text)
		}
		if isPolicy {
			files = append(files, replay.ProposedFile{Owner: owner, File: switchboard.PolicyFile{Name: f.Path, Path: rel, Data: texts[f.Path]}, Removed: f.Text == nil})
		}
	}
	if boundaries != nil {
		c, err := change.ProposeBoundaries(ctx, a.o.Editor, q.officer, boundaries.Text)
		if err != nil {
			return nil, err
		}
		if len(files) != len(texts) {
			return nil, badRequest("a proposal has boundaries, and perhaps policies, or other files, but not both")
		}
		boundaries.Rows = c.Registry.BoundariesIn(boundaries.Path)
	}
	if len(files) == len(texts) {
		p, err := replay.ProposePolicies(layers, files)
		if faults, ok := errors.AsType[switchboard.Faults](err); ok {
			err = &switchboard.Error{Code: switchboard.CodeConfig, Text: faults.Error(), Hint: "nothing was compared"}
		}
		if err != nil {
			return nil, err
		}
		p.SetBoundaries(boundaries)
		return p, nil
	}
	if len(layers) > 0 {
		return nil, badRequest("a proposal has layers, or files that are not policies, but not both")
	}
	c, err := a.o.Editor.Propose(ctx, q.officer, q.tenant, texts)
	if err != nil {
		return nil, err
	}
	return replay.ProposeConfig(c), nil
}
