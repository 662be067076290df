package importer

import (
	"strconv"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// mostSeconds is the largest number of "timeout" that counts as seconds.
const mostSeconds = 3600

// readTimeout reads the time limit of the server's calls. Its unit differs by client, and the file does not say which client wrote it:
//
//   - "timeout" in seconds: Roo Code (1 to 3600: BaseConfigSchema in its src/services/mcp/McpHub.ts) and Cline (at most 1 hour: docs.cline.bot, Configuring MCP servers)
//   - "timeout" in milliseconds: Gemini CLI (its docs/tools/mcp-server.md), Claude Code (code.claude.com/docs/en/mcp) and GitHub Copilot (McpServerConfig of its SDK)
//   - "tool_timeout_sec" in seconds: Codex (developers.openai.com/codex/mcp)
//
// So a "timeout" of up to mostSeconds is in seconds, and a larger one in milliseconds. A wrong guess is harmless: the limit is then longer than meant.
func (f *foreignServer) readTimeout(v document.Value) {
	for _, key := range []string{"timeout", "tool_timeout_sec"} {
		t, ok := v.FindMember(key)
		if !ok {
			continue
		}
		seconds, _ := strconv.ParseFloat(t.Text, 64) // a number that is too large is +Inf
		if key == "timeout" && seconds > mostSeconds {
			seconds /= 1000
		}
		why := ""
		switch {
		case t.Kind != document.KindInt && t.Kind != document.KindFloat, seconds <= 0:
			why = "it is no number above 0"
		case seconds < config.MinTimeout.Seconds():
			why = "it is shorter than " + formatTimeout(config.MinTimeout)
		case seconds > config.MaxTimeout.Seconds():
			why = "it is longer than " + formatTimeout(config.MaxTimeout)
		}
		if why != "" {
			f.addNote("%q is left out, so that the default of %s counts: %s", key, formatTimeout(switchboard.DefaultTimeout), why)
			continue
		}
		f.timeout = time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	}
}

// makeTimeout returns the setting of a time limit.
func makeTimeout(f *foreignServer) []edit.Setting {
	if f.timeout == 0 {
		return nil
	}
	return []edit.Setting{edit.Text("timeout", formatTimeout(f.timeout))}
}

// formatTimeout returns a time in seconds, as clients write it.
func formatTimeout(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
