package atom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const canary = "canary-7f3a9c51"

// check returns why the probe fails; "" if it is well.
func check(t *testing.T, o Options, probe capability.AtomProbe) string {
	t.Helper()
	p := &Prober{o: o, send: newClient(o.Dial).Do}
	if err := p.checkOnce(t.Context(), &probe); err != nil {
		if strings.Contains(err.Error(), canary) {
			t.Errorf("the reason holds the secret: %v", err)
		}
		return err.Error()
	}
	return ""
}

func TestCO06AnHTTPProbeIsWellIfTheAnswerIs200To299AndShort(t *testing.T) {
	t.Parallel()
	var inside atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("/inside", func(http.ResponseWriter, *http.Request) { inside.Add(1) })
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		var code int
		_, _ = fmt.Sscan(r.PathValue("code"), &code)
		w.Header().Set("Location", "/inside?"+r.Header.Get("Authorization"))
		w.WriteHeader(code)
		if code != http.StatusNoContent {
			_, _ = w.Write([]byte(r.Header.Get("Authorization")))
		}
	})
	mux.HandleFunc("/long/{bytes}", func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscan(r.PathValue("bytes"), &n)
		for part := make([]byte, 1<<12); n > 0; n -= len(part) {
			if _, err := w.Write(part[:min(n, len(part))]); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("not 100 bytes"))
	})
	mux.HandleFunc("/odd", func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, _ = fmt.Fprintf(conn, "%s\r\n\r\n", r.Header.Get("Authorization"))
			_ = conn.Close()
		}
	})
	mux.HandleFunc("/bearer", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+canary {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	headers := map[string]switchboard.Secret{"authorization": switchboard.NewSecret("Bearer " + canary)}
	for path, want := range map[string]string{
		"/status/200": "", "/status/204": "", "/status/299": "", "/bearer": "",
		"/status/301": "a redirect is not followed", "/status/302": "a redirect is not followed", "/status/307": "a redirect is not followed",
		"/status/304": "answers 304", "/status/401": "answers 401", "/status/500": "answers 500",
		"/long/65536": "", "/long/65537": "longer than 64 KiB", "/long/1073741824": "longer than 64 KiB",
		"/short": "breaks off", "/odd": "no proper answer",
	} {
		if got := check(t, Options{}, capability.AtomProbe{HTTP: server.URL + path, Headers: headers}); !fits(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if n := inside.Load(); n > 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// fits reports whether the reason has the text; "" wants no reason.
func fits(got, want string) bool {
	return (got == "") == (want == "") && strings.Contains(got, want)
}

func TestCO06NoProbeReachesALinkLocalAddress(t *testing.T) {
	t.Parallel()
	open := func(_ context.Context, _, address string) (net.Conn, error) {
		t.Errorf("a probe connects to %s", address)
		return nil, errors.New("not in this test")
	}
	for _, host := range []string{
		"169.254.169.254", "169.254.169.254.", "169.254.0.1", "[::ffff:169.254.169.254]", "[fe80::1]", "[fe80::1%25eth0]", "[fd00:ec2::254]", "[64:ff9b::a9fe:a9fe]",
		"100.100.100.200", "168.63.129.16",
	} {
		if got := check(t, Options{Dial: open}, capability.AtomProbe{HTTP: "http://" + host + "/latest/meta-data"}); !strings.Contains(got, "link-local or metadata") {
			t.Errorf("http to %s: %q", host, got)
		}
		if got := check(t, Options{Dial: open}, capability.AtomProbe{TCP: strings.Replace(host, "%25", "%", 1) + ":80"}); !strings.Contains(got, "link-local or metadata") {
			t.Errorf("tcp to %s: %q", host, got)
		}
	}
}

func TestATCPProbeIsWellIfTheConnectionOpens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if got := check(t, Options{}, capability.AtomProbe{TCP: l.Addr().String()}); got != "" {
		t.Error(got)
	}
	_ = l.Close()
	if got := check(t, Options{}, capability.AtomProbe{TCP: l.Addr().String()}); got == "" {
		t.Error("it is well without a listener")
	}
	if got := check(t, Options{}, capability.AtomProbe{TCP: "no port"}); got == "" {
		t.Error("it is well without a port")
	}
}

func TestAnEnvProbeIsWellIfTheVariableIsSetAndNotEmpty(t *testing.T) {
	t.Setenv("ATOM_TEST_SET", canary)
	t.Setenv("ATOM_TEST_EMPTY", "")
	for name, want := range map[string]string{"ATOM_TEST_SET": "", "ATOM_TEST_EMPTY": "is empty", "ATOM_TEST_ABSENT": "is not set"} {
		if got := check(t, Options{}, capability.AtomProbe{Env: name}); !fits(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestAFileProbeIsWellIfTheFileIsWithinTheFolderAndNotEmpty(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	folder := filepath.Join(top, "config")
	for name, text := range map[string]string{"full": "x", "empty": "", "sub/full": "x", "../outside": "x"} {
		name = filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../outside", filepath.Join(folder, "link")); err != nil {
		t.Skip("this system makes no links:", err)
	}
	for name, want := range map[string]string{
		"full": "", "sub/full": "", "empty": "is empty", "absent": "does not exist", "sub": "not a file",
		"../outside": "within the folder", "link": "within the folder", filepath.Join(folder, "full"): "within the folder",
	} {
		if got := check(t, Options{Folder: folder}, capability.AtomProbe{File: name}); !fits(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestAnOAuthProbeIsWellIfTheConnectionIsAndUntoldIfThatCannotBeFoundOut(t *testing.T) {
	t.Parallel()
	probe := capability.AtomProbe{OAuth: "tracker"}
	if got := check(t, Options{}, probe); got != errUntold.Error() {
		t.Errorf("without anybody to ask: %q", got)
	}
	for _, tt := range []struct {
		why   string
		known bool
		want  string
	}{{"", true, ""}, {"nobody has connected it", true, "nobody has connected it"}, {"", false, errUntold.Error()}} {
		o := Options{Connection: func(_ context.Context, id switchboard.ServerID) (string, bool) {
			return tt.why, tt.known && id == "tracker"
		}}
		if got := check(t, o, probe); got != tt.want {
			t.Errorf("%q, known %v: %q", tt.why, tt.known, got)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel() // a store that hangs until the end of the attempt says nothing about the atom
		p := &Prober{o: o}
		if err := p.checkOnce(ended, &probe); !tt.known && !errors.Is(err, errUntold) {
			t.Errorf("after the end: %v", err)
		}
	}
}

func TestAToolProbeComparesValues(t *testing.T) {
	t.Parallel()
	id := switchboard.ToolID{Server: "s", Name: "whoami"}
	trusted := switchboard.Fact{Holds: true, Trusted: true, Source: "overlay"}
	tool := &switchboard.Tool{ID: id, Contract: switchboard.Contract{ReadOnly: trusted}}
	for _, tt := range []struct {
		result, pointer, is string
		want                string
	}{
		{result: `{"content":[]}`},
		{result: `{"isError":true}`, want: "answers with an error"},
		{result: `{"structuredContent":{"ok":true}}`, pointer: "/ok", is: "true"},
		{result: `{"structuredContent":{"ok":false}}`, pointer: "/ok", is: "true", want: "another value"},
		{result: `{"structuredContent":{"ok":"true"}}`, pointer: "/ok", is: "true", want: "another value"},
		{result: `{"structuredContent":{"ok":true},"isError":true}`, pointer: "/ok", is: "true", want: "answers with an error"},
		{result: `{"content":[]}`, pointer: "/ok", is: "true", want: "no structured content"},
		{result: `{"structuredContent":{}}`, pointer: "/ok", is: "null", want: "no value"},
		{result: `{"structuredContent":{"ok":null}}`, pointer: "/ok", is: "null"},
		{result: `{"structuredContent":{"a":[1,{"b/~":"x"}]}}`, pointer: "/a/1/b~1~0", is: `"\u0078"`},
		{result: `{"structuredContent":{"a":[1]}}`, pointer: "/a/01", is: `1`, want: "no value"},
		{result: `{"structuredContent":{"a":[1]}}`, pointer: "/a/-1", is: `1`, want: "no value"},
		{result: `{"structuredContent":{"a":{"c":1, "b":[ ]}}}`, pointer: "/a", is: `{"b":[],"c":1}`},
		{result: `{"structuredContent":{"a":1}}`, pointer: "", is: `{"a":1}`},
		{result: `{"structuredContent":{"a":1}}`, pointer: "a", is: `1`, want: "no value"},
		{result: `{"structuredContent":{"a":1}}`, pointer: "/a/b", is: `1`, want: "no value"},
		{result: `{"x":"` + strings.Repeat("y", maxAnswer) + `"}`, want: "longer than"},
	} {
		o := Options{
			Find: func(want switchboard.ToolID) (*switchboard.Tool, bool) { return tool, want == id },
			Call: func(_ context.Context, got *switchboard.Tool, arguments json.RawMessage) (switchboard.Result, error) {
				if got != tool || string(arguments) != `{"a":1}` {
					t.Errorf("%v is called with %s", got.ID, arguments)
				}
				return switchboard.Result{JSON: []byte(tt.result)}, nil
			},
		}
		probe := capability.AtomProbe{Tool: id, Arguments: json.RawMessage(`{"a":1}`)}
		if tt.is != "" {
			probe.Is = map[string]json.RawMessage{tt.pointer: json.RawMessage(tt.is)}
		}
		if got := check(t, o, probe); !fits(got, tt.want) {
			t.Errorf("%.60s at %q: %q, want %q", tt.result, tt.pointer, got, tt.want)
		}
	}
}

func TestAToolProbeCallsOnlyAToolThatProvablyReads(t *testing.T) {
	t.Parallel()
	yes := switchboard.Fact{Holds: true, Trusted: true, Source: "overlay"}
	for name, contract := range map[string]switchboard.Contract{
		"silent":    {},
		"untrusted": {ReadOnly: switchboard.Fact{Holds: true, Source: switchboard.FromHint}},
		"stateful":  {ReadOnly: yes, Stateful: switchboard.Fact{Holds: true}},
	} {
		o := Options{
			Find: func(id switchboard.ToolID) (*switchboard.Tool, bool) {
				return &switchboard.Tool{ID: id, Contract: contract}, true
			},
			Call: func(context.Context, *switchboard.Tool, json.RawMessage) (switchboard.Result, error) {
				t.Errorf("the %s tool is called", name)
				return switchboard.Result{}, nil
			},
		}
		if got := check(t, o, capability.AtomProbe{Tool: switchboard.ToolID{Server: "s", Name: name}}); !strings.Contains(got, "declare in an overlay") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestTheReasonOfAFailedCallIsItsCodeAlone(t *testing.T) {
	t.Parallel()
	o := Options{
		Find: func(id switchboard.ToolID) (*switchboard.Tool, bool) {
			return &switchboard.Tool{ID: id, Contract: switchboard.Contract{ReadOnly: switchboard.Fact{Holds: true, Trusted: true}}}, true
		},
		Call: func(context.Context, *switchboard.Tool, json.RawMessage) (switchboard.Result, error) {
			return switchboard.Result{}, &switchboard.Error{Code: switchboard.CodeServerUnreachable, Text: canary, Cause: errors.New(canary)}
		},
	}
	got := check(t, o, capability.AtomProbe{Tool: switchboard.ToolID{Server: "s", Name: "t"}})
	if !strings.HasSuffix(got, string(switchboard.CodeServerUnreachable)) {
		t.Errorf("the reason is %q", got)
	}
}
