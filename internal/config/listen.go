package config

import (
	"os"

	"github.com/goccy/go-yaml"
)

// ListenAddress returns the address that the file says to listen on; "" where it says
// none, or cannot be read. Nothing else in the file is looked at: a command that asks a
// running Switchboard needs no more.
func ListenAddress(file string) string {
	data, err := os.ReadFile(file)
	var v struct {
		Listen string `yaml:"listen"`
	}
	if err != nil || len(data) > MaxFileBytes || yaml.Unmarshal(data, &v) != nil {
		return ""
	}
	return v.Listen
}
