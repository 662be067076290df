package api

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A route is one operation of the API. Each has the office that it needs, in the tenant that the path or the query
// names: so the offices of all routes are one table, which the document shows too.
type route struct {
	id, method, path string
	needs            switchboard.Office // OfficeViewer: any office
	summary          string
	status           int // of success; 0 is 200
	errors           []int
	types            []string // of the answer, if it is not JSON
	secret           bool     // the answer is a secret, and is not stored
	readOnly         bool     // a request that is no GET changes nothing either, so it takes no idempotency key
}

// anyOffice is what a route needs that finds out by itself what the officer may see.
const anyOffice switchboard.Office = "any"

// The keys of a route's office, of whether its answer is a secret, and of whether it may change something, in the metadata of an operation.
const (
	needsKey   = "needs"
	secretKey  = "secret"
	changesKey = "changes"
)

// asked is the sender of a request, and the tenant that the request is about.
type asked struct {
	officer *switchboard.Officer
	tenant  switchboard.TenantID // "" is all tenants; only for an operator
}

// operator reports whether the answer may hold texts of servers and of the system.
func (q asked) operator() bool { return q.officer.Operator }

type askedKey struct{}

func askedOf(ctx context.Context) asked { return ctx.Value(askedKey{}).(asked) }

// add adds a route. handle answers with a *switchboard.Error, a problem, or the answer.
func add[I, O any](a *API, r route, handle func(ctx context.Context, q asked, in *I) (*O, error)) {
	setUpHuma()
	responses := map[string]*huma.Response{}
	if len(r.types) > 0 {
		content := map[string]*huma.MediaType{}
		for _, t := range r.types {
			content[t] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
		}
		responses["200"] = &huma.Response{Description: "OK", Content: content}
	}
	answers := append([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests, http.StatusServiceUnavailable}, r.errors...)
	var params []*huma.Param
	changes := r.method != http.MethodGet && !r.readOnly
	if r.method != http.MethodGet { // it may have a body
		answers = append(answers, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if changes { // it may have an idempotency key
		answers = append(answers, http.StatusConflict, http.StatusUnprocessableEntity)
		params = append(params, keyParam)
	}
	huma.Register(a.huma, huma.Operation{
		Responses: responses, Parameters: params,
		OperationID: r.id, Method: r.method, Path: r.path, Summary: r.summary, Tags: []string{tagOf(r.path)}, DefaultStatus: r.status,
		Description: "Needs " + describeNeed(r.needs) + ".",
		Errors:      answers,
		Metadata:    map[string]any{needsKey: r.needs, secretKey: r.secret, changesKey: changes}, Extensions: map[string]any{"x-office": r.needs},
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
	}, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, askedOf(ctx), in)
		return out, a.refuse(err)
	})
	if changes {
		for _, answer := range responses {
			if answer.Headers == nil {
				answer.Headers = map[string]*huma.Param{}
			}
			answer.Headers[repeatedHeader] = repeatedParam
		}
	}
	if !slices.Contains(answers, http.StatusUnprocessableEntity) {
		delete(responses, "422") // huma adds it for its own checks, of which newProblem makes a 400
	}
}

func describeNeed(office switchboard.Office) string {
	switch office {
	case anyOffice:
		return "an office that reaches what the request names"
	case switchboard.OfficeViewer:
		return "any office"
	case switchboard.OfficeOperator:
		return "an operator"
	}
	switch office {
	case switchboard.OfficeAuthor:
		return "the office author or admin of the tenant, or an operator"
	case switchboard.OfficeApprover:
		return "the office approver of the tenant; where the configuration names no approver, whoever can read the data folder"
	}
	return "the office " + string(office) + " of the tenant, or an operator"
}

// checkOffice refuses requests of officers without the office that the route needs.
func (a *API) checkOffice(ctx huma.Context, next func(huma.Context)) {
	officer := officerOf(ctx.Context())
	tenant := switchboard.TenantID(ctx.Param("tenant"))
	if tenant == "" {
		tenant = switchboard.TenantID(ctx.Query("tenant"))
	}
	q, err := a.judge(officer, ctx.Operation().Metadata[needsKey].(switchboard.Office), tenant)
	if err != nil {
		a.writeRefusal(ctx, err)
		return
	}
	next(huma.WithValue(ctx, askedKey{}, q))
}

// joinTenants returns the ids as a text.
func joinTenants(ids []switchboard.TenantID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = string(id)
	}
	return strings.Join(texts, ", ")
}

// judge decides whether the officer may ask what needs the office in the tenant; "" is the tenant that the request does not name.
// Tenants without an office of the officer get the answer of tenants that do not exist.
func (a *API) judge(officer *switchboard.Officer, needs switchboard.Office, tenant switchboard.TenantID) (asked, error) {
	refuse := func(format string, args ...any) (asked, error) {
		return asked{}, switchboard.Refuse(switchboard.CodeNotAuthorized, format, args...)
	}
	if needs == anyOffice {
		return asked{officer: officer}, nil
	}
	if needs == switchboard.OfficeOperator {
		if !officer.Operator {
			return refuse("only an operator may do that")
		}
	} else if needs == switchboard.OfficeApprover && tenant == "" {
		if !slices.ContainsFunc(a.o.People.Approvals.Tenants(officer), func(t switchboard.TenantID) bool { return a.o.People.Approvals.ActsAsApprover(officer, t) }) {
			return refuse("this needs the office approver, which you hold in no tenant")
		}
		return asked{officer: officer}, nil // the request names its tenant
	} else if tenant == "" && !officer.Operator {
		mine := slices.Sorted(maps.Keys(officer.Offices))
		if len(mine) != 1 {
			return asked{}, &apiProblem{Problem: access.ProblemOf(http.StatusBadRequest, &switchboard.Error{Text: fmt.Sprintf("name the tenant, as in ?tenant=ID; you hold offices in %s", joinTenants(mine))})}
		}
		tenant = mine[0]
	}
	if tenant != "" && (!officer.Sees(tenant) || !a.o.Reader.HasTenant(tenant)) {
		return asked{}, notFound(fmt.Sprintf("there is no tenant %.64q that you may see", tenant))
	}
	// An admin may change all files of the tenant, policies too.
	asAdmin := needs == switchboard.OfficeAuthor && officer.Holds(switchboard.OfficeAdmin, tenant)
	asApprover := needs == switchboard.OfficeApprover && a.o.People.Approvals.ActsAsApprover(officer, tenant)
	if needs != switchboard.OfficeViewer && !officer.Holds(needs, tenant) && !asAdmin && !asApprover {
		return refuse("this needs the office %s of tenant %s, which you do not hold", needs, tenant)
	}
	return asked{officer, tenant}, nil
}
