package switchboard

import (
	"strings"
	"testing"
)

func TestAttack11ST05VariablesThatRunOrFetchOtherCodeAreRefusedInAnyCase(t *testing.T) {
	refused := `LD_PRELOAD DYLD_INSERT_LIBRARIES PATH NODE_OPTIONS PYTHONSTARTUP RUBYLIB
		LUA_INIT LUA_INIT_5_1 LUA_INIT_5_4 DOTNET_STARTUP_HOOKS PYTHONPATH NODE_PATH PERL5LIB CLASSPATH PHP_INI_SCAN_DIR NODE_EXTRA_CA_CERTS
		npm_config_registry npm_config_Registry NPM_CONFIG_REPLACE_REGISTRY_HOST npm_config_userconfig pnpm_config_registry YARN_REGISTRY YARN_NPM_REGISTRY_SERVER BUN_CONFIG_REGISTRY
		UV_INDEX_URL UV_INDEX UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_FIND_LINKS PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS EDITOR VISUAL PAGER`
	for name := range strings.FieldsSeq(refused) {
		for _, spelt := range []string{name, strings.ToLower(name), strings.ToUpper(name), strings.ToUpper(name[:1]) + strings.ToLower(name[1:])} {
			if RefusedVariable(spelt) == "" {
				t.Errorf("%s is accepted", spelt)
			}
		}
	}
	for name := range strings.FieldsSeq(`HOME TZ LD LUA_INITIAL LUA_PATH NODE_ENV npm_config_cache npm_config_offline REGISTRY DOCKER_REGISTRY
		UV_CACHE_DIR UV_INDEX_INTERNAL_PASSWORD PIP_NO_CACHE_DIR EDITOR_TOKEN MY_PAGER PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE`) {
		if why := RefusedVariable(name); why != "" {
			t.Errorf("%s is refused: %s", name, why)
		}
	}
}
