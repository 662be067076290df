package browser_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
)

// OR-06, another user of this machine: browsers send the cookies of 127.0.0.1 to every port of it, also to one that another user listens at. There the
// cookie and the code of "switchboard page" are worth nothing.
func TestOR06AnotherUserOfThisMachineCannotUseASessionOrACode(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	w := serve(t, false, startNPM)
	b := newBrowser(t)
	w.signIn(b)
	c := b.sessionCookie()
	_, port, _ := strings.Cut(strings.TrimPrefix(w.at, "http://"), ":")
	ask := func(uid uint32, path, cookie string) string {
		script := fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%s && printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nCookie: %s\r\nConnection: close\r\n\r\n' >&3 && cat <&3`, port, path, port, cookie)
		cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
		cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}, "/"
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v %s", err, out)
		}
		return string(out)
	}
	code := strings.TrimSpace(w.Do(0, "sign-in/code", "page", "--print"))
	code = code[strings.Index(code, "/sign-in/code"):]
	const nobody = 65534
	cookie := c.Name + "=" + c.Value
	for path, want := range map[string]string{"/v1/status": "HTTP/1.1 401", "/now": "HTTP/1.1 401", code: "HTTP/1.1 401"} {
		if got := ask(nobody, path, cookie); !strings.HasPrefix(got, want) || strings.Contains(got, "Set-Cookie") {
			t.Errorf("another user gets from %s\n%s", path, got)
		}
	}
	if got := ask(0, "/v1/status", cookie); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("the user gets %s", got)
	}
	b.do(chromedp.Navigate(w.at + code)) // nobody has used it up
	b.await("You are local, an operator")
}
