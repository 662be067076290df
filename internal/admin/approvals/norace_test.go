//go:build !race

package approvals

const raceEnabled = false
