package served_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/serving"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// worker is a configuration of one server with the tool "work", which writes a line into marks for each execution.
func worker(marks string) string {
	return patientFakes(rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "work")))
}

// shareWorker lays out worker for several clients.
func shareWorker(t *testing.T) (dir, marks string) {
	t.Helper()
	marks = filepath.Join(t.TempDir(), "marks")
	return rig.ShareFolder(t, worker(marks)), marks
}

// crowd opens four clients on the folder, two of each era.
func crowd(t *testing.T, dir string) (all []*rig.StdioSession) {
	t.Helper()
	for i := range 4 {
		all = append(all, rig.Shared(t, dir, i%2 == 1))
	}
	return all
}

func executions(t *testing.T, marks string) int {
	t.Helper()
	text, err := os.ReadFile(marks)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

// killServing ends the process that serves the folder with SIGKILL.
func killServing(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Kill(rig.ServingRow(t, dir).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// awaitLog waits until the shared processes of the folder have logged the text.
func awaitLog(t *testing.T, dir, text string) {
	t.Helper()
	rig.Eventually(t, "the log has "+text, func() string {
		return rig.ReasonUnless(strings.Contains(rig.SharedLog(dir), text), "it has not")
	})
}

func TestFourClientsShareOneServerAndOutliveTheProcessThatServesThem(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	dir, marks := shareWorker(t)
	clients := crowd(t, dir)
	calls := 0
	callAll := func(when string) (said [][]string) {
		t.Helper()
		for i, s := range clients {
			m, heard := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"work","arguments":{"client":"%d"}}`, i))
			if code := rig.Code(m); code != "" || !strings.Contains(m.Text(), fmt.Sprintf(`{"client":"%d"}`, i)) {
				t.Errorf("%s, client %d: %s", when, i, m.Raw)
			}
			said = append(said, heard)
			if calls++; executions(t, marks) != calls {
				t.Errorf("%s, client %d: %d calls were executed %d times", when, i, calls, executions(t, marks))
			}
		}
		return said
	}
	callAll("at first")
	if got := len(rig.ProcessesOf("marks=" + marks)); got != 2 {
		t.Errorf("the server has %d processes, not its program and its guard", got)
	}
	for range 2 {
		killServing(t, dir)
		for i, heard := range callAll("after the kill") {
			for _, list := range []string{"tools", "prompts", "resources"} {
				method := "notifications/" + list + "/list_changed"
				if told := slices.ContainsFunc(heard, func(m string) bool { return strings.Contains(m, method) }); told == clients[i].Modern {
					t.Errorf("client %d, modern %t, is told of %s: %t", i, clients[i].Modern, method, told)
				}
			}
		}
		rig.Eventually(t, "the server of the killed process has ended", func() string {
			if got := len(rig.ProcessesOf("marks=" + marks)); got != 2 {
				return fmt.Sprintf("%d processes", got)
			}
			return ""
		})
	}
	rig.ServingRow(t, dir)
}

func TestCallsInFlightAtTheEndOfTheServingProcessAreNeverMadeTwice(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	dir, marks := shareWorker(t)
	clients := crowd(t, dir)
	until := filepath.Join(filepath.Dir(marks), "until")
	for _, s := range clients {
		params := fmt.Sprintf(`{"name":"work","arguments":{"do":"await","until":%q}}`, until)
		if s.Modern {
			params = rig.WithMeta(params)
		}
		fmt.Fprintf(s.In, `{"jsonrpc":"2.0","id":"flying","method":"tools/call","params":%s}`+"\n", params)
	}
	rig.AwaitCalls(t, marks, len(clients))
	killServing(t, dir)
	for i, s := range clients {
		m, _ := s.Exchange(t, "")
		if !bytes.Contains(m.Raw, []byte(`"id":"flying"`)) || rig.Code(m) != "SB-EXEC-004" {
			t.Errorf("client %d: %s", i, m.Raw)
		}
	}
	rig.WriteFile(t, until, "now")
	for i, s := range clients {
		if code := rig.Call(t, s, "work", `{}`); code != "" {
			t.Errorf("client %d: the next call: %s", i, code)
		}
	}
	if got := executions(t, marks); got != 2*len(clients) {
		t.Errorf("%d calls were executed %d times", 2*len(clients), got)
	}
}

func TestAServingProcessThatIsStoppedHandsItsClientsOver(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	dir, marks := shareWorker(t)
	g := rig.Serve(t, dir)
	clients := crowd(t, dir)
	follows := rig.Shared(t, dir, true)
	fmt.Fprintf(follows.In, `{"jsonrpc":"2.0","id":"stream","method":"subscriptions/listen","params":%s}`+"\n", rig.WithMeta(`{"notifications":{"toolsListChanged":true}}`))
	line, err := follows.ReadLine()
	wait.Read(t, "the stream begins", err)
	if !bytes.Contains(line, []byte("acknowledged")) {
		t.Fatalf("the stream begins with %s", line)
	}
	if row := rig.ServingRow(t, dir); row.PID != g.Cmd.Process.Pid {
		t.Fatalf("the clients have not joined \"switchboard serve\": process %d serves", row.PID)
	}
	var calling sync.WaitGroup
	unknown := make([]int, len(clients))
	const each = 25
	for i, s := range clients {
		calling.Go(func() {
			for range each {
				switch code := rig.Call(t, s, "work", `{}`); code {
				case "":
				case "SB-EXEC-004":
					unknown[i]++
				default:
					t.Errorf("client %d: %s", i, code)
				}
			}
		})
	}
	rig.Eventually(t, "some calls are made", func() string { return rig.ReasonUnless(executions(t, marks) > 20, "too few") })
	g.Signal(t, syscall.SIGTERM)
	calling.Wait()
	for i, s := range clients { // all have a new process
		if code := rig.Call(t, s, "work", `{}`); code != "" {
			t.Errorf("client %d, afterwards: %s", i, code)
		}
	}
	line, err = follows.ReadLine()
	wait.Read(t, "the stream goes on", err)
	if !bytes.Contains(line, []byte("notifications/tools/list_changed")) || !bytes.Contains(line, []byte(`"stream"`)) {
		t.Errorf("in the place of a change, the stream has %s", line)
	}
	lost := unknown[0] + unknown[1] + unknown[2] + unknown[3]
	if got, all := executions(t, marks), (each+1)*len(clients); got > all || got < all-lost {
		t.Errorf("%d calls, of which %d have an unknown outcome, were executed %d times", all, lost, got)
	}
	if row := rig.ServingRow(t, dir); row.PID == g.Cmd.Process.Pid || row.URL != "" {
		t.Errorf("process %d serves now", row.PID)
	}
}

func TestFiftyClientsComeAndGoAndLeaveNothing(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	dir, marks := shareWorker(t)
	stays := rig.OpenStdio(t, dir, false, rig.PlainShared("--linger", "200ms")) // however late the others come
	const clients = 50
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			cmd := rig.PlainShared("--linger", "200ms")
			cmd.Dir = dir
			cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}`+"\n", rig.WithMeta(fmt.Sprintf(`{"name":"work","arguments":{"client":"%d"}}`, i))))
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if want := fmt.Sprintf(`{\"client\":\"%d\"}`, i); err != nil || !bytes.Contains(out, []byte(want)) {
				t.Errorf("client %d: %v\n%s%s", i, err, out, &errs)
			}
		})
	}
	all.Wait()
	if got := executions(t, marks); got != clients {
		t.Errorf("%d calls were executed %d times", clients, got)
	}
	rig.ServingRow(t, dir) // there is one
	_ = stays.In.Close()
	rig.Eventually(t, "the process that they shared has ended", func() string {
		return rig.ReasonUnless(len(rig.ServingRows(t, dir)) == 0, "it has not")
	})
	awaitLog(t, dir, "no client is left")
	if ended := strings.Count(rig.SharedLog(dir), "no client is left"); ended != 1 {
		t.Errorf("%d processes served them", ended)
	}
	rig.Eventually(t, "no process is left", func() string {
		left := append(rig.ProcessesOf(dir), rig.ProcessesOf("marks="+marks)...)
		return rig.ReasonUnless(len(left) == 0, fmt.Sprint(left))
	})
}

// A client joins no process of another version or configuration.
func TestClientsWithAnotherVersionOrConfigurationDoNotJoin(t *testing.T) {
	t.Parallel()
	dir, _ := shareWorker(t)
	rig.Shared(t, dir, true)
	first := rig.ServingRow(t, dir)
	other := filepath.Join(t.TempDir(), "switchboard")
	text, err := os.ReadFile(rig.Plain)
	if err == nil {
		err = os.WriteFile(other, text, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, "switchboard.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rig.WriteFile(t, filepath.Join(dir, "other.yaml"), string(config))
	var build struct {
		Version, Commit string
		Modified        bool
	}
	if said, _, _ := rig.Command(t, dir, "version", "--json"); json.Unmarshal([]byte(said), &build) != nil {
		t.Fatal(said)
	}
	// Files of one commit are one version. Without a commit, each file is a version of its own.
	more, says := 1, "its --results or program file is another one"
	if build.Version != "devel" && build.Commit != "" && !build.Modified {
		more, says = 0, ""
	}
	for _, tt := range []struct {
		cmd  *exec.Cmd
		rows int // afterwards
		says string
	}{
		{exec.Command(other, "stdio"), 1 + more, says},
		{rig.Switchboard(t, "stdio", "--results", "whole"), 2 + more, "its --results or program file is another one"},
		{rig.Switchboard(t, "stdio", "--results", "whole"), 2 + more, ""}, // it shares the process of the one before
		{rig.Switchboard(t, "stdio", "--config", "other.yaml", "--data", ".switchboard"), 3 + more, "its configuration is " + dir},
	} {
		log, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = log.Close() }()
		tt.cmd.Stderr = log
		s := rig.OpenStdio(t, dir, true, tt.cmd)
		if code := rig.Call(t, s, "work", `{}`); code != "" {
			t.Errorf("%q: the call: %s", tt.cmd.Args, code)
		}
		if text, err := os.ReadFile(log.Name()); err != nil || !strings.Contains(string(text), tt.says) {
			t.Errorf("%q says:\n%s", tt.cmd.Args, text)
		}
		if rows := rig.ServingRows(t, dir); len(rows) != tt.rows || !slices.ContainsFunc(rows, func(r serving.Neighbor) bool { return r.PID == first.PID }) {
			t.Errorf("%q: %d processes serve, not %d", tt.cmd.Args, len(rows), tt.rows)
		}
	}
}

// A client with another value of a variable that the configuration refers to would use the secrets of somebody else.
func TestClientsWithOtherValuesOfVariablesDoNotJoin(t *testing.T) {
	t.Parallel()
	marks := filepath.Join(t.TempDir(), "marks")
	row := strings.TrimSuffix(rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "work")), "}")
	const refers = `, env: {TEST_TOKEN: "${env:TEST_TOKEN}"`
	dir := rig.ShareFolder(t, rig.Fakes(row+refers+"}}"))
	open := func(variables ...string) (s *rig.StdioSession, stderr func() string) {
		t.Helper()
		log, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = log.Close() })
		cmd := rig.PlainShared()
		cmd.Env, cmd.Stderr = append(os.Environ(), variables...), log
		s = rig.OpenStdio(t, dir, true, cmd)
		if code := rig.Call(t, s, "work", `{}`); code != "" {
			t.Errorf("%q: the call: %s", variables, code)
		}
		return s, func() string {
			text, _ := os.ReadFile(log.Name())
			return string(text)
		}
	}
	rows := func(want int) {
		t.Helper()
		if got := len(rig.ServingRows(t, dir)); got != want {
			t.Errorf("%d processes serve, not %d", got, want)
		}
	}
	const one, two = "TEST_TOKEN=the first secret", "TEST_TOKEN=the second secret"
	open(one, "TEST_MORE=x")
	open(one, "TEST_MORE=x", "TEST_OTHER=anything")
	rows(1)
	for i := range 2 { // the second one joins the process of the first one
		_, stderr := open(two, "TEST_MORE=x")
		got := stderr()
		if told := strings.Contains(got, "these variables have other values there: TEST_TOKEN"); told != (i == 0) || strings.Contains(got, "secret") {
			t.Errorf("client %d says:\n%s", i, got)
		}
		rows(2)
	}
	s, stderr := open(one, "TEST_MORE=y")
	rows(2)
	file := filepath.Join(dir, "switchboard.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rig.WriteFile(t, file, strings.Replace(string(text), refers, refers+`, TEST_MORE: "${env:TEST_MORE}"`, 1))
	rig.Eventually(t, "the client has left the process that it shared", func() string {
		return rig.ReasonUnless(strings.Contains(stderr(), "these variables have other values there: TEST_MORE"), stderr())
	})
	if code := rig.Call(t, s, "work", `{}`); code != "" {
		t.Errorf("after the reload: %s", code)
	}
	rows(3)
}

// A person sees and operates the Switchboard that clients share, as one that serves HTTP. That does not keep it from ending.
func TestCommandsReachTheSwitchboardThatClientsShare(t *testing.T) {
	t.Parallel()
	dir, marks := shareWorker(t)
	s := rig.OpenStdio(t, dir, true, rig.PlainShared("--linger", "200ms"))
	rig.ListNames(t, s)
	command := func(want string, args ...string) {
		t.Helper()
		if out, errs, code := rig.Command(t, dir, args...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%q: exit %d\n%s%s", args, code, out, errs)
		}
	}
	command("healthy", "status")
	command("work", "tools")
	command(`{"client":"cli"}`, "call", "work", `{"client":"cli"}`)
	if got := executions(t, marks); got != 1 {
		t.Errorf("%d calls were made", got)
	}
	if got := len(rig.ProcessesOf("marks=" + marks)); got != 2 {
		t.Errorf("the server has %d processes, not its program and its guard", got)
	}
	command("a is disabled", "server", "disable", "a")
	if code := rig.Call(t, s, "work", `{}`); code == "" {
		t.Error("a client calls a disabled server")
	}
	command("a is healthy", "server", "enable", "a")
	command("a is ", "server", "restart", "a")
	if code := rig.Call(t, s, "work", `{}`); code != "" {
		t.Errorf("after all that: %s", code)
	}
	_ = s.In.Close()
	rig.Eventually(t, "the process ends although it is watched", func() string {
		_, _, _ = rig.Command(t, dir, "status")
		return rig.ReasonUnless(len(rig.ServingRows(t, dir)) == 0, "it has not")
	})
}

// A folder has several names, if a link leads to it. Its clients share nevertheless.
func TestClientsShareWhateverNameTheFolderHas(t *testing.T) {
	t.Parallel()
	dir, _ := shareWorker(t)
	rig.Shared(t, dir, true)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	cmd := rig.Switchboard(t, "stdio", "--config", filepath.Join(link, "switchboard.yaml"))
	if code := rig.Call(t, rig.OpenStdio(t, dir, false, cmd), "work", `{}`); code != "" {
		t.Errorf("the call: %s", code)
	}
	rig.ServingRow(t, dir) // there is one
}

func TestAClientAloneHasServersOfItsOwn(t *testing.T) {
	t.Parallel()
	dir, marks := shareWorker(t)
	rig.Shared(t, dir, false)
	rig.Stdio(t, dir, false)
	rig.Eventually(t, "two servers run, each with a guard", func() string {
		got := len(rig.ProcessesOf("marks=" + marks))
		return rig.ReasonUnless(got == 4, fmt.Sprint(got, " processes"))
	})
	rig.ServingRow(t, dir)
}

// The end of a client's messages, cancellation, progress and long messages are as without sharing.
func TestASharedConnectionIsLikeOneOfItsOwn(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	marks, tape, long := filepath.Join(folder, "marks"), filepath.Join(folder, "tape"), filepath.Join(folder, "long")
	args, err := json.Marshal([]string{`says={"content":[{"type":"text","text":"` + strings.Repeat("x", 10<<20) + `"}]}`, fmt.Sprintf(rig.Tool, "shout")})
	if err != nil {
		t.Fatal(err)
	}
	rig.WriteFile(t, long, string(args))
	dir := rig.ShareFolder(t, rig.Fakes(rig.FakeRow("a", "marks="+marks, "tape="+tape, fmt.Sprintf(rig.Tool, "work")), rig.FakeRow("b", "args="+long)))
	for _, modern := range []bool{false, true} {
		s := rig.OpenStdio(t, dir, modern, rig.Switchboard(t, "stdio", "--results", "whole"))
		m, _ := s.Ask(t, "tools/call", `{"name":"shout","arguments":{}}`)
		if len(m.Text()) != 10<<20 {
			t.Errorf("modern %t: 10 MiB arrive as %d bytes: %.200s", modern, len(m.Text()), m.Raw)
		}
		if m := s.Send(t, `{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{"name":"`+strings.Repeat("x", 10<<20)+`"}}`); !bytes.Contains(m.Raw, []byte("longer than 4 MiB")) {
			t.Errorf("modern %t: a request of 10 MiB: %.200s", modern, m.Raw)
		}
		m, said := s.Ask(t, "tools/call", `{"name":"work","_meta":{"progressToken":"p"},"arguments":{"do":"progress"}}`)
		if progress := strings.Count(strings.Join(said, ""), "notifications/progress"); m.Error != nil || progress != 5 {
			t.Errorf("modern %t: %d notifications of progress, and %s", modern, progress, m.Raw)
		}
		meta := ""
		if modern {
			meta = rig.ModernMeta + ","
		}
		fmt.Fprintf(s.In, `{"jsonrpc":"2.0","id":"endless","method":"tools/call","params":{%s"name":"work","arguments":{"do":"await","until":%q}}}`+"\n", meta, filepath.Join(folder, "never"))
		rig.Eventually(t, "the call has arrived", func() string {
			text, _ := os.ReadFile(tape)
			return rig.ReasonUnless(strings.Contains(string(text), "never"), "it has not")
		})
		fmt.Fprintln(s.In, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"endless"}}`)
		rig.Eventually(t, "the server is told of the cancellation", func() string {
			text, _ := os.ReadFile(tape)
			return rig.ReasonUnless(strings.Contains(string(text), "notifications/cancelled"), "it is not")
		})
		if err := os.Remove(tape); err != nil {
			t.Fatal(err)
		}
		// A call in flight at the end of stdin gets its answer.
		until := filepath.Join(folder, fmt.Sprintf("until-%t", modern))
		before := executions(t, marks)
		fmt.Fprintf(s.In, `{"jsonrpc":"2.0","id":"last","method":"tools/call","params":{%s"name":"work","arguments":{"do":"await","until":%q}}}`+"\n", meta, until)
		rig.AwaitCalls(t, marks, before+1)
		_ = s.In.Close()
		rig.WriteFile(t, until, "now")
		line, err := s.ReadLine()
		wait.Read(t, "the last answer", err)
		if !strings.Contains(string(line), `"id":"last"`) || rig.Code(rig.ParseMessage(line)) != "" {
			t.Errorf("modern %t: the last answer is %s", modern, line)
		}
		if line, err := s.ReadLine(); err != io.EOF { //nolint:errorlint // as a pipe ends
			t.Errorf("modern %t: after the last answer: %v %s", modern, err, line)
		}
	}
}

// A process that is stopped by a signal hangs. Its clients give it up, and none of their calls is made twice, also when it wakes up.
func TestAServingProcessThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	dir, marks := shareWorker(t)
	s := rig.Shared(t, dir, false)
	hung := rig.ServingRow(t, dir).PID
	if err := syscall.Kill(hung, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the process has stopped", func() string { return rig.ReasonUnless(rig.Stopped(hung), "a thread runs") })
	wake := sync.OnceFunc(func() { _ = syscall.Kill(hung, syscall.SIGCONT) })
	t.Cleanup(wake)
	began := time.Now()
	fmt.Fprintln(s.In, `{"jsonrpc":"2.0","id":"late","method":"tools/call","params":{"name":"work","arguments":{}}}`)
	// The bridge waits for 20 to 25 seconds, and then 10 more for a handshake.
	wait.For(t, 40*time.Second+wait.Bound, "another process serves", func() error {
		if len(rig.ServingRows(t, dir)) < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	t.Logf("it was given up after %v", time.Since(began).Round(time.Second))
	m, _ := s.Exchange(t, "")
	switch code := rig.Code(m); {
	case !bytes.Contains(m.Raw, []byte(`"id":"late"`)):
		t.Errorf("in the place of the answer: %s", m.Raw)
	case code == "SB-RCPT-001" && executions(t, marks) == 0: // it was stopped in the middle of a write, and holds the store
		wake()
		rig.Eventually(t, "the store is free", func() string { return rig.Call(t, s, "work", `{}`) })
	case code != "" || executions(t, marks) != 1:
		t.Errorf("a call to a process that hangs: %s, and %d executions", m.Raw, executions(t, marks))
	}
	wake()
	awaitLog(t, dir, "a client has left")
	if got := executions(t, marks); got != 1 {
		t.Errorf("one call was executed %d times", got)
	}
}

func TestWhatARunHasExpandedOutlivesTheServingProcess(t *testing.T) {
	t.Parallel()
	dir := rig.ShareFolder(t, lazily(8000, ""))
	for _, modern := range []bool{false, true} {
		s := rig.Shared(t, dir, modern)
		if text, code := helper(t, s, `{"action":"expand","tools":["s3_list_buckets"]}`); code != "" {
			t.Fatalf("expand: %s %s", code, text)
		}
		killServing(t, dir)
		// A modern client does not find it in the list, with or without another process.
		if names := rig.ListNames(t, s); !modern && !slices.Contains(names, "s3_list_buckets") {
			t.Errorf("after the end of the process, the expanded tool is not in %q", names)
		}
		if g := tokens(t, s).Groups; len(g) != 1 || !slices.Equal(g[0].Expanded, []string{"s3_list_buckets"}) {
			t.Errorf("modern %t: after the end of the process, the groups are %v", modern, g)
		}
		if code := rig.Call(t, s, "s3_list_buckets", `{}`); code != "" {
			t.Errorf("modern %t: the call of the expanded tool: %s", modern, code)
		}
	}
}

// The folder's owner alone can join. What another user, or a server's program, sends to the port opens nothing.
func TestAttackOnlyTheOwnerOfTheFolderCanJoin(t *testing.T) {
	t.Parallel()
	dir, marks := shareWorker(t)
	s := rig.Shared(t, dir, true)
	row := rig.ServingRow(t, dir)
	file := filepath.Join(dir, ".switchboard", "operator.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	_, port, _ := strings.Cut(row.Address, ":")
	t.Run("a server's program", func(t *testing.T) {
		m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"work","arguments":{"do":"fetch","url":"http://%s/"}}`, row.Address))
		if !bytes.Contains(m.Raw, []byte("it cannot be reached")) {
			t.Errorf("it gets %s", m.Raw)
		}
		awaitLog(t, dir, "a program that Switchboard itself started")
	})
	for _, pid := range rig.ProcessesOf("marks=" + marks) {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && bytes.Contains(environ, []byte(row.Token.Reveal())) {
			t.Errorf("process %d has the token in its environment", pid)
		}
	}
	t.Run("another user", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("skipped: only root can be another user")
		}
		nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		// The first line of the handshake is right. No line comes back.
		const ask = `exec 3<>/dev/tcp/127.0.0.1/$0 && printf '{"join":2,"nonce":"%064d"}\n' 0 >&3 && timeout 5 cat <&3`
		bash := exec.CommandContext(t.Context(), "bash", "-c", ask, port)
		bash.SysProcAttr, bash.Dir = nobody, "/"
		if out, _ := bash.CombinedOutput(); bytes.Contains(out, []byte("proof")) {
			t.Errorf("another user gets: %s", out)
		}
		awaitLog(t, dir, "another user of this machine")
		stdio := exec.CommandContext(t.Context(), rig.Plain, "stdio", "--config", filepath.Join(dir, "switchboard.yaml"))
		stdio.SysProcAttr, stdio.Dir = nobody, "/"
		if out, err := stdio.CombinedOutput(); err == nil || strings.Contains(string(out), "joined") {
			t.Errorf("another user's \"switchboard stdio\": %v %s", err, out)
		}
	})
	t.Run("a file that others can read", func(t *testing.T) {
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Chmod(file, 0o600) }()
		log, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = log.Close() }()
		cmd := rig.Switchboard(t, "stdio")
		cmd.Stderr = log
		other := rig.OpenStdio(t, dir, false, cmd)
		if code := rig.Call(t, other, "work", `{}`); code != "" {
			t.Error(code)
		}
		text, _ := os.ReadFile(log.Name())
		if !strings.Contains(string(text), "other users may read it") || !strings.Contains(string(text), "servers of its own") {
			t.Errorf("it says:\n%s", text)
		}
	})
}
