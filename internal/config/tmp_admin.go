package config

// DefaultAdminListen is tmp.
const DefaultAdminListen = "127.0.0.1:7422"

// Admin is tmp.
type Admin struct{ Listen, URL string }

// AdminListenAddress is tmp.
func AdminListenAddress(string) string { return "" }
