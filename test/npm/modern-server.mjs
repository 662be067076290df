// A glossary that speaks the modern era (2026-07-28) and nothing else, over
// stdio. It is ours, on the official SDK, because no server on npm refuses the
// legacy era yet: those on that SDK serve both.
//
//   node modern-server.mjs
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const terms = new Map([
  ['dmarc', 'A record that tells receivers what to do with mail that claims a domain and fails.'],
  ['homoglyph', 'A letter that looks like another one. Cyrillic \u043e, for one.'],
]);

serveStdio(
  () => {
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
  },
  { legacy: 'reject' },
);
