package memory

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A page holds what one UTC day came to, for one part of a tenant. Encoded, with every number as a uvarint and every text behind its length, it is
//
//	format   1 byte: 1; 2 if the page began anew, because the one before it was damaged
//	cursors  their number; for each: the node, the number of the last entry of its chain that is counted
//	tools    their number; for each: its id, and its totals behind their length:
//	         the outcomes, kept, cost, last success; the number of buckets, for each: its distance from the one before, its count;
//	         the number of patterns, for each: outcome × 2 + moved, code, sightings
//	gaps     their number; for each: 0 for a requirement and 1 for a request, the name, sightings
//	changes  their number; for each: the second, what, the file, the receipt
//
// Sightings are a count, the second of the first one, and the seconds from there to the last one. Lists are sorted, so equal pages have equal bytes.
type page struct {
	anew    bool // the page before it was damaged, so some entries that the cursors name are not counted
	cursors map[string]uint64
	tools   map[string]*Totals // "" is all tools beyond maxTools
	gaps    map[Gap]Sightings
	changes []ServedChange // sorted by time
}

const (
	pageFormat = 1
	anewFormat = 2 // of a page that began anew
)

var (
	errFormat  = errors.New("it is in the format of a later version")
	errDamaged = errors.New("it is damaged")
)

func newPage() *page {
	return &page{cursors: map[string]uint64{}, tools: map[string]*Totals{}, gaps: map[Gap]Sightings{}}
}

// totals returns the totals to count a tool in.
func (p *page) totals(tool string) *Totals {
	if p.tools[tool] == nil {
		if _, hasRest := p.tools[""]; !hasRest && len(p.tools) >= maxTools || hasRest && len(p.tools) > maxTools {
			tool = ""
		}
		if p.tools[tool] == nil {
			p.tools[tool] = &Totals{}
		}
	}
	return p.tools[tool]
}

// addGap counts a gap. Gaps of a kind beyond maxGaps count as one without a name: so agents, who ask for anything, crowd out no requirements.
func (p *page) addGap(g Gap, s Sightings) {
	if _, known := p.gaps[g]; !known && len(p.gaps) >= maxGaps && p.gapsOf(g.Kind) >= maxGaps {
		g.Name = strange
	}
	p.gaps[g] = p.gaps[g].add(s)
}

func (p *page) gapsOf(kind GapKind) (n int) {
	for g := range p.gaps {
		if g.Kind == kind {
			n++
		}
	}
	return n
}

// addChange notes a change, and forgets the oldest ones beyond maxChanges.
func (p *page) addChange(c ServedChange) {
	at, _ := slices.BinarySearchFunc(p.changes, c, func(a, b ServedChange) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Receipt, b.Receipt)) })
	p.changes = slices.Insert(p.changes, at, c)
	p.changes = p.changes[max(0, len(p.changes)-maxChanges):]
}

// add adds what another page of the same key has counted. The cursors stay.
func (p *page) add(o *page) {
	for _, tool := range slices.Sorted(maps.Keys(o.tools)) {
		p.totals(tool).Add(o.tools[tool])
	}
	for _, g := range slices.SortedFunc(maps.Keys(o.gaps), Gap.compare) {
		p.addGap(g, o.gaps[g])
	}
	for _, c := range o.changes {
		p.addChange(c)
	}
}

func (g Gap) compare(h Gap) int {
	return cmp.Or(cmp.Compare(g.Kind, h.Kind), cmp.Compare(g.Name, h.Name))
}

// encode returns the page as the store keeps it.
func (p *page) encode() []byte {
	b := []byte{pageFormat}
	if p.anew {
		b[0] = anewFormat
	}
	b = appendLen(b, len(p.cursors))
	for _, node := range slices.Sorted(maps.Keys(p.cursors)) {
		b = binary.AppendUvarint(appendText(b, node), p.cursors[node])
	}
	b = appendLen(b, len(p.tools))
	var body []byte
	for _, tool := range slices.Sorted(maps.Keys(p.tools)) {
		body = p.tools[tool].append(body[:0])
		b = append(appendLen(appendText(b, tool), len(body)), body...)
	}
	b = appendLen(b, len(p.gaps))
	for _, g := range slices.SortedFunc(maps.Keys(p.gaps), Gap.compare) {
		kind := byte(0)
		if g.Kind == Request {
			kind = 1
		}
		b = appendSightings(appendText(append(b, kind), g.Name), p.gaps[g])
	}
	b = appendLen(b, len(p.changes))
	for _, c := range p.changes {
		b = appendText(appendText(appendText(appendTime(b, c.At), c.What), c.File), c.Receipt)
	}
	return b
}

func (t *Totals) append(b []byte) []byte {
	for _, n := range t.Outcomes {
		b = binary.AppendUvarint(b, n)
	}
	b = binary.AppendUvarint(b, t.Kept)
	b = binary.AppendUvarint(b, uint64(max(t.Cost, 0))) //nolint:gosec // it is not negative
	b = appendTime(b, t.LastOK)
	buckets, before := 0, 0
	for _, n := range t.Latency.counts {
		if n > 0 {
			buckets++
		}
	}
	b = appendLen(b, buckets)
	for bucket, n := range t.Latency.counts {
		if n > 0 {
			b = binary.AppendUvarint(appendLen(b, bucket-before), n)
			before = bucket
		}
	}
	b = appendLen(b, len(t.Patterns))
	for _, p := range slices.SortedFunc(maps.Keys(t.Patterns), Pattern.compare) {
		kind := 2 * outcomeIndex(p.Outcome)
		if p.Moved {
			kind++
		}
		b = appendSightings(appendText(appendLen(b, kind), string(p.Code)), t.Patterns[p])
	}
	return b
}

func appendLen(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) } //nolint:gosec // no length is negative

func appendText(b []byte, s string) []byte { return append(appendLen(b, len(s)), s...) }

// appendTime appends the second of the instant; 0 for the zero time.
func appendTime(b []byte, t time.Time) []byte {
	return binary.AppendUvarint(b, uint64(max(t.Unix(), 0))) //nolint:gosec // it is not negative
}

func appendSightings(b []byte, s Sightings) []byte {
	b = appendTime(binary.AppendUvarint(b, s.Count), s.First)
	return binary.AppendUvarint(b, uint64(max(s.Last.Unix()-s.First.Unix(), 0))) //nolint:gosec // it is not negative
}

// A pageDecoder reads an encoded page. After a fault it returns zero values.
type pageDecoder struct {
	rest []byte
	bad  bool
}

func (d *pageDecoder) number() uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// length returns a number that is at most most, or what is left.
func (d *pageDecoder) length(most int) int {
	n := d.number()
	if n > uint64(most) || n > uint64(len(d.rest)) { //nolint:gosec // neither is negative
		d.bad, d.rest = true, nil
		return 0
	}
	return int(n) //nolint:gosec // it is at most most
}

func (d *pageDecoder) bytes(most int) []byte {
	n := d.length(most)
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *pageDecoder) text() string { return string(d.bytes(maxText)) }

func (d *pageDecoder) time() time.Time {
	n := d.number()
	if n == 0 || n > 1<<40 {
		return time.Time{}
	}
	return time.Unix(int64(n), 0).UTC() //nolint:gosec // it is small
}

func (d *pageDecoder) sightings() Sightings {
	s := Sightings{Count: d.number(), First: d.time()}
	s.Last = s.First.Add(time.Duration(min(d.number(), daySeconds)) * time.Second) //nolint:gosec // it is small
	return s
}

const (
	maxText    = 2 * maxName
	maxCursors = 1 << 16
	maxTotals  = 1 << 16 // bytes of the totals of a tool
)

// decodePage reads a page. No bytes are an empty page.
func decodePage(data []byte) (*page, error) {
	p := newPage()
	p.anew = isAnew(data)
	err := readPage(data, p.cursors, func(tool, totals []byte) bool {
		t := &Totals{}
		p.tools[string(tool)] = t
		return t.decode(totals)
	}, func(kind GapKind, name []byte, s Sightings) { p.gaps[Gap{kind, string(name)}] = s }, func(c ServedChange) { p.changes = append(p.changes, c) })
	return p, err
}

// isAnew reports whether an encoded page began anew.
func isAnew(data []byte) bool { return len(data) > 0 && data[0] == anewFormat }

// readPage reads a page. Each part that the caller does not want is nil. tool gets the id and the encoded totals, and reports whether they are valid. What is behind a
// fault is not read, so callers keep nothing of a page with an error.
func readPage(data []byte, cursors map[string]uint64, tool func(id, totals []byte) bool, gap func(kind GapKind, name []byte, s Sightings), change func(ServedChange)) error {
	if len(data) == 0 {
		return nil
	}
	if data[0] > anewFormat {
		return errFormat
	}
	d := &pageDecoder{rest: data[1:], bad: data[0] < pageFormat}
	for range d.length(maxCursors) {
		if node, n := d.bytes(maxText), d.number(); cursors != nil {
			cursors[string(node)] = n
		}
	}
	for range d.length(maxTools + 1) {
		id, totals := d.bytes(maxText), d.bytes(maxTotals)
		if tool != nil && !d.bad && !tool(id, totals) {
			return errDamaged
		}
	}
	for range d.length(2*maxGaps + 2) {
		kind := Requirement
		if d.number() == 1 {
			kind = Request
		}
		name := d.bytes(maxText)
		if s := d.sightings(); gap != nil && !d.bad {
			gap(kind, name, s)
		}
	}
	for range d.length(maxChanges) {
		at, what, file, id := d.time(), d.bytes(maxText), d.bytes(maxText), d.bytes(maxText)
		if change != nil && !d.bad {
			change(ServedChange{at, string(what), string(file), string(id)})
		}
	}
	if d.bad || len(d.rest) > 0 {
		return errDamaged
	}
	return nil
}

// decode reads the totals of a tool, and reports whether they are valid.
func (t *Totals) decode(data []byte) (ok bool) {
	d := &pageDecoder{rest: data}
	t.reset()
	for i := range t.Outcomes {
		t.Outcomes[i] = d.number()
	}
	t.Kept = d.number()
	t.Cost = switchboard.Micros(d.number() & (1<<62 - 1)) //nolint:gosec // it is not negative
	t.LastOK = d.time()
	bucket := 0
	for range d.length(maxBucket + 1) {
		step := d.number()
		if step > uint64(maxBucket-bucket) { //nolint:gosec // it is not negative
			return false
		}
		bucket += int(step) //nolint:gosec // it is small
		t.Latency.addCount(bucket, d.number())
	}
	for range d.length(2*maxPatterns + 1) {
		kind := d.number()
		p := Pattern{Code: switchboard.Code(d.text()), Moved: kind%2 == 1}
		s := d.sightings()
		if d.bad || kind/2 >= numOutcomes {
			return false
		}
		p.Outcome = receipt.Outcomes[kind/2]
		if t.Patterns == nil {
			t.Patterns = map[Pattern]Sightings{}
		}
		t.Patterns[p] = s
	}
	return !d.bad && len(d.rest) == 0
}

// group returns the group of the store that has the pages of a part in a month. Each page is named after its day of the month.
func group(tenant switchboard.TenantID, part, month string) string {
	return strings.Join([]string{"memory", string(tenant), part, month}, "/")
}

func (k pageKey) key() store.Key {
	return store.Key{Group: group(k.tenant, k.part, k.day.month()), Name: fmt.Sprintf("%02d", k.day.Start().Day())}
}

func (k pageKey) compare(o pageKey) int {
	return cmp.Or(cmp.Compare(k.tenant, o.tenant), cmp.Compare(k.day, o.day), cmp.Compare(k.part, o.part))
}
