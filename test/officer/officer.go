// Package officer asks the admin API of a Switchboard as this machine's operator, over the connection that commands use.
package officer

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/summit-switchboard/switchboard/internal/join"
	"github.com/summit-switchboard/switchboard/internal/serving"
)

// Row returns the row of the process that serves agents at the URL from one of the data folders.
func Row(url string, folders ...string) (serving.Neighbor, error) {
	for _, dir := range folders {
		rows, err := serving.Rows(dir)
		if err != nil {
			return serving.Neighbor{}, err
		}
		for _, r := range rows {
			if r.URL == url {
				return r, nil
			}
		}
	}
	return serving.Neighbor{}, fmt.Errorf("no process in %q serves at %s", folders, url)
}

// Client returns a client. Its requests reach the process of the row, with any host in their URL.
func Client(row serving.Neighbor) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return join.Dial(row.Address, row.Token, join.Joiner{Purpose: join.Operate}, nil)
		},
	}}
}

// Read returns the answer of the admin API at the path.
func Read(ctx context.Context, url, folder, path string) ([]byte, error) {
	row, err := Row(url, folder)
	if err != nil {
		return nil, err
	}
	return read(ctx, Client(row), "", row.Admin+path)
}

// ReadAs is Read with a person's key, at a URL.
func ReadAs(ctx context.Context, key, url string) ([]byte, error) {
	return read(ctx, http.DefaultClient, key, url)
}

func read(ctx context.Context, client *http.Client, key, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // the body is read
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", url, resp.Status, text)
	}
	return text, err
}
