//go:build race

package decide_test

const raceEnabled = true
