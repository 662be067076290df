package api

import "testing"

func TestDoc(t *testing.T) {
	text, err := Document("x")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(len(text), string(text[:3000]))
}
