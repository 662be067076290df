//go:build race

package programs

const builtWithRace = true
