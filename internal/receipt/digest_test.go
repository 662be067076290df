package receipt_test

import (
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/receipt"
)

// Law 8: a client that guesses tool names is visible in the receipts, and a secret in place of a
// name is not.
func TestAnUnknownToolNameIsKeptInClearOnlyIfItReadsAsAName(t *testing.T) {
	digests := receipt.NewDigests(receipt.NewKey())
	for _, name := range []string{
		"web_search", "readFile", "delete-everything", "no_such_tool", "Switchboard_Status", "a.b", "HTTP_GET", "files__read", "sha256_sum", "API.list2",
		"browser_take_screenshot", "getUserById", "ls",
	} {
		if got := digests.ToolName("acme", name); got != name {
			t.Errorf("%q is kept as %q", name, got)
		}
	}
	for _, secret := range []string{
		"plum7318a20b42f0", "sb_key_q0zRk3Vt8mXw", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "sk-proj-4Vx0aLq9", "AKIAIOSFODNN7EXAMPLE0", "4f1c2ab9", "xoxb-123456789012-abc",
		"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "correct horse battery", "p@ssword", "", "line\nbreak", "\x1b[31m", "naïve", strings.Repeat("ab_", 30) + "ab", strings.Repeat("a", 40),
	} {
		got := digests.ToolName("acme", secret)
		if !strings.HasPrefix(got, "hmac-sha256:") {
			t.Errorf("%q is kept as %q", secret, got)
		}
		if got != digests.ToolName("acme", secret) || got == digests.ToolName("umbrella", secret) {
			t.Errorf("the digest of %q is not keyed for the tenant", secret)
		}
	}
}
