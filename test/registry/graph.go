package registry

import (
	"fmt"
	"maps"
)

// GraphServer is the program of a package with a small knowledge graph. It searches it, and refuses what is wrong. extra is put before its answer to a search.
func GraphServer(name, mcpName, extra string) map[string]string {
	return map[string]string{"package.json": fmt.Sprintf(`{"mcpName":%q}`, mcpName), "index.js": `#!/usr/bin/env node
const say = (id, result) => console.log(JSON.stringify({ jsonrpc: '2.0', id, result }));
const facts = ['Ann wrote the parser', 'Bob runs the bench', 'the parser reads YAML'];
const tool = { name: 'search_nodes', description: 'Search for nodes in the knowledge graph by a query.', annotations: { readOnlyHint: true, openWorldHint: false },
  inputSchema: { type: 'object', properties: { query: { type: 'string', description: 'the words to search for', maxLength: 200 } }, required: ['query'], additionalProperties: false } };
const search = (args) => {
  ` + extra + `
  const names = Object.keys(args ?? {});
  if (typeof args?.query !== 'string' || args.query.length > 200 || names.length !== 1) return { isError: true, content: [{ type: 'text', text: 'query must be a text of at most 200 characters, and the only argument' }] };
  return { content: [{ type: 'text', text: 'found in ` + name + `: ' + facts.filter((f) => f.toLowerCase().includes(args.query.toLowerCase())).length }] };
};
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  switch (method) {
    case 'initialize':
      return say(id, { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: '` + name + `', version: '1' } });
    case 'tools/list':
      return say(id, { tools: [tool] });
    case 'tools/call':
      return say(id, search(params.arguments));
    case 'ping':
      return say(id, {});
  }
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, error: { code: -32601, message: 'no such method' } }));
});
`}
}

// ListNpm returns the entry of a server of npm, as registries of MCP servers list it. more are further members of its package.
func ListNpm(name, description, pkg, version string, more map[string]any) map[string]any {
	p := map[string]any{"registryType": "npm", "identifier": pkg, "version": version, "transport": map[string]any{"type": "stdio"}}
	maps.Copy(p, more)
	return map[string]any{"server": map[string]any{"name": name, "description": description, "version": version, "packages": []any{p}}}
}
