//go:build agents && unix

package browser_test

import (
	"bytes"
	"context"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/agents"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// The same as TestAHostedServerOfClaudeCodeIsConnectedInABrowserAndCalled, up to the first call of Claude Code itself.
func TestClaudeCodeCallsAHostedServerAfterTheSignInInABrowser(t *testing.T) {
	l := newLaptop(t)
	npmlock.NeedIn(t, "../agents", "Claude Code calls a hosted server")
	programs, _ := filepath.Glob("../agents/node_modules/@anthropic-ai/claude-code-*/claude")
	if len(programs) == 0 {
		t.Skip("skipped: Claude Code calls a hosted server (it has no package for this platform)")
	}
	l.connectInBrowser(l.connectClient())

	model := &agents.Model{Script: func(turn agents.Turn) agents.Reply {
		if call := turn.Offers("whoami"); call != nil && !turn.Has("ann") {
			return agents.Reply{Call: call}
		}
		return agents.Reply{Say: "done"}
	}}
	api := httptest.NewServer(model)
	t.Cleanup(api.Close)
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	program, err := filepath.Abs(programs[0])
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program, "-p", "Who am I?", "--allowedTools", "mcp__switchboard")
	cmd.Dir = l.home
	cmd.Env = append(l.environment(), "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY=dummy", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "ENABLE_TOOL_SEARCH=false")
	cmd.Stdin = bytes.NewReader(nil)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it starts must not outlive it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	wait.Answered(t, ctx, "Claude Code", err)
	if last := model.Last(); !last.Has("ann") {
		t.Errorf("Claude Code was offered %v, and its results are %q; it says\n%s", last.Tools, last.Results, out)
	}
}
