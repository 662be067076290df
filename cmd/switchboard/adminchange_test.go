package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A change whose answer is lost is sent once more, with its key, and no other one is.
func TestAChangeIsSentAgainIfItsAnswerIsLost(t *testing.T) {
	const (
		cut   = "cut"   // the connection breaks instead of an answer
		half  = "half"  // and in the middle of one
		busy  = "busy"  // the first request is still carried out
		taken = "taken" // the key is used, for good
		full  = "full"  // no more keys
		well  = "well"
	)
	for _, tt := range []struct {
		answers []string // the last one is given to all further requests
		sent    int
		keyless int // how many of them have no key
		want    string
	}{
		{[]string{well}, 1, 0, "done"},
		{[]string{cut, well}, 2, 0, "done"},
		{[]string{half, well}, 2, 0, "done"},
		{[]string{cut, busy, busy, well}, 4, 0, "done"},
		{[]string{cut, taken}, 2, 0, "SB-CAP-006"},
		{[]string{taken}, 1, 0, "SB-CAP-006"},
		{[]string{cut}, 2, 0, "may have been made"},
		{[]string{full, well}, 2, 1, "done"},
		{[]string{full}, 2, 1, "SB-ROUT-003"},
	} {
		t.Run(strings.Join(tt.answers, " "), func(t *testing.T) {
			var mu sync.Mutex
			var keys []string
			admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				answer := tt.answers[min(len(keys), len(tt.answers)-1)]
				keys = append(keys, r.Header.Get("Idempotency-Key"))
				mu.Unlock()
				switch answer {
				case cut:
					panic(http.ErrAbortHandler)
				case half:
					w.Header().Set("Content-Length", "100")
					fmt.Fprint(w, `{"done":`)
				case busy, taken:
					if answer == busy {
						w.Header().Set("Retry-After", "0")
					}
					w.WriteHeader(http.StatusConflict)
					fmt.Fprint(w, `{"detail":"no","code":"SB-CAP-006"}`)
				case full:
					w.WriteHeader(http.StatusTooManyRequests)
					fmt.Fprint(w, `{"detail":"no","code":"SB-ROUT-003"}`)
				default:
					fmt.Fprint(w, `"done"`)
				}
			}))
			defer admin.Close()
			t.Setenv(keyVariable, "swo_x")
			answer, err := (&taskTarget{targetFlags: targetFlags{URL: admin.URL}}).changeAdmin(t.Context(), http.MethodPost, "/v1/x", map[string]string{"a": "b"})
			said := fmt.Sprint(err)
			if err == nil {
				said = string(answer.body)
			}
			mu.Lock()
			defer mu.Unlock()
			keyless := 0
			for _, key := range keys {
				if key == "" {
					keyless++
				} else if key != keys[0] || len(key) < 20 {
					t.Errorf("the keys are %q", keys)
				}
			}
			if len(keys) != tt.sent || keyless != tt.keyless || !strings.Contains(said, tt.want) {
				t.Errorf("%d requests, %d of them without a key: %s", len(keys), keyless, said)
			}
		})
	}
}

// If nobody took the request, nothing was done, and the error does not say otherwise.
func TestAChangeThatNobodyTakesWasNotMade(t *testing.T) {
	admin := httptest.NewServer(http.NotFoundHandler())
	admin.Close()
	t.Setenv(keyVariable, "swo_x")
	_, err := (&taskTarget{targetFlags: targetFlags{URL: admin.URL}}).changeAdmin(t.Context(), http.MethodPost, "/v1/x", nil)
	if err == nil || strings.Contains(err.Error(), "may have been made") || !strings.Contains(err.Error(), "nothing answers") {
		t.Errorf("%v", err)
	}
}
