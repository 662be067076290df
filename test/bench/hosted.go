package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// authorize serves an authorization server, which gives each client a token that lasts longer than a benchmark, and returns its issuer.
func authorize(ctx context.Context) (issuer string, stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	issuer = "http://" + l.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":%[2]q,"token_endpoint":%[3]q,"response_types_supported":["code"],`+
			`"grant_types_supported":["client_credentials"],"token_endpoint_auth_methods_supported":["client_secret_basic"],"code_challenge_methods_supported":["S256"]}`,
			issuer, issuer+"/authorize", issuer+"/token")
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":86400}`, benchToken)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	return issuer, func() { _ = server.Close() }, nil
}

// benchToken is as long as many access tokens.
var benchToken = fmt.Sprintf("%0800d", 7)
