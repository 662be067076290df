package page

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// ApprovalPath begins the address of the form for a request for approval. The id of the request follows.
const ApprovalPath = "/approvals/"

// approvalForms are the forms for requests for approval.
type approvalForms struct{ *Page }

// showApproval shows a request, with a form for a yes or a no. It changes nothing: browsers open links that no person has read.
func (p approvalForms) showApproval(w http.ResponseWriter, r *http.Request, own site) {
	secret := own.readCookie(r, sessionCookie)
	if secret == "" {
		p.show(w, http.StatusOK, "signin.html", signInScene(p.Page, &switchboard.Error{Code: switchboard.CodeNotAuthenticated, Text: "this link asks for your decision: sign in, and then open it again"}))
		return
	}
	officer, err := p.officerAt(r, own)
	if err == nil {
		err = p.writeApproval(w, r, &officer, secret, "", http.StatusOK)
	}
	if err != nil {
		p.refuseApproval(w, err)
	}
}

// writeApproval writes the page of the request that r names. problem says why a decision has just failed.
func (p approvalForms) writeApproval(w http.ResponseWriter, r *http.Request, officer *switchboard.Officer, secret, problem string, status int) error {
	v, err := p.o.Approvals.Show(r.Context(), officer, "", strings.TrimPrefix(r.URL.Path, ApprovalPath))
	if err != nil {
		return err
	}
	s := newScene(p.Page, officer, secret, "A request for approval", "", map[string]any{
		"View": v, "Problem": problem, "May": v.State == approval.Pending && v.WhyNot == "", "Capability": v.Kind == approval.ForCapability,
	})
	s.Command = "switchboard approvals show " + v.ID
	p.show(w, status, "approval.html", s)
	return nil
}

// decideApproval carries out what the form says, by the same code as the API.
func (p approvalForms) decideApproval(w http.ResponseWriter, r *http.Request, own site, form url.Values) {
	secret := own.readCookie(r, sessionCookie)
	if secret == "" || !isFormToken(form.Get("token"), secret) {
		p.refuse(w, http.StatusForbidden, "this form belongs to another session; load the page again")
		return
	}
	officer, err := p.officerAt(r, own)
	var v approvals.DecisionWish
	if err == nil {
		v, err = readVerdict(form, time.Now())
	}
	if err == nil {
		_, err = p.o.Approvals.Decide(r.Context(), &officer, "", strings.TrimPrefix(r.URL.Path, ApprovalPath), v)
	}
	problem, status := "", http.StatusOK
	if outrun, _ := errors.AsType[*approval.OutrunError](err); outrun != nil || errors.Is(err, approval.ErrVoted) {
		problem, status, err = err.Error(), http.StatusConflict, nil
	}
	if err == nil {
		err = p.writeApproval(w, r, &officer, secret, problem, status)
	}
	if err != nil {
		p.refuseApproval(w, err)
	}
}

// readVerdict reads the form.
func readVerdict(form url.Values, now time.Time) (v approvals.DecisionWish, err error) {
	refuse := func(text string) (approvals.DecisionWish, error) {
		return approvals.DecisionWish{}, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: text}
	}
	v.Note = strings.TrimSpace(form.Get("note"))
	switch form.Get("decision") {
	case "approve":
		v.Act = approval.ActApprove
	case "refuse":
		v.Act = approval.ActRefuse
		return v, nil
	default:
		return refuse("the form says neither yes nor no")
	}
	v.Grant.Scope = form.Get("scope")
	if text := form.Get("for"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return refuse("the time is one such as 8h or 30m")
		}
		v.Grant.Until = now.Add(d)
	}
	return v, nil
}

func (p approvalForms) refuseApproval(w http.ResponseWriter, err error) {
	if errors.Is(err, approvals.ErrNoRequest) {
		p.refuse(w, http.StatusNotFound, err.Error())
		return
	}
	e := access.AsError(err)
	p.refuse(w, access.HTTPStatus(e.Code), e.Text)
}
