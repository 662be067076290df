package conformance_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestWhatAClientPassesDirectItPassesThroughSwitchboard(t *testing.T) {
	// What the SDK's client does, so that nothing is compared with nothing.
	does := map[string]verdict{"legacy": {20, 0}, "modern": {62, 0}}
	for back, version := range eras {
		t.Run(back+" server", func(t *testing.T) {
			t.Parallel()
			client := built(t, sdkClient)
			run := func(gateways string) results {
				return suite(t, "client", "--command", fmt.Sprintf("%s client %s %s", os.Args[0], client, gateways), "--timeout", fmt.Sprint(patience.Milliseconds()*3), "--requirements", version)
			}
			direct := baseline(t, does[back], func() results { return run("none") })
			compare(t, "client-"+back, func(late *wait.Lateness) results { return run(gateways(t, version, late)) }, direct)
		})
	}
}

// gateways starts a switchboard in front of each server that it is asked for,
// answers with its address, and stops it when the asker hangs up: the suite
// tells the address of its server only to the client that it starts, may kill
// that, and waits until nobody is connected to its server.
//
// Towards a legacy server it has its GET stream open by then. Until it has, it
// misses what the server asks on that stream, and the suite takes a late GET for
// the resumption of the call.
func gateways(t *testing.T, era string, late *wait.Lateness) string {
	t.Helper()
	program := built(t, programs.Plain)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		behind, listens := tap(t, r.FormValue("behind"), era, late)
		front, stop, err := serve(t, program, behind)
		if err != nil {
			t.Error(err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer stop()
		if has, err := hasSettled(front); err != nil {
			t.Error(err)
		} else if !has {
			late.Add("%s has not answered", behind)
		}
		if era == legacy {
			select {
			case <-listens:
			case <-time.After(patience / 4):
				late.Add("%s: no GET", behind)
			}
		}
		fmt.Fprintln(w, front)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// hasSettled reports whether a switchboard's server has answered before patience ended. Until it has, a list
// has only the tool that says so.
func hasSettled(front string) (bool, error) {
	for began := time.Now(); time.Since(began) < patience; time.Sleep(wait.Pause(time.Since(began), 0)) {
		list, err := listTools(front)
		if err != nil || !strings.HasPrefix(list, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"switchboard_status"`) {
			return err == nil, err
		}
	}
	return false, nil
}

// silence is how long Switchboard waits for the answer to server/discover.
const silence = 5 * time.Second

// tap is a server in front of one, and tells when a GET has its answer. It adds to late that a modern
// server was asked as a legacy one is, after a silence.
func tap(t *testing.T, behind, era string, late *wait.Lateness) (string, <-chan struct{}) {
	target, err := url.Parse(behind)
	if err != nil {
		t.Error(err)
		return behind, nil
	}
	listens := make(chan struct{})
	tell := sync.OnceFunc(func() { close(listens) })
	root := &url.URL{Scheme: target.Scheme, Host: target.Host}
	first := sync.OnceValue(time.Now) // request
	s := httptest.NewServer(whole(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			if time.Since(first()) >= silence*9/10 && era == modern && r.In.Header.Get("Mcp-Protocol-Version") == "" {
				late.Add("%s: a request as to a legacy server", behind)
			}
			r.SetURL(root)
		},
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodGet {
				tell()
			}
			return nil
		},
		ErrorLog: log.New(io.Discard, "", 0), // the suite's server goes before the switchboard does
	}))
	t.Cleanup(s.Close)
	return s.URL + target.Path, listens
}

// runClient is the command that the suite starts: it runs the SDK's client on
// the suite's server, or on a switchboard in front of that.
//
// The scenarios of authorization it leaves out, and the suite puts their results
// where they are not read: a server's tokens are between it and the gateway, which
// plays these scenarios itself in auth_test.go.
func runClient(client, gateways, server string) error {
	if strings.HasPrefix(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "auth/") {
		return nil
	}
	if gateways != "none" {
		resp, err := http.PostForm(gateways, url.Values{"behind": {server}})
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		front, err := bufio.NewReader(resp.Body).ReadString('\n')
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s %s: %w", resp.Status, front, err)
		}
		server = strings.TrimSpace(front)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, client, server)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
