// Package platform says what Switchboard cannot do on a system that it does on Linux, and where its tests have never been run.
//
// It decides nothing and asks the system nothing: the list follows from the files of other packages that are made for one system. Status and
// docs/platforms.md show it, and a test compares the page with it.
package platform

// A Lack is something that Switchboard does on Linux and not here.
type Lack struct {
	Feature string `json:"feature"`
	Effect  string `json:"effect"` // what follows for the user
}

// IsTested reports whether the tests of Switchboard are run on a system, which is named as in runtime.GOOS.
func IsTested(system string) bool { return system == "linux" }

// Lacks returns what is missing on a system.
func Lacks(system string) []Lack {
	peers := Lack{
		"the user at the other end of a connection",
		"while no key exists, every local user can call: make a key with \"switchboard key new\"; the process that several clients share knows them by its token alone",
	}
	environment := Lack{
		"a hidden environment",
		"programs of the same user, servers included, may read the environment of Switchboard with the secrets in it: keep secrets in files",
	}
	walls := Lack{
		"walls around the programs of servers",
		"servers run with all rights of your user, and a server with \"sandbox: strict\" is not started",
	}
	memory := Lack{
		"idle connections without goroutines, and program pages given back",
		"more memory: an idle connection keeps a goroutine and its buffers, and pages that only the start needed stay",
	}
	switch system {
	case "linux":
		return nil
	case "windows":
		return []Lack{peers, environment, walls, memory, {
			"signals",
			"only Ctrl+C, Ctrl+Break and closing the console end Switchboard in order; \"taskkill /F\" ends it at once, and no signal makes it read its files again",
		}, {
			"the request to end, for a server without our console",
			"if Switchboard has no console, a server that does not end when its stdin is closed is killed",
		}}
	}
	return []Lack{peers, environment, walls, memory, {
		"the end of strays",
		"a process that a server has moved to a session or process group of its own outlives the server",
	}, {
		"closed inherited files",
		"servers inherit files that were open in Switchboard when it started, unless their opener forbade it",
	}}
}
