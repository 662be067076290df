package passage

import (
	"encoding/binary"
	"net/netip"
	"strings"
)

// The parts of a message of RFC 1035 that are used here.
const (
	dnsHeader   = 12
	dnsMaxName  = 255
	dnsMaxLabel = 63
	dnsTTL      = 60 // seconds

	dnsResponse  = 0x8000
	dnsOpcode    = 0x7800
	dnsAuthority = 0x0400
	dnsRecursive = 0x0100 // the question's, which an answer repeats
	dnsWillDo    = 0x0080

	typeA, typeAAAA = 1, 28
	classIN         = 1
)

// The codes of answers.
const (
	dnsDone     = 0
	dnsUnread   = 1 // the question cannot be read
	dnsNoName   = 3
	dnsNotDone  = 4 // this kind of question is not answered
	dnsRefused  = 5
	dnsHostRoot = "." // how the name of the root is shown
)

// answer answers a message of DNS: a permitted name has its address, and no other name exists. The program may be hostile, so the message may be
// anything. The answer is nil where the message is no question. asked is the name that does not exist, or "".
func (n *innerNetwork) answer(message []byte) (answer []byte, asked string) {
	if len(message) < dnsHeader {
		return nil, ""
	}
	flags := binary.BigEndian.Uint16(message[2:])
	reply := func(code uint16, question []byte, address netip.Addr) []byte {
		out := make([]byte, dnsHeader, dnsHeader+len(question)+28)
		copy(out, message[:2])
		binary.BigEndian.PutUint16(out[2:], dnsResponse|flags&(dnsOpcode|dnsRecursive)|dnsAuthority|dnsWillDo|code)
		if question == nil {
			return out
		}
		out[5] = 1
		out = append(out, question...)
		if !address.IsValid() {
			return out
		}
		out[7] = 1
		data := address.AsSlice()
		out = append(out, 0xc0, dnsHeader)                          // the name of the question
		out = append(out, question[len(question)-4:]...)            // its type and class
		out = binary.BigEndian.AppendUint32(out, dnsTTL)            //
		out = binary.BigEndian.AppendUint16(out, uint16(len(data))) //
		return append(out, data...)
	}
	switch {
	case flags&dnsResponse != 0:
		return nil, ""
	case flags&dnsOpcode != 0:
		return reply(dnsNotDone, nil, netip.Addr{}), ""
	}
	name, size := readQuestionName(message[dnsHeader:])
	end := dnsHeader + size + 4
	if binary.BigEndian.Uint16(message[4:]) != 1 || size == 0 || len(message) < end {
		return reply(dnsUnread, nil, netip.Addr{}), ""
	}
	question := message[dnsHeader:end]
	if binary.BigEndian.Uint16(question[size+2:]) != classIN {
		return reply(dnsRefused, question, netip.Addr{}), ""
	}
	address, ok := n.names[name]
	if !ok {
		return reply(dnsNoName, question, netip.Addr{}), name
	}
	if kind := binary.BigEndian.Uint16(question[size:]); kind != typeA || !address.Is4() {
		address = netip.Addr{} // it has no other address
	}
	return reply(dnsDone, question, address), ""
}

// readQuestionName reads the name of a question, in lower case, and returns how many bytes it has; 0 means that it cannot be read. A name with a dot
// in a part of it is shown with another character there, because no host has such a name.
func readQuestionName(b []byte) (name string, size int) {
	var parts []string
	for {
		if size >= len(b) {
			return "", 0
		}
		n := int(b[size])
		size++
		if n == 0 {
			break
		}
		// A question holds no pointers: there is nothing before it that they could point to.
		if n > dnsMaxLabel || size+n > len(b) || size+n >= dnsMaxName {
			return "", 0
		}
		parts = append(parts, strings.ReplaceAll(strings.ToLower(string(b[size:size+n])), ".", "·"))
		size += n
	}
	if len(parts) == 0 {
		return dnsHostRoot, size
	}
	return strings.Join(parts, "."), size
}
