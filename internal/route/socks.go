package route

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strconv"
)

// The numbers of SOCKS5: RFC 1928 and, for user and password, RFC 1929.
const (
	socksVersion  = 5
	socksNoAuth   = 0
	socksPassword = 2
	socksNoMethod = 0xff
	socksConnect  = 1
	socksIPv4     = 1
	socksName     = 3
	socksIPv6     = 4

	socksPasswordVersion = 1
)

// The errors of a SOCKS5 proxy.
var (
	errNotSOCKS      = errors.New("it does not speak SOCKS5")
	errSOCKSPassword = errors.New("it does not accept the user and the password")
	errSOCKSMethod   = errors.New("it wants a user and a password, or something else that is not supported")
	errSOCKSAddress  = errors.New("the address does not fit into SOCKS5: a name has 1 to 255 bytes")
)

// A socksError is the reply with which a SOCKS5 proxy refuses a connection.
type socksError byte

// socksReplies are the words of RFC 1928, section 6.
var socksReplies = map[socksError]string{
	1: "general failure", 2: "its rules do not allow the connection", 3: "the network cannot be reached", 4: "the host cannot be reached",
	5: "the connection was refused", 6: "the connection took too long", 7: "it does not support CONNECT", 8: "it does not support this kind of address",
}

func (s socksError) Error() string {
	text, known := socksReplies[s]
	if !known {
		text = "an unknown reason"
	}
	return fmt.Sprintf("it opened no connection: %s (reply %d)", text, byte(s))
}

// connectSOCKS asks a SOCKS5 proxy to connect c with the address. The proxy resolves the name.
func connectSOCKS(c io.ReadWriter, user *url.Userinfo, address string) error {
	target, err := socksAddress(address)
	if err != nil {
		return err
	}
	methods := []byte{socksNoAuth}
	if user != nil {
		methods = append(methods, socksPassword)
	}
	if _, err := c.Write(append([]byte{socksVersion, byte(len(methods))}, methods...)); err != nil {
		return err
	}
	// Each answer is read to its last byte and no further: what follows belongs to the connection.
	var b [4]byte
	if _, err := io.ReadFull(c, b[:2]); err != nil {
		return err
	}
	switch method := b[1]; {
	case b[0] != socksVersion:
		return errNotSOCKS
	case method == socksPassword && user != nil:
		if err := sendSOCKSPassword(c, user); err != nil {
			return err
		}
	case method == socksNoMethod, method == socksPassword:
		return errSOCKSMethod
	case method != socksNoAuth:
		return errNotSOCKS
	}
	if _, err := c.Write(append([]byte{socksVersion, socksConnect, 0}, target...)); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, b[:4]); err != nil {
		return err
	}
	switch {
	case b[0] != socksVersion:
		return errNotSOCKS
	case b[1] != 0:
		return socksError(b[1])
	}
	return skipSOCKSAddress(c, b[3])
}

// sendSOCKSPassword sends user and password.
func sendSOCKSPassword(c io.ReadWriter, user *url.Userinfo) error {
	name := user.Username()
	password, _ := user.Password()
	message := append([]byte{socksPasswordVersion, byte(len(name))}, name...)
	message = append(append(message, byte(len(password))), password...)
	if _, err := c.Write(message); err != nil {
		return err
	}
	var b [2]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return err
	}
	if b[1] != 0 {
		return errSOCKSPassword
	}
	return nil
}

// socksAddress returns HOST:PORT as a request has it.
func socksAddress(address string) ([]byte, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, err
	}
	var b []byte
	switch ip, err := netip.ParseAddr(host); {
	case err == nil && ip.Unmap().Is4():
		b = append([]byte{socksIPv4}, ip.Unmap().AsSlice()...)
	case err == nil:
		b = append([]byte{socksIPv6}, ip.AsSlice()...)
	case host == "" || len(host) > 255:
		return nil, errSOCKSAddress
	default:
		b = append([]byte{socksName, byte(len(host))}, host...)
	}
	return append(b, byte(port>>8), byte(port)), nil
}

// skipSOCKSAddress reads the address that ends a reply.
func skipSOCKSAddress(c io.Reader, kind byte) error {
	length := 0
	switch kind {
	case socksIPv4:
		length = net.IPv4len
	case socksIPv6:
		length = net.IPv6len
	case socksName:
		var n [1]byte
		if _, err := io.ReadFull(c, n[:]); err != nil {
			return err
		}
		length = int(n[0])
	default:
		return errNotSOCKS
	}
	_, err := io.ReadFull(c, make([]byte, length+2))
	return err
}
