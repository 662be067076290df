// A glossary on the official SDK. It speaks the modern era (2026-07-28) and nothing
// else, over stdio. It is ours because no server on npm refuses the legacy era yet.
//
//   node modern-server.mjs           the modern era, over stdio
//   node modern-server.mjs both      both eras, over stdio
//   node modern-server.mjs both 80   both eras, over HTTP, on that port of this machine
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const terms = new Map([
  ['dmarc', 'A record that tells receivers what to do with mail that claims a domain and fails.'],
  ['homoglyph', 'A letter that looks like another one. Cyrillic \u043e, for one.'],
]);

function glossary() {
  const server = new McpServer({ name: 'glossary', version: '1.0.0' });
  server.registerTool(
    'lookup_term',
    {
      title: 'Look a term up',
      description: 'Says what a term means.',
      inputSchema: z.object({ term: z.string().describe('the term, in any case') }),
      outputSchema: z.object({ term: z.string(), meaning: z.string() }),
      annotations: { readOnlyHint: true },
    },
    async ({ term }) => {
      const meaning = terms.get(term.toLowerCase());
      if (meaning === undefined) {
        return { isError: true, content: [{ type: 'text', text: `no such term: ${term}` }] };
      }
      return { content: [{ type: 'text', text: meaning }], structuredContent: { term, meaning } };
    },
  );
  server.registerTool(
    'define_term',
    { description: 'Says from now on what a term means.', inputSchema: z.object({ term: z.string(), meaning: z.string() }) },
    async ({ term, meaning }) => {
      terms.set(term.toLowerCase(), meaning);
      return { content: [{ type: 'text', text: `${terms.size} terms` }] };
    },
  );
  return server;
}

const [eras, port] = process.argv.slice(2);
const options = eras === 'both' ? {} : { legacy: 'reject' };
if (port === undefined) {
  serveStdio(glossary, options);
} else {
  const handler = createMcpHandler(glossary, options);
  createServer(async (req, res) => {
    const hasBody = req.method !== 'GET' && req.method !== 'HEAD';
    const answer = await handler.fetch(new Request(`http://127.0.0.1:${port}${req.url}`, {
      method: req.method, headers: req.headers, body: hasBody ? Readable.toWeb(req) : undefined, duplex: 'half',
    }));
    res.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) Readable.fromWeb(answer.body).pipe(res);
    else res.end();
  }).listen(Number(port), '127.0.0.1');
}
