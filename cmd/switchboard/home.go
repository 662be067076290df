package main

import (
	"os"
	"path/filepath"
)

// configName is the name of a configuration's file.
const configName = "switchboard.yaml"

// homeVariable names the environment variable with the folder of the user's own configuration.
const homeVariable = "SWITCHBOARD_HOME"

// homeConfig returns the file of the user's own configuration, which commands use where the folder has none. It is "" if the
// user has no home.
func homeConfig() string {
	dir := os.Getenv(homeVariable)
	if dir == "" {
		settings, err := os.UserConfigDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(settings, "switchboard")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	return filepath.Join(dir, configName)
}

// defaultConfig returns the configuration that a command uses without --config: the one in this folder if there is one, else
// the user's own, which may not exist yet.
func defaultConfig() string {
	if _, err := os.Lstat(configName); err == nil {
		return configName
	}
	if file := homeConfig(); file != "" {
		return file
	}
	return configName
}

// absentText names a configuration that does not exist: the places that were looked at.
func absentText(file string) string {
	if file == homeConfig() {
		return configName + " here, and no " + file
	}
	return file + " here"
}
