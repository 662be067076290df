package browser_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// screenshots is the folder that "make screenshots" writes to.
var screenshots = flag.String("screenshots", "", "write a picture of each view, light and dark, to this `FOLDER`")

var (
	pageOfDemo    = regexp.MustCompile(`http://\S+/sign-in/code\?code=\S+`)
	commandOfDemo = regexp.MustCompile(`switchboard (page --config \S+)`)
)

// openDemo runs the demo, and opens its page as the operator, by the command that the demo prints beside an address.
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
	var printed string
	var command []string
	for lines := bufio.NewScanner(out); command == nil && lines.Scan(); {
		printed += pageOfDemo.FindString(lines.Text())
		command = commandOfDemo.FindStringSubmatch(lines.Text())
	}
	if printed == "" || command == nil {
		t.Fatalf("the demo prints the address %q and the command %q", printed, command)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	page, err := exec.Command(rig.Plain, append(strings.Fields(command[1]), "--print")...).CombinedOutput()
	address := pageOfDemo.FindString(string(page))
	if err != nil || address == "" {
		t.Fatalf("%s: %v\n%s", command[0], err, page)
	}
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

// axe-core finds nothing on any view, with the data of the demo: in four states on those of the navigation, and in one on the others that have a picture.
func TestEveryViewIsForEverybody(t *testing.T) {
	npmlock.Need(t, "the page is checked by axe-core")
	b := openDemo(t)
	saw := watch(b)
	axe, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	type look struct {
		name     string
		features []string
		width    int64
		scale    float64
	}
	inNavigation := b.addressesOfViews()
	for i, p := range b.picturesOf(inNavigation) {
		view, states := p.address, []look{{"light", []string{"prefers-color-scheme", "light"}, p.width, 1}}
		if i < len(inNavigation) {
			states = append(states, look{"dark", []string{"prefers-color-scheme", "dark"}, 1280, 1}, look{"200 %", nil, 640, 2}, look{"forced colours", []string{"forced-colors", "active"}, 1280, 1})
		} else if p.name == "sign-in" { // of another origin, so that there is no session
			continue
		}
		b.do(chromedp.Navigate(view))
		if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[any](string(axe)+"\n;true")); err != nil {
			t.Fatal(err)
		}
		for _, state := range states {
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

// The bounds of a picture. What is below the edge is cut off, and the colours that few points have become similar ones.
const (
	pictureHeight  = 1700
	pictureColours = 256
	maxPicture     = 120 << 10 // bytes
)

// A picture is a view in one state, as the documents show it. Each view in the navigation has one with the name of its path.
type picture struct {
	name, address string
	width         int64
}

// picturesOf returns the pictures of the page: those of the views, and of some parts that no link in the navigation opens.
func (b *browser) picturesOf(views []string) (all []picture) {
	b.t.Helper()
	base := ""
	for _, view := range views {
		u, err := url.Parse(view)
		if err != nil {
			b.t.Fatal(err)
		}
		base = u.Scheme + "://" + u.Host
		all = append(all, picture{strings.ReplaceAll(strings.Trim(u.Path, "/"), "/", "-"), view, 1280})
	}
	linked := func(view, selector string) string {
		b.do(chromedp.Navigate(base + view))
		return evaluate[string](b, fmt.Sprintf(`document.querySelector(%q).href`, selector))
	}
	request, change := linked("/approvals", "main .concern a"), linked("/configuration", "main table a")
	return append(all,
		picture{"what-if", base + "/decision?tenant=example&task=research&without=nimbus", 1280},
		picture{"what-if-then", linked("/decision?tenant=example&recorded=1&task=research", "main table tbody tr:last-child a") + "&tier=free", 1280},
		picture{"proposal", base + "/ranking?tenant=example&move=server/down/0/0", 1280},
		picture{"try-tool", base + "/try?tenant=example&task=research&tool=web_search", 1280},
		picture{"server", base + "/servers/nimbus", 1280},
		picture{"pin", linked("/pins", "main .concern a"), 1280},
		picture{"request", request, 1280},
		picture{"request-phone", request, 360},
		picture{"decided", base + "/approvals/decided", 1280},
		picture{"standing", base + "/approvals/standing", 1280},
		picture{"change", change, 1280},
		picture{"sign-in", strings.Replace(base, "127.0.0.1", "localhost", 1) + "/", 1280}, // where the browser has no session
		picture{"receipt", linked("/receipts?tool=chat/*&outcome=ok", "main table a"), 1280})
}

// shrink makes a picture smaller.
func shrink(taken []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(taken))
	if err != nil {
		return nil, err
	}
	edge := full.Bounds().Intersect(image.Rect(0, 0, 4096, pictureHeight))
	points := map[color.Color]int{}
	for y := range edge.Max.Y {
		for x := range edge.Max.X {
			points[full.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(points), func(a, b color.Color) int {
		return cmp.Or(points[b]-points[a], strings.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	small := image.NewPaletted(edge, colours[:min(len(colours), pictureColours)])
	index := map[color.Color]uint8{}
	for _, c := range colours {
		index[c] = uint8(small.Palette.Index(c)) //nolint:gosec // of 256
	}
	for y := range edge.Max.Y {
		for x := range edge.Max.X {
			small.SetColorIndex(x, y, index[full.At(x, y)])
		}
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small)
	return out.Bytes(), err
}

// "make screenshots" runs this test, which then keeps the pictures of all views. Else it makes those of the first view, and keeps none.
func TestPicturesOfEveryView(t *testing.T) {
	b := openDemo(t)
	folder, views := *screenshots, b.addressesOfViews()
	var all []picture
	if folder == "" {
		folder, all = t.TempDir(), b.picturesOf(views)[:1]
	} else {
		all = b.picturesOf(views)
	}
	for _, p := range all {
		for _, scheme := range []string{"light", "dark"} {
			b.prefer("prefers-color-scheme", scheme)
			b.do(chromedp.EmulateViewport(p.width, 800), chromedp.Navigate(p.address))
			taken, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100)) // 100 is a PNG
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%s-%s.png", p.name, scheme)
			small, err := shrink(taken)
			if err != nil || len(small) > maxPicture {
				t.Errorf("%s has %d bytes: %v", name, len(small), err)
			}
			if err := os.WriteFile(filepath.Join(folder, name), small, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Lighthouse gives the views that people use most at least 95 of 100 points in accessibility and best practices.
func TestLighthouseGivesThePageGoodMarks(t *testing.T) {
	npmlock.Need(t, "the page is checked by Lighthouse")
	b := openDemo(t)
	cookie := b.sessionCookie()
	if cookie == nil {
		t.Fatal("the browser has no session")
	}
	arguments := []string{"lighthouse.mjs", findChromium(t), cookie.Name + "=" + cookie.Value}
	var pages []string
	for _, view := range b.addressesOfViews() {
		if slices.Contains([]string{"now", "decision", "ranking", "approvals"}, path.Base(view)) {
			pages = append(pages, view)
		}
	}
	out, err := exec.Command("node", append(arguments, pages...)...).Output()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(pages) != 4 || len(lines) != len(pages) {
		t.Fatalf("%d pages have these marks:\n%s", len(pages), out)
	}
	for i, line := range lines {
		var got struct {
			Page, Error string
			SignedIn    bool
			Scores      map[string]float64
			Found       []string
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if got.Page != pages[i] || !got.SignedIn || got.Error != "" || len(got.Scores) != 2 || got.Scores["accessibility"] < 0.95 || got.Scores["best-practices"] < 0.95 {
			t.Errorf("%s: %+v", pages[i], got)
		}
	}
}
