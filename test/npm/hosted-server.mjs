// A hosted server on the official SDK, with the SDK's own middleware for authorization, until stdin ends. Its tool whoami says
// which person the token names, and the id of the token.
//
//   node hosted-server.mjs 1   @modelcontextprotocol/sdk, the legacy era
//   node hosted-server.mjs 2   @modelcontextprotocol/server, both eras
//
// It prints its URL, and then reads the issuer of its tokens from stdin. From each further line on, it refuses the tokens that it has seen before. express and jose
// come with the SDK.
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { getOAuthProtectedResourceMetadataUrl, mcpAuthMetadataRouter } from '@modelcontextprotocol/sdk/server/auth/router.js';
import { InvalidTokenError } from '@modelcontextprotocol/sdk/server/auth/errors.js';
import { McpServer as LegacyServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { requireBearerAuth as requireBearerAuthLegacy } from '@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { createMcpHandler, McpServer, OAuthError, OAuthErrorCode, oauthMetadataResponse, requireBearerAuth } from '@modelcontextprotocol/server';
import express from 'express';
import { createRemoteJWKSet, jwtVerify } from 'jose';

const requiredScopes = ['files:read'];
const whoami = { description: 'Says who you are.', annotations: { readOnlyHint: true } };
const answer = (authInfo) => ({ content: [{ type: 'text', text: `${authInfo.extra.sub} ${authInfo.extra.jti}` }] });

const seen = new Set();
const refused = new Set();

// verifier returns what a token says; refuse makes the error for a bad one.
function verifier(issuer, resource, refuse) {
  const keys = createRemoteJWKSet(new URL(`${issuer}/jwks`));
  return {
    async verifyAccessToken(token) {
      seen.add(token);
      if (refused.has(token)) throw refuse('this token was withdrawn');
      const { payload } = await jwtVerify(token, keys, { issuer, audience: resource.href }).catch((e) => { throw refuse(e.message); });
      return { token, clientId: payload.client_id, scopes: payload.scope.split(' '), expiresAt: payload.exp, resource, extra: payload };
    },
  };
}

function legacyApp(resource, oauthMetadata) {
  const app = express();
  app.use(mcpAuthMetadataRouter({ oauthMetadata, resourceServerUrl: resource, scopesSupported: requiredScopes }));
  const gate = requireBearerAuthLegacy({
    verifier: verifier(oauthMetadata.issuer, resource, (why) => new InvalidTokenError(why)),
    requiredScopes, resourceMetadataUrl: getOAuthProtectedResourceMetadataUrl(resource), expectedResource: resource,
  });
  app.all('/mcp', gate, express.json(), async (req, res) => {
    const server = new LegacyServer({ name: 'hosted', version: '1' });
    server.registerTool('whoami', whoami, ({ authInfo }) => answer(authInfo));
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    res.on('close', () => server.close());
    await server.connect(transport);
    await transport.handleRequest(req, res, req.body);
  });
  return app;
}

function bothErasApp(resource, oauthMetadata) {
  const gate = requireBearerAuth({
    verifier: verifier(oauthMetadata.issuer, resource, (why) => new OAuthError(OAuthErrorCode.InvalidToken, why)),
    requiredScopes, resourceMetadataUrl: getOAuthProtectedResourceMetadataUrl(resource), expectedResource: resource,
  });
  const handler = createMcpHandler(() => {
    const server = new McpServer({ name: 'hosted', version: '2' });
    server.registerTool('whoami', whoami, ({ http }) => answer(http.authInfo));
    return server;
  });
  return async (req, res) => {
    const hasBody = req.method !== 'GET' && req.method !== 'HEAD';
    const request = new Request(new URL(req.url, resource), { method: req.method, headers: req.headers, body: hasBody ? Readable.toWeb(req) : undefined, duplex: 'half' });
    let response = oauthMetadataResponse(request, { oauthMetadata, resourceServerUrl: resource, scopesSupported: requiredScopes });
    if (!response) {
      const auth = await gate(request);
      response = auth instanceof Response ? auth : await handler.fetch(request, { authInfo: auth });
    }
    res.writeHead(response.status, Object.fromEntries(response.headers));
    if (response.body) Readable.fromWeb(response.body).pipe(res);
    else res.end();
  };
}

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const resource = new URL(`http://127.0.0.1:${server.address().port}/mcp`);
  console.log(resource.href);
  const lines = createInterface({ input: process.stdin });
  lines.once('line', async (issuer) => {
    const oauthMetadata = await (await fetch(`${issuer}/.well-known/openid-configuration`)).json();
    server.on('request', process.argv[2] === '1' ? legacyApp(resource, oauthMetadata) : bothErasApp(resource, oauthMetadata));
    console.log('ready');
    lines.on('line', () => {
      seen.forEach((token) => refused.add(token));
      console.log('refused');
    });
  });
  lines.on('close', () => process.exit(0));
});
