//go:build linux

package doctor_test

import (
	"bufio"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/doctor"
	"github.com/summit-switchboard/switchboard/test/rig"
)

var clientRows = []broken{
	{
		name: "a client starts a program that is gone", cause: "program-missing", subject: "/opt/old/switchboard", remedy: "switchboard connect claude-code",
		breaks: func(i *installation) { i.connectByHand("/opt/old/switchboard", i.config) },
	},
	{
		name: "a client starts a program that may not be run", cause: "program-forbidden", subject: "other/switchboard", remedy: "chmod +x",
		breaks: func(i *installation) {
			program := filepath.Join(i.home, "other/switchboard")
			i.write("other/switchboard", "#!/bin/sh\n")
			i.connectByHand(program, i.config)
		},
	},
	{
		name: "a client names a configuration that is gone", cause: "configuration-missing", subject: "/old/switchboard.yaml", remedy: "switchboard connect claude-code",
		breaks: func(i *installation) { i.connectByHand("switchboard", filepath.Join(i.home, "old/switchboard.yaml")) },
		mend: func(i *installation, f doctor.Diagnosis) {
			i.write(".claude.json", "{}")
			i.shell(f.Command)
		},
	},
	{
		name: "a client names a configuration without its folder", cause: "relative-configuration", subject: "switchboard.yaml", remedy: "write the whole path",
		breaks: func(i *installation) { i.connectByHand("switchboard", "switchboard.yaml") },
		mend: func(i *installation, f doctor.Diagnosis) {
			i.connectByHand("switchboard", i.found(`into the entry: (.+)$`, f.Remedy))
		},
	},
	{
		name: "the file of a client is no JSON", cause: "client-file", subject: ".claude.json",
		breaks: func(i *installation) { i.write(".claude.json", `{"mcpServers": {`) },
		mend:   func(i *installation, _ doctor.Diagnosis) { i.write(".claude.json", `{"mcpServers": {}}`) },
	},
	{
		name: "a client calls an address where nothing serves", cause: "not-served", subject: "no Switchboard answers", remedy: "switchboard connect claude-code",
		breaks: func(i *installation) {
			i.write(".claude.json", fmt.Sprintf(`{"mcpServers": {"switchboard": {"type": "http", "url": "http://%s/mcp"}}}`, freeAddress(i.T)))
		},
		mend: func(i *installation, f doctor.Diagnosis) {
			i.write(".claude.json", "{}") // connect --http would be the other way
			i.shell(f.Command)
		},
	},
	{
		name: "the settings of a client exclude Switchboard", cause: "client-file", subject: "mcp.excluded", remedy: "remove it there",
		breaks: func(i *installation) {
			i.write(".gemini/settings.json", fmt.Sprintf(`{"mcp": {"excluded": ["switchboard"]}, "mcpServers": {"switchboard": {"command": "switchboard", "args": ["stdio", "--config", %q]}}}`, i.config))
		},
		mend: func(i *installation, _ doctor.Diagnosis) {
			i.write(".gemini/settings.json", strings.Replace(rig.ReadFile(i.T, filepath.Join(i.home, ".gemini/settings.json")), `["switchboard"]`, `[]`, 1))
		},
	},
}

// serve starts a Switchboard that serves the installation, and returns when it serves. stop ends it.
func (i *installation) serve(words ...string) (pid int, stop func()) {
	i.Helper()
	cmd := i.command(append([]string{rig.Plain}, words...)...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	i.do(err)
	i.do(cmd.Start())
	ended := false
	stop = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(syscall.SIGCONT)
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}
	}
	i.Cleanup(stop)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		stop()
		i.Fatalf("%q does not serve: %v\n%s", words, err, log.String())
	}
	return cmd.Process.Pid, stop
}

// Beside a Switchboard that serves, doctor asks that one, and what it uses is not taken for a fault.
func TestBesideASwitchboardThatServesEverythingIsWell(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.addServer("files: {command: [files-server], sandbox: off}")
	i.program("files-server", `echo started >> "$HOME/starts"`+"\nFAKE")
	address := i.found(`listen: (\S+)`, rig.ReadFile(t, i.config))
	i.write(".claude.json", fmt.Sprintf(`{"mcpServers": {"switchboard": {"type": "http", "url": "http://%s/mcp"}}}`, address))
	pid, stop := i.serve("serve")
	awaitServing(t, "the servers are ready", func() bool { return i.command(rig.Plain, "ready").Run() == nil })
	report, code := i.examine()
	text := printed(report)
	if code != 0 || !report.Well {
		t.Fatalf("exit %d:\n%s", code, text)
	}
	for _, want := range []string{
		fmt.Sprintf("running well pid %d: it serves at http://%s", pid, address),
		fmt.Sprintf("address well %s: Switchboard serves there (pid %d)", address, pid),
		fmt.Sprintf("store.db: in use by Switchboard (pid %d)", pid),
		"servers well files: ready, 1 tool", "where a Switchboard answers",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if n := strings.Count(rig.ReadFile(t, filepath.Join(i.home, "starts")), "started"); n != 1 {
		t.Errorf("the server was started %d times", n)
	}
	log := rig.ReadFile(t, filepath.Join(i.data, "logs", "switchboard.log"))
	if strings.Contains(log, "not let in") {
		t.Errorf("the look at the process is in its log:\n%s", log)
	}
	stop()
	if report, code = i.examine(); code != 1 || !strings.Contains(printed(report), "clients wrong Claude Code") {
		t.Errorf("nothing serves any more, and doctor exits %d:\n%s", code, printed(report))
	}
}

// A process that is stopped holds its row and its port, and serves nobody.
func TestAProcessThatDoesNotAnswerIsNamedAndItsRemedyEndsIt(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.addServer("files: {command: [files-server], sandbox: off}")
	i.program("files-server", `echo started >> "$HOME/starts"`+"\nFAKE")
	pid, _ := i.serve("shared", "--config", i.config, "--data", i.data)
	report, code := i.examine()
	for _, want := range []string{fmt.Sprintf("joins the one that runs (pid %d)", pid), "servers well files: ready, 1 tool"} {
		if code != 0 || !strings.Contains(printed(report), want) {
			t.Errorf("exit %d, without %q:\n%s", code, want, printed(report))
		}
	}
	if n := strings.Count(rig.ReadFile(t, filepath.Join(i.home, "starts")), "started"); n != 1 {
		t.Errorf("the server was started %d times", n)
	}
	i.do(syscall.Kill(pid, syscall.SIGSTOP))
	awaitServing(t, "the process is stopped", func() bool { return rig.Stopped(pid) })
	report, code = i.examine()
	at := strings.Index(printed(report), fmt.Sprintf("running wrong pid %d", pid))
	if code != 1 || report.Wrong != 1 || at < 0 {
		t.Fatalf("exit %d:\n%s", code, printed(report))
	}
	for _, f := range report.Findings {
		if f.Area == doctor.Running {
			i.shell(f.Command)
		}
	}
	awaitServing(t, "the process has ended", func() bool { return !rig.Alive(pid) })
	if report, code = i.examine(); code != 0 {
		t.Errorf("exit %d:\n%s", code, printed(report))
	}
}
