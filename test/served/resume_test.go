package served_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A cable is a way to a gateway that can be cut.
type cable struct {
	url string

	mu    sync.Mutex
	conns []net.Conn
}

func layCable(g *rig.Gateway) *cable {
	g.T.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.T.Fatal(err)
	}
	g.T.Cleanup(func() { _ = l.Close() })
	c := &cable{url: "http://" + l.Addr().String()}
	g.T.Cleanup(c.cut)
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
			if err != nil {
				_ = near.Close()
				continue
			}
			c.mu.Lock()
			c.conns = append(c.conns, near, far)
			c.mu.Unlock()
			go func() { _, _ = io.Copy(far, near) }()
			go func() { _, _ = io.Copy(near, far) }()
		}
	}()
	return c
}

// cut ends what goes through now.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

func TestTheOfficialSDKLosesNothingWhenItsConnectionIsCutInACall(t *testing.T) {
	t.Parallel()
	const times = 1000
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(rig.FakeRow("one", fmt.Sprintf(rig.Tool, "speak")))))
	way := layCable(g)
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	var mu sync.Mutex
	var heard []int
	all := make(chan struct{})
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, p *mcp.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			switch heard = append(heard, int(p.Params.Progress)); len(heard) {
			case 200, 500:
				way.cut()
			case times:
				close(all)
			}
		},
	})
	s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: way.url + "/mcp"}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it has served
	call := &mcp.CallToolParams{Name: "speak", Arguments: map[string]any{"do": "talk", "mark": "m", "times": fmt.Sprint(times), "pause": "1ms"}}
	call.SetProgressToken("p")
	res, err := s.CallTool(ctx, call)
	wait.Answered(t, ctx, "the call", err)
	if len(res.Content) != 1 {
		t.Fatalf("the call: %+v", res)
	}
	select {
	case <-all: // the SDK does not wait for what it has yet to hand over
	case <-ctx.Done():
	}
	mu.Lock()
	defer mu.Unlock()
	for i, progress := range heard {
		if progress != i {
			t.Fatalf("heard %d: %v", len(heard), heard)
		}
	}
	if len(heard) < times {
		t.Fatalf("of the progress only the first %d have come", len(heard))
	}
}

func TestALostStreamIsResumedByItsLastEventID(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(rig.FakeRow("one", fmt.Sprintf(rig.Tool, "speak")))))
	s := g.Open(t, "/mcp", false)
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	// read returns up to n messages of the stream, and the last id.
	read := func(ctx context.Context, method, body, last string, n int) (heard []string, id string) {
		req, _ := http.NewRequestWithContext(ctx, method, s.URL, strings.NewReader(body))
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Session-Id": s.ID, "Mcp-Protocol-Version": "2025-11-25", "Last-Event-ID": last,
		} {
			if value != "" {
				req.Header.Set(name, value)
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewScanner(resp.Body)
		for len(heard) < n && lines.Scan() {
			if rest, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = rest
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: {"); ok {
				heard = append(heard, "{"+data)
			}
		}
		return heard, id
	}
	c := talk{tool: "speak", mark: "m", times: "300", pause: "1ms", logs: "yes"}
	first, id := read(ctx, http.MethodPost, c.message(1, false), "", 100)
	hangUp()
	second, id := read(t.Context(), http.MethodGet, "", id, 50)
	third, _ := read(t.Context(), http.MethodGet, "", id, 10_000)
	c.complete(t, "the client", slices.Concat(first, second, third))
}
