package switchboard

import (
	"slices"
	"strings"
)

// The reasons that RefusedVariable returns.
const (
	loadsCode   = "it makes the program load other code"
	runsFirst   = "it makes the program run something else first; put what the server needs into command"
	runsLater   = "it names a program that the server's program may run"
	fetchesFrom = "it decides from where packages are fetched, and so which code runs; configure the package manager outside of Switchboard"
	trustsMore  = "it makes the program trust whoever holds a certificate of another authority; give the machine the certificate"
)

// refusedVariables maps the upper-case names of variables that a server's program does not get to the reason.
var refusedVariables = func() map[string]string {
	all := map[string]string{
		"PATH":                "it decides which program runs; name the program in command by its full path",
		"PATHEXT":             "it decides which program runs; name the program in command by its full path",
		"NODE_EXTRA_CA_CERTS": trustsMore,
	}
	for why, names := range map[string]string{
		loadsCode: `CLASSPATH DOTNET_STARTUP_HOOKS GCONV_PATH GLIBC_TUNABLES NODE_PATH PERL5LIB PERLLIB PHPRC PHP_INI_SCAN_DIR PYTHONPATH RUBYLIB`,
		runsFirst: `BASHOPTS BASH_ENV BUN_OPTIONS DENO_V8_FLAGS ELECTRON_RUN_AS_NODE ENV IFS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS LUA_INIT NODE_OPTIONS NPM_CONFIG_NODE_OPTIONS
			NPM_CONFIG_SCRIPT_SHELL PERL5DB PERL5OPT PROMPT_COMMAND PS4 PYTHONBREAKPOINT PYTHONHOME PYTHONINSPECT PYTHONSTARTUP RUBYOPT SHELLOPTS _JAVA_OPTIONS`,
		runsLater: `EDITOR GIT_EDITOR GIT_EXEC_PATH GIT_PAGER GIT_SEQUENCE_EDITOR GIT_SSH GIT_SSH_COMMAND PAGER VISUAL`,
		fetchesFrom: `NPM_CONFIG_GLOBALCONFIG NPM_CONFIG_USERCONFIG PIP_CONFIG_FILE PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_INDEX_URL
			UV_CONFIG_FILE UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_FIND_LINKS UV_INDEX UV_INDEX_URL`,
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = why
		}
	}
	return all
}()

// registryPrefixes are the prefixes of variables of JavaScript package managers. Some package managers accept these in any
// case.
var registryPrefixes = []string{"NPM_CONFIG_", "PNPM_CONFIG_", "YARN_", "BUN_CONFIG_"}

// RefusedVariable returns the reason why a server's program does not get the variable, or "" if it does. It refuses
// variables that make a program load or run code that its command does not name, and variables that decide where such
// code is fetched from. The case of the name does not matter.
func RefusedVariable(name string) string {
	upper := strings.ToUpper(name)
	switch {
	case strings.HasPrefix(upper, "LD_"), strings.HasPrefix(upper, "DYLD_"):
		return loadsCode
	case strings.HasPrefix(upper, "LUA_INIT_"), strings.HasPrefix(upper, "BASH_FUNC_"):
		return runsFirst
	case strings.Contains(upper, "REGISTRY") && slices.ContainsFunc(registryPrefixes, func(start string) bool { return strings.HasPrefix(upper, start) }):
		return fetchesFrom
	}
	return refusedVariables[upper]
}
