package config

import (
	"slices"
	"testing"
)

// No server is given the file that says which files a change exchanges: it could write any of them by it.
func TestTheJournalIsOneOfOurOwnFiles(t *testing.T) {
	if !slices.Contains(OwnNames, JournalFile) {
		t.Error(OwnNames)
	}
}
