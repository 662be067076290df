package annotate

import (
	"strings"
	"testing"
)

// What a person accepts is never looser than what stood there, and never than what the person has just accepted.
func TestANewRowIsAsStrictAsBothRows(t *testing.T) {
	ended := `server: files
tools:
  put: {for: "sha256:1", capabilities: [{verb: write, resource: fs, constraints: [human_in_the_loop, readonly]}], risk_level: RISK, cost_class: COST, approval_required: APPROVAL, redact: [email], price: {call: 0.01}, timeout: 10m}
`
	given := func(risk, cost, approval string) string {
		return strings.NewReplacer("RISK", risk, "COST", cost, "APPROVAL", approval).Replace(ended)
	}
	row := func(risk, cost, approval string) string {
		return strings.Replace(strings.Replace(given(risk, cost, approval), "sha256:1", "sha256:2", 1), "constraints: [human_in_the_loop, readonly]", "constraints: [readonly]", 1)
	}
	for _, c := range []struct{ ended, row, want string }{
		{given("low", "free", "false"), row("high", "paid", "true"), "risk_level: high, cost_class: paid, approval_required: true"},
		{given("high", "paid", "true"), row("low", "free", "false"), "risk_level: high, cost_class: paid, approval_required: true"},
		{given("medium", "metered", "[ann]"), row("medium", "metered", "[ben]"), "risk_level: medium, cost_class: metered, approval_required: [ben]"},
	} {
		_, rows, err := ReadProposal("row", []byte(strings.NewReplacer("redact: [email]", "redact: [phone]", "0.01", "5", "10m", "5s").Replace(c.row)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := AcceptRows("overlay", []byte(c.ended), "files", rows)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(strings.Fields(string(text)), " ")
		for _, want := range append(strings.Split(c.want, ", "), "redact: [email, phone]", "call: 5", `timeout: "5s"`, "human_in_the_loop") {
			if !strings.Contains(got, want) {
				t.Errorf("the overlay lacks %q:\n%s", want, text)
			}
		}
	}
}
