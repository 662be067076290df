package link

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestAHeaderThatIsNotValidInHTTPIsRefusedAtOnce(t *testing.T) {
	for name, value := range map[string]string{"X": "a\r\nEvil: 1", "X\r\nEvil": "1", "": "1", "X Y": "1", "Y": "a\x00"} {
		cfg := switchboard.Server{URL: "http://127.0.0.1:1"}
		cfg.Headers = map[string]switchboard.Secret{name: switchboard.NewSecret(value)}
		if _, err := newHTTPPort(&Link{}, &cfg, NewHTTPClients(cfg.URL)); err == nil {
			t.Errorf("%q: %q is accepted", name, value)
		}
	}
}
