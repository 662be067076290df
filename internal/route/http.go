package route

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const (
	maxProxyHead = 32 << 10 // bytes of a proxy's answer to CONNECT
	maxInterim   = 8        // answers with status 1xx before it
)

// errEarly is the error of a proxy that has sent more than its answer. Nobody has sent a request yet, so what follows cannot be
// the server's answer to one.
var errEarly = errors.New("it sent more than its answer to CONNECT")

// A statusError is the status with which a proxy refuses CONNECT. The proxy's own words are not part of it: they may
// repeat the password.
type statusError int

func (s statusError) Error() string {
	return strings.TrimSpace("it answered CONNECT with HTTP status " + strconv.Itoa(int(s)) + " " + http.StatusText(int(s)))
}

// connectHTTP asks an HTTP proxy to connect c with the address: RFC 9110, section 9.3.6.
func connectHTTP(c io.ReadWriter, user *url.Userinfo, address string) error {
	head := "CONNECT " + address + " HTTP/1.1\r\nHost: " + address + "\r\n"
	if user != nil {
		password, _ := user.Password()
		head += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)) + "\r\n"
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: c, N: maxProxyHead}
	in := bufio.NewReader(limited)
	for range maxInterim + 1 {
		resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // what follows belongs to the connection; to close the body would read it
		switch {
		case err != nil && limited.N <= 0:
			return fmt.Errorf("its answer to CONNECT is larger than %d bytes", maxProxyHead)
		case err != nil:
			return fmt.Errorf("its answer to CONNECT is not HTTP: %w", err)
		case resp.StatusCode/100 == 1:
			continue
		case resp.StatusCode/100 != 2:
			return statusError(resp.StatusCode)
		case in.Buffered() > 0:
			return errEarly
		}
		return nil
	}
	return errors.New("it answers CONNECT with status 1xx only")
}
