package passage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// known is a network with two names.
func known() innerNetwork {
	return innerNetwork{names: map[string]netip.Addr{"api.example.com": netip.MustParseAddr("127.64.0.1"), "db": netip.MustParseAddr("127.64.0.2")}}
}

// question returns a question for a name, such as libraries ask.
func question(name string, kind, class uint16, more ...byte) []byte {
	b := []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	if len(more) > 0 {
		b[11] = 1
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		b = append(append(b, byte(len(part))), part...)
	}
	b = append(b, 0)
	b = binary.BigEndian.AppendUint16(b, kind)
	return append(binary.BigEndian.AppendUint16(b, class), more...)
}

func TestDNSAnswersForPermittedNamesAlone(t *testing.T) {
	s := known()
	edns := []byte{0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0}
	long := strings.Repeat("a.", 126) + "a"
	for name, tt := range map[string]struct {
		message []byte
		code    int // -1 means no answer
		address string
		asked   string
	}{
		"a permitted name":                  {question("api.example.com", typeA, classIN), dnsDone, "127.64.0.1", ""},
		"in other letters":                  {question("Api.eXample.COM", typeA, classIN), dnsDone, "127.64.0.1", ""},
		"with EDNS":                         {question("api.example.com", typeA, classIN, edns...), dnsDone, "127.64.0.1", ""},
		"a name without a dot":              {question("db", typeA, classIN), dnsDone, "127.64.0.2", ""},
		"its address of IPv6":               {question("api.example.com", typeAAAA, classIN), dnsDone, "", ""},
		"its texts":                         {question("api.example.com", 16, classIN), dnsDone, "", ""},
		"all about it":                      {question("api.example.com", 255, classIN), dnsDone, "", ""},
		"another name":                      {question("example.com", typeA, classIN), dnsNoName, "", "example.com"},
		"a name below it":                   {question("secret.api.example.com", typeA, classIN), dnsNoName, "", "secret.api.example.com"},
		"with a domain of resolv.conf":      {question("api.example.com.corp.example", typeA, classIN), dnsNoName, "", "api.example.com.corp.example"},
		"texts of another name":             {question("x.example.com", 16, classIN), dnsNoName, "", "x.example.com"},
		"the name of an address":            {question("1.0.64.127.in-addr.arpa", 12, classIN), dnsNoName, "", "1.0.64.127.in-addr.arpa"},
		"the root":                          {append(question("db", typeA, classIN)[:12], 0, 0, 1, 0, 1), dnsNoName, "", "."},
		"the longest name":                  {question(long, typeA, classIN), dnsNoName, "", long},
		"a longer name":                     {question(long+".a", typeA, classIN), dnsUnread, "", ""},
		"a part of 64 bytes":                {question(strings.Repeat("a", 64)+".com", typeA, classIN), dnsUnread, "", ""},
		"a part with a dot in it":           {append(append(append([]byte{}, question("db", typeA, classIN)[:12]...), 15), "api.example.com\x00\x00\x01\x00\x01"...), dnsNoName, "", "api·example·com"},
		"another class":                     {question("api.example.com", typeA, 3), dnsRefused, "", ""},
		"another kind of message":           {withFlags(question("api.example.com", typeA, classIN), 0x2800), dnsNotDone, "", ""},
		"an answer":                         {withFlags(question("api.example.com", typeA, classIN), 0x8180), -1, "", ""},
		"two questions":                     {withCount(question("api.example.com", typeA, classIN), 2), dnsUnread, "", ""},
		"no question":                       {withCount(question("api.example.com", typeA, classIN), 0), dnsUnread, "", ""},
		"a name that points to itself":      {append(question("db", typeA, classIN)[:12], 0xc0, 12, 0, 1, 0, 1), dnsUnread, "", ""},
		"a name that is cut off":            {question("api.example.com", typeA, classIN)[:20], dnsUnread, "", ""},
		"a question without type and class": {question("db", typeA, classIN)[:17], dnsUnread, "", ""},
		"a head alone":                      {question("db", typeA, classIN)[:12], dnsUnread, "", ""},
		"less than a head":                  {question("db", typeA, classIN)[:11], -1, "", ""},
		"nothing":                           {nil, -1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			answer, asked := s.answer(tt.message)
			if tt.code < 0 {
				if answer != nil {
					t.Errorf("it is answered: %x", answer)
				}
				return
			}
			if len(answer) < dnsHeader || !bytes.Equal(answer[:2], tt.message[:2]) || answer[2]&0x80 == 0 || int(answer[3]&0xf) != tt.code || asked != tt.asked {
				t.Fatalf("the answer is %x, and it asks for %q", answer, asked)
			}
			if got := answerAddress(t, answer); got != tt.address {
				t.Errorf("the address is %q", got)
			}
		})
	}
}

func withFlags(b []byte, flags uint16) []byte { binary.BigEndian.PutUint16(b[2:], flags); return b }
func withCount(b []byte, n uint16) []byte     { binary.BigEndian.PutUint16(b[4:], n); return b }

// answerAddress returns the address at the end of an answer; "" if it has none.
func answerAddress(t *testing.T, answer []byte) string {
	t.Helper()
	switch answer[7] {
	case 0:
		return ""
	case 1:
		end := answer[len(answer)-16:]
		if want := []byte{0xc0, 12, 0, typeA, 0, classIN, 0, 0, 0, dnsTTL, 0, 4}; !bytes.Equal(end[:12], want) {
			t.Errorf("the record begins with %x", end[:12])
		}
		ip, _ := netip.AddrFromSlice(end[12:])
		return ip.String()
	}
	t.Errorf("%d answers", answer[7])
	return ""
}

// The resolver of Go reads our answers, over UDP and over TCP.
func TestAResolverReadsTheAnswers(t *testing.T) {
	for _, network := range []string{"udp", "tcp"} {
		t.Run(network, func(t *testing.T) {
			p := newPassage(known())
			t.Cleanup(p.Close)
			var at string
			if network == "udp" {
				l, err := net.ListenPacket("udp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				p.udpDNS, at = append(p.udpDNS, l), l.LocalAddr().String()
			} else {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				p.tcpDNS, at = append(p.tcpDNS, l), l.Addr().String()
			}
			p.Serve(newWords())
			r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, at)
			}}
			if got, err := r.LookupHost(t.Context(), "api.example.com."); err != nil || len(got) != 1 || got[0] != "127.64.0.1" {
				t.Errorf("%v, %v", got, err)
			}
			_, err := r.LookupHost(t.Context(), "other.example.com.")
			if missing, ok := errors.AsType[*net.DNSError](err); !ok || !missing.IsNotFound {
				t.Errorf("another name: %v", err)
			}
		})
	}
}

func FuzzAnswer(f *testing.F) {
	s := known()
	for _, name := range []string{"api.example.com", "db", "other"} {
		f.Add(question(name, typeA, classIN))
		f.Add(question(name, typeAAAA, classIN, 0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0))
	}
	f.Add(append(question("db", typeA, classIN)[:12], 0xc0, 12, 0, 1, 0, 1))
	f.Fuzz(func(t *testing.T, message []byte) {
		answer, asked := s.answer(message)
		switch {
		case answer == nil:
			return
		case len(answer) < dnsHeader || len(answer) > 512 || !bytes.Equal(answer[:2], message[:2]):
			t.Fatalf("the answer to %x is %x", message, answer)
		case answer[7] == 1 && (asked != "" || answer[3]&0xf != dnsDone || !strings.HasPrefix(answerAddress(t, answer), "127.64.0.")):
			t.Fatalf("the answer to %x is %x, and it asks for %q", message, answer, asked)
		}
	})
}
