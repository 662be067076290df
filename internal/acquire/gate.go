package acquire

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify"
)

// minConfidence is how sure research must be that a candidate gives the capability, in hundredths.
const minConfidence = 70

// pickCandidate is the gate of research. It returns the candidate to try, or why there is none. A tool that is here comes before any server of a registry. Where an officer has named
// the one to try, no confidence and no name that looks like another one stands against it.
func pickCandidate(d *Dossier) (c *Prospect, why string) {
	var best, surest *Prospect
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if d.Only != "" && c.Name != d.Only {
			continue
		}
		if surest == nil || c.Confidence > surest.Confidence {
			surest = c
		}
		if c.Why != "" || d.Only == "" && (c.Confidence < minConfidence || c.Unclear != "") { // an officer who names it is sure
			continue
		}
		if best == nil || c.here() && !best.here() || c.here() == best.here() && c.Confidence > best.Confidence {
			best = c
		}
	}
	if best != nil {
		return best, ""
	}
	var here []string
	for _, h := range d.Here {
		here = append(here, h.name()+" is here: "+h.Why)
	}
	switch {
	case surest == nil && len(here) > 0:
		return nil, "no other tool is known; " + strings.Join(here, "; ")
	case surest == nil && d.Only != "":
		return nil, d.Only + " is no candidate: no registry has a server of that name that seems to give " + d.Capability
	case surest == nil:
		return nil, "no tool here and no server of a registry seems to give " + d.Capability
	case surest.Why == "" && surest.Unclear != "" && surest.Confidence >= minConfidence:
		return nil, "the likeliest, " + surest.Name + ", cannot be told from another one: " + surest.Unclear + "; an officer can name it"
	case surest.Why != "":
		return nil, "the likeliest, " + surest.Name + ", is not taken: " + surest.Why
	}
	return nil, fmt.Sprintf("no candidate has a confidence of %s; the likeliest, %s, has %s", hundredths(minConfidence), surest.Name, hundredths(surest.Confidence))
}

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
	case status == Expired:
		return refuse(switchboard.CodeProposal, "the review was due until %s, so a yes counts no more; whoever needs the capability asks again", d.Until.Format(time.RFC3339))
	case status.ended():
		return refuse(switchboard.CodeProposal, "the dossier is %s", status)
	case r.Answer == AnswerNo:
		return nil // it ends at any time, also if the seeker says it
	case status != Waiting:
		return refuse(switchboard.CodeProposal, "the dossier is %s: it has not passed the gate of %s, and nothing can be decided about it", status, d.Phase)
	}
	return nil
}

func refuse(code switchboard.Code, format string, args ...any) error {
	return switchboard.Refuse(code, format, args...)
}
