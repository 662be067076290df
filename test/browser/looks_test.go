package browser_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// screenshots is the folder that "make screenshots" writes to.
var screenshots = flag.String("screenshots", "", "write a picture of each view, light and dark, to this `FOLDER`")

var pageOfDemo = regexp.MustCompile(`http://\S+/sign-in/code\?code=\S+`)

// openDemo runs the demo, and opens its page as the operator.
func openDemo(t *testing.T) *browser {
	t.Helper()
	findChromium(t)
	cmd := exec.Command(rig.Plain, "demo", "--keep")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	address := ""
	for lines := bufio.NewScanner(out); address == "" && lines.Scan(); {
		address = pageOfDemo.FindString(lines.Text())
	}
	if address == "" {
		t.Fatal("the demo prints no address of the page")
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	b := newBrowser(t)
	b.do(chromedp.EmulateViewport(1280, 800), chromedp.Navigate(address))
	b.await("You are local, an operator")
	return b
}

// addressesOfViews returns the addresses in the navigation.
func (b *browser) addressesOfViews() []string {
	b.t.Helper()
	all := evaluate[[]string](b, `[...document.querySelectorAll("nav a")].map(a => a.href)`)
	if len(all) == 0 {
		b.t.Fatal("there is no navigation")
	}
	return all
}

// prefer makes the browser one of a person with these preferences: names and values of media features in turn.
func (b *browser) prefer(features ...string) {
	b.t.Helper()
	var all []*emulation.MediaFeature
	for i := 0; i+1 < len(features); i += 2 {
		all = append(all, &emulation.MediaFeature{Name: features[i], Value: features[i+1]})
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: all}); err != nil {
		b.t.Fatal(err)
	}
}

// axe-core finds nothing on any view, with the data of the demo.
func TestEveryViewIsForEverybody(t *testing.T) {
	npmlock.Need(t, "the page is checked by axe-core")
	b := openDemo(t)
	saw := watch(b)
	axe, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, view := range b.addressesOfViews() {
		b.do(chromedp.Navigate(view))
		if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[any](string(axe)+"\n;true")); err != nil {
			t.Fatal(err)
		}
		for _, state := range []struct {
			name     string
			features []string
			width    int64
			scale    float64
		}{
			{"light", []string{"prefers-color-scheme", "light"}, 1280, 1},
			{"dark", []string{"prefers-color-scheme", "dark"}, 1280, 1},
			{"200 %", nil, 640, 2},
			{"forced colours", []string{"forced-colors", "active"}, 1280, 1},
		} {
			b.prefer(state.features...)
			b.do(chromedp.EmulateViewport(state.width, 800, chromedp.EmulateScale(state.scale)))
			found, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v =>
				v.id + ": " + v.help + "\n" + v.nodes.map(n => n.html + "\n" + n.failureSummary).join("\n")).join("\n\n"))`, chromedp.EvalAwaitPromise))
			if err != nil {
				t.Fatal(err)
			}
			if found != "" {
				t.Errorf("%s, %s:\n%s", view, state.name, found)
			}
			if wide := evaluate[bool](b, `document.documentElement.scrollWidth > innerWidth`); wide {
				t.Errorf("%s, %s: the view is wider than its window", view, state.name)
			}
		}
	}
	if faults, origins := saw.seen(); len(faults) > 0 || len(origins) != 1 {
		t.Errorf("the browser reports %q, and has asked %q", faults, origins)
	}
}

// maxPicture limits a picture, in bytes.
const maxPicture = 300 << 10

// "make screenshots" runs this test, which then keeps the pictures of all views. Else it makes those of the first view, and keeps none.
func TestPicturesOfEveryView(t *testing.T) {
	b := openDemo(t)
	folder, views := *screenshots, b.addressesOfViews()
	if folder == "" {
		folder, views = t.TempDir(), views[:1]
	}
	for _, view := range views {
		u, err := url.Parse(view)
		if err != nil {
			t.Fatal(err)
		}
		for _, scheme := range []string{"light", "dark"} {
			b.prefer("prefers-color-scheme", scheme)
			b.do(chromedp.EmulateViewport(1280, 800), chromedp.Navigate(view))
			picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100)) // 100 is a PNG
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%s-%s.png", strings.ReplaceAll(strings.Trim(u.Path, "/"), "/", "-"), scheme)
			if len(picture) > maxPicture {
				t.Errorf("%s has %d bytes", name, len(picture))
			}
			if err := os.WriteFile(filepath.Join(folder, name), picture, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
