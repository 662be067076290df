package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/route"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// fetchManifest reads a manifest from a URL in the operator's configuration. The operator allows
// exactly this address, so it follows no redirect. It goes over the network of the server that the manifest describes, but
// shows no client certificate: the manifest may be at another host. Package config gives it a context with a deadline.
func fetchManifest(ctx context.Context, address string, n switchboard.Network) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity") // the size limit then applies to the bytes that were sent
	way := route.New(req.URL, switchboard.Network{Proxy: n.Proxy, CA: n.CA}, nil)
	c := http.Client{
		Transport:     &http.Transport{DialContext: way.DialContext, DialTLSContext: way.DialTLSContext, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := c.Do(req)
	if refused, ok := errors.AsType[*dial.RefusedError](err); ok {
		return nil, fmt.Errorf("%w; %s", refused, refused.Remedy)
	}
	if remedy := route.Remedy(err); remedy != "" {
		return nil, fmt.Errorf("%w; %s", err, remedy)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %s; redirects are not followed", resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, config.MaxManifestBytes+1))
	if err == nil && len(data) > config.MaxManifestBytes {
		err = fmt.Errorf("larger than %d bytes", config.MaxManifestBytes)
	}
	return data, err
}
