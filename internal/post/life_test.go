package post

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/connlimit"
)

// eventually waits until is returns true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in 10 s: %s", what)
		}
	}
}

func (f *front) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

func TestARequestIsCancelledWhenItsClientDisconnects(t *testing.T) {
	for name, leave := range map[string]func(*client){
		"close":      func(c *client) { _ = c.Close() },
		"reset":      func(c *client) { _ = c.Conn.(*net.TCPConn).SetLinger(0); _ = c.Close() },
		"half-close": func(c *client) { _ = c.Conn.(*net.TCPConn).CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan struct{}), make(chan struct{})
			f := serve(t, nil, func(_ http.ResponseWriter, r *http.Request) {
				began <- struct{}{}
				<-r.Context().Done()
				close(ended)
			})
			one := f.dial(t)
			one.send(t, plainRequest("x"))
			<-began
			leave(one)
			select {
			case <-ended:
			case <-time.After(5 * time.Second):
				t.Fatal("not cancelled")
			}
			eventually(t, "the connection is forgotten", func() bool { return f.connections() == 0 })
		})
	}
}

func TestARequestThatComesWhileTheOneBeforeIsAnsweredIsAnsweredToo(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	f := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-release
		echo(w, r)
	})
	for _, second := range []string{plainRequest("second"), strings.Replace(plainRequest("second"), "/mcp", "/other", 1)} {
		for size := 1; size < len(second); size += 7 {
			one := f.dial(t)
			one.send(t, plainRequest("first"))
			<-began
			one.send(t, second[:size])
			eventually(t, "the watch has read a byte", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				for c := range f.conns {
					c.mu.Lock()
					early := c.watch.early
					c.mu.Unlock()
					if early {
						return true
					}
				}
				return false
			})
			release <- struct{}{}
			if _, body := one.receive(t); body != "first" {
				t.Fatalf("got %q", body)
			}
			one.send(t, second[size:])
			<-began
			release <- struct{}{}
			if _, body := one.receive(t); body != "second" {
				t.Fatalf("got %q", body)
			}
			_ = one.Close()
			eventually(t, "the connection is forgotten", func() bool { return f.connections() == 0 })
		}
	}
}

// certificate returns a TLS configuration for tests.
func certificate(t *testing.T) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, InsecureSkipVerify: true} //nolint:gosec // a test
}

func TestManyClientsGetTheirOwnResponsesInAnyPieces(t *testing.T) {
	for name, secure := range map[string]bool{"TCP": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			conf := certificate(t)
			if secure {
				l = tls.NewListener(l, conf)
			}
			goroutines := runtime.NumGoroutine()
			f := serve(t, connlimit.New(l), func(w http.ResponseWriter, r *http.Request) {
				connlimit.MarkKnown(r.Context())
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				switch r.Header.Get("How") {
				case "slow":
					select {
					case <-time.After(60 * time.Millisecond):
					case <-r.Context().Done():
						t.Error("cancelled")
					}
				case "stream":
					var writer sync.WaitGroup
					writer.Go(func() {
						for part := range bytes.SplitAfterSeq(body, []byte("/")) {
							_, _ = w.Write(part)
							_ = http.NewResponseController(w).Flush()
						}
					})
					writer.Wait()
					return
				case "long":
					for range 10 {
						_, _ = w.Write(bytes.Repeat(body, 1+len(body)/8))
					}
					return
				}
				_, _ = w.Write(body)
			})
			var clients sync.WaitGroup
			for n := range 8 {
				one := f.dial(t)
				if secure {
					one.Conn = tls.Client(one.Conn, conf)
					one.r.Reset(one.Conn)
				}
				clients.Go(func() {
					defer one.Close() //nolint:errcheck // of the test
					random := mathrand.New(mathrand.NewPCG(1, uint64(n)))
					for i := 0; i < 30; {
						var text strings.Builder
						var want []string
						for range 1 + random.IntN(3) {
							i++
							body := strings.Repeat(fmt.Sprintf("%d/%d;", n, i), random.IntN(200))
							how := []string{"fast", "fast", "fast", "slow", "stream", "long"}[random.IntN(6)]
							path := []string{"/mcp", "/mcp", "/mcp", "/mcp/x", "/other"}[random.IntN(5)]
							if random.IntN(30) == 0 {
								body = strings.Repeat(body, 40)
								how = "fast"
							}
							_, _ = fmt.Fprintf(&text, "POST %s HTTP/1.1\r\nHost: a\r\nHow: %s\r\nContent-Length: %d\r\n\r\n%s", path, how, len(body), body)
							if how == "long" {
								body = strings.Repeat(body, 10*(1+len(body)/8))
							}
							want = append(want, body)
						}
						pace := []time.Duration{0, 0, 0, time.Millisecond, 30 * time.Millisecond, 70 * time.Millisecond}[i%6]
						cuts := mathrand.New(mathrand.NewPCG(random.Uint64(), 1))
						go func() {
							for rest := text.String(); rest != ""; {
								size := min(len(rest), 1+cuts.IntN(len(rest)))
								if _, err := io.WriteString(one, rest[:size]); err != nil {
									return
								}
								rest = rest[size:]
								time.Sleep(pace)
							}
						}()
						for _, w := range want {
							r, err := http.ReadResponse(one.r, nil)
							if err != nil {
								t.Errorf("client %d, request %d: %v", n, i, err)
								return
							}
							got, err := io.ReadAll(r.Body)
							if err != nil || string(got) != w {
								t.Errorf("client %d, request %d: got %d bytes (%v), want %d", n, i, len(got), err, len(w))
								return
							}
						}
						if i%10 < 2 {
							time.Sleep(250 * time.Millisecond) // long enough to be kept
						}
					}
				})
			}
			clients.Wait()
			if f.kept.Load() == 0 {
				t.Error("no connection was kept")
			}
			eventually(t, "all connections have ended", func() bool { return f.connections() == 0 })
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if err := f.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			_ = f.others.Close()
			eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines+1 })
		})
	}
}

func TestAShutdownLosesNoResponseToAnExecutedRequest(t *testing.T) {
	for range 50 {
		var executed, answered atomic.Int64
		begun := make(chan struct{}, 1)
		f := serve(t, nil, func(w http.ResponseWriter, r *http.Request) {
			select {
			case begun <- struct{}{}:
			default:
			}
			executed.Add(1)
			echo(w, r)
		})
		var clients sync.WaitGroup
		for range 16 {
			one := f.dial(t)
			clients.Go(func() {
				defer one.Close() //nolint:errcheck // of the test
				for {
					if _, err := io.WriteString(one, plainRequest("hello")); err != nil {
						return
					}
					r, err := http.ReadResponse(one.r, nil)
					if err != nil {
						return
					}
					if b, err := io.ReadAll(r.Body); err != nil || string(b) != "hello" {
						t.Errorf("%q (%v)", b, err)
						return
					}
					answered.Add(1)
				}
			})
		}
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		if err := f.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		clients.Wait()
		if e, a := executed.Load(), answered.Load(); e != a {
			t.Fatalf("%d requests were executed, and %d answered", e, a)
		}
	}
}
