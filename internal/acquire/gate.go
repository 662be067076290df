package acquire

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify"
)

// minConfidence is how sure research must be that a tool gives the capability, by its definition, in hundredths.
const minConfidence = 70

// maxLooked is how many programs research starts to look at their tools.
const maxLooked = 3

// shortlist returns the candidates to look at, the likeliest first. A tool that is here comes before any server of a registry. Where an officer has named the one to try, a name that looks
// like another one does not stand against it.
func shortlist(d *Dossier) (list []*Prospect) {
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if c.Why == "" && (d.Only == "" && c.Unclear == "" || c.Name == d.Only) {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b *Prospect) int { return cmp.Or(named(b.here())-named(a.here()), b.Confidence-a.Confidence) })
	return list[:min(len(list), maxLooked)]
}

// judgeConfidence is the gate of research, for one candidate that was looked at.
func judgeConfidence(c *Prospect, capability string) (why string) {
	if c.Confidence >= minConfidence {
		return ""
	}
	return fmt.Sprintf("its likeliest tool for %s has a confidence of %s, and needs %s", capability, hundredths(c.Confidence), hundredths(minConfidence))
}

// whyNone gives the reasons why no candidate is tried.
func whyNone(d *Dossier) string {
	var all []string
	for i := range d.Candidates {
		c := &d.Candidates[i]
		switch {
		case d.Only != "" && c.Name != d.Only:
		case c.Why != "":
			all = append(all, c.Name+" is not taken: "+c.Why)
		case c.Unclear != "":
			all = append(all, c.Name+" cannot be told from another one: "+c.Unclear+"; an officer can name it")
		}
	}
	for _, h := range d.Here {
		if !h.Label {
			all = append(all, h.name()+" is here: "+h.Why)
		}
	}
	if more := len(all) - maxWhys; more > 0 {
		all = append(all[:maxWhys], fmt.Sprintf("and %d more", more))
	}
	switch {
	case len(all) > 0:
		return strings.Join(all, "; ")
	case d.Only != "":
		return d.Only + " is no candidate: no registry has a server of that name"
	}
	return "no tool here and no server of a registry seems to give " + d.Capability
}

// maxWhys is how many reasons one sentence has.
const maxWhys = 3

func (c *Prospect) here() bool { return c.Registry == "" }

func hundredths(n int) string { return fmt.Sprintf("%d.%02d", n/100, n%100) }

// judgeReports is the gate of validation: a tool must be verified, and none that would be labelled may be prohibited.
func judgeReports(tools []TriedTool) (passed bool, why string) {
	var verified, not []string
	for i := range tools {
		t := &tools[i]
		switch {
		case t.Risk == switchboard.RiskProhibited:
			return false, t.Tool.String() + " is prohibited: the operator's rows do not let in what it does"
		case t.Verified && t.Score >= verify.Least:
			verified = append(verified, t.Tool.String()+", score "+verify.Thousandths(t.Score))
		default:
			not = append(not, t.Tool.String()+" is not verified: score "+verify.Thousandths(t.Score)+"; "+t.Why)
		}
	}
	switch {
	case len(not) > 0: // a label is given to each of them
		return false, strings.Join(not, "; ")
	case len(verified) == 0:
		return false, "no tool was tried"
	}
	return true, strings.Join(verified, "; ")
}

// judgeManual is the gate of documentation: what was seen is written down for each tool, with its limits and its errors.
func judgeManual(d *Dossier) (passed bool, why string) {
	for i := range d.Tools {
		t := &d.Tools[i]
		switch {
		case !strings.Contains(d.Manual, t.Tool.Name):
			return false, "nothing is written about " + t.Tool.String()
		case t.Took <= 0:
			return false, "it is not known how long calls of " + t.Tool.String() + " take"
		case len(t.Errors) == 0:
			return false, "it is not known how " + t.Tool.String() + " answers wrong arguments"
		}
	}
	return true, "contract text, limits and error patterns are written down"
}

// A ReviewAnswer is what a person says about a dossier.
type ReviewAnswer string

// The answers.
const (
	AnswerYes     ReviewAnswer = "yes"
	AnswerNo      ReviewAnswer = "no"
	AnswerChanges ReviewAnswer = "changes" // the note says which; who asked reads it
)

// ReviewAnswers are all answers.
var ReviewAnswers = []ReviewAnswer{AnswerYes, AnswerNo, AnswerChanges}

// judgeReview refuses an answer that no person may give to a dossier at an instant. The proposal decides which yes counts: never the one of the seeker.
func judgeReview(d *Dossier, r *PersonReview, now time.Time) error {
	switch status := d.StatusAt(now); {
	case !slices.Contains(ReviewAnswers, r.Answer):
		return refuse(switchboard.CodeBadArguments, "the answer is yes, no or changes")
	case len(r.Note) > MaxNote:
		return refuse(switchboard.CodeBadArguments, "the note has %d bytes; at most %d", len(r.Note), MaxNote)
	case r.Answer != AnswerYes && strings.TrimSpace(r.Note) == "":
		return refuse(switchboard.CodeBadArguments, "%q needs a note: who asked reads it", r.Answer)
	case r.Answer == AnswerChanges && d.Rounds >= maxRounds:
		return refuse(switchboard.CodeBadArguments, "changes were asked for %d times; the answer is yes or no now", maxRounds)
	case status == Expired:
		return refuse(switchboard.CodeProposal, "the review was due until %s, so a yes counts no more; whoever needs the capability asks again", d.Until.Format(time.RFC3339))
	case status.ended():
		return refuse(switchboard.CodeProposal, "the dossier is %s", status)
	case status == Deploying && now.Sub(d.Changed) < deployTime:
		return refuse(switchboard.CodeChangedMeanwhile, "another person has just said yes, and the change is being made; look at the dossier again")
	case r.Answer == AnswerNo && status != Deploying, status == Deploying && r.Answer == AnswerYes: // who was making the change was killed
		return nil
	case status != Waiting:
		return refuse(switchboard.CodeProposal, "the dossier is %s: it has not passed the gate of %s, and nothing can be decided about it", status, d.Phase)
	}
	return nil
}

// deployTime is how long a change of a dossier can take. A longer one was cut off by a kill.
const deployTime = 3 * time.Minute

// judgeReviewer refuses an officer who may not decide about a dossier. It would change the operator's files. Only an operator ends the search of an operator.
func judgeReviewer(d *Dossier, by *switchboard.Officer) error {
	if by.Operator || d.Proposal == "" && d.Seeker.Agent && (by.Holds(switchboard.OfficeApprover, d.Tenant) || by.Holds(switchboard.OfficeAdmin, d.Tenant)) {
		return nil
	}
	e := switchboard.Refuse(switchboard.CodeNotAuthorized, "it would change the operator's files, so an operator decides about it")
	if d.Seeker.Request != "" {
		e.Hint = "an approver can refuse the request " + d.Seeker.Request
	}
	return e
}

func refuse(code switchboard.Code, format string, args ...any) error {
	return switchboard.Refuse(code, format, args...)
}
