package served_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"

	"github.com/summit-switchboard/switchboard/test/provider"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// serviceKey returns a private key as PEM, and the JWK set of its public half.
func serviceKey(t *testing.T) (private string, public json.RawMessage) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	half, err := jwk.Import(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	set := jwk.NewSet()
	if err := errorsOf(half.Set(jwk.AlgorithmKey, jwa.ES256()), half.Set(jwk.KeyUsageKey, "sig"), set.AddKey(half)); err != nil {
		t.Fatal(err)
	}
	public, err = json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), public
}

func errorsOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// tokensSeen returns the different tokens that the server was sent.
func tokensSeen(h *rig.Hosted) map[string]bool {
	seen := map[string]bool{}
	for _, r := range h.Requests() {
		if r.Authorization != "" {
			seen[r.Authorization] = true
		}
	}
	return seen
}

func TestHostedClientSwitchboardSignsInAsAServiceWithoutAnyPerson(t *testing.T) {
	t.Parallel()
	private, public := serviceKey(t)
	const secret = "canary-secret-of-the-service-0123456789"
	for _, tt := range []struct{ name, row, file, text string }{
		{"by secret", `secret: "${file:secrets/tracker}"`, "secrets/tracker", secret + "\n"},
		{"by key", `key: "${file:secrets/tracker.pem}"`, "secrets/tracker.pem", private},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client := provider.Client{ID: "service", Secret: secret}
			if tt.file != "secrets/tracker" {
				client = provider.Client{ID: "service", Keys: public}
			}
			h := rig.ServeHosted(t, provider.Options{Clients: []provider.Client{client}, Lifetime: 4})
			dir := rig.LayOut(t, fmt.Sprintf("-- switchboard.yaml --\nservers:\n  tracker: {transport: http, url: %q, credential: {client: {id: service, %s, issuer: %q}}}\n", h.Resource, tt.row, h.Provider.Issuer))
			write := func(text string) {
				t.Helper()
				name := filepath.Join(dir, tt.file)
				if err := errorsOf(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			wrong, _ := serviceKey(t)
			if tt.name == "by secret" {
				wrong = "canary-another-secret-9876543210\n"
			}
			write(wrong)
			g := rig.ServeAtOnce(t, dir)
			rig.Eventually(t, "the list says what is wrong", func() string {
				s := stateOf(t, dir)
				return rig.ReasonUnless(!strings.Contains(s, "needs_connection") && strings.Contains(s, "gives Switchboard itself no token") && strings.Contains(s, "answered 401"), s)
			})
			write(tt.text)
			rig.Eventually(t, "the corrected file heals the server", func() string {
				s := stateOf(t, dir)
				return rig.ReasonUnless(strings.Contains(s, "healthy"), s)
			})
			s := g.Open(t, "/mcp", true)
			if m, _ := s.Ask(t, "tools/list", `{}`); !strings.Contains(string(m.Raw), "whoami") {
				t.Errorf("tools/list answers %s", m.Raw)
			}
			before := len(tokensSeen(h))
			rig.Eventually(t, "a call carries a renewed token", func() string {
				if got := askWho(t, s); got != "service" {
					t.Fatalf("whoami answers %q", got)
				}
				return rig.ReasonUnless(len(tokensSeen(h)) > before, "no new token yet")
			})
			for _, r := range h.Requests() {
				if r.Authorization != "" && r.Status == http.StatusUnauthorized {
					t.Errorf("the server refused a token: %s", r.Method)
				}
			}
			for _, canary := range []string{"canary-", "PRIVATE KEY"} {
				if strings.Contains(g.Logged(), canary) {
					t.Errorf("the log shows the secret:\n%s", g.Logged())
				}
			}
			for token := range tokensSeen(h) {
				if strings.Contains(g.Logged(), strings.TrimPrefix(token, "Bearer ")) {
					t.Error("the log shows a token")
				}
			}
		})
	}
}
