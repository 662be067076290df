// Counts tokens of o200k_base with js-tiktoken, which shares no code with Switchboard.
// Each line of standard input is a text as a JSON string. For each it prints a line with
// the number of its tokens.
import { createInterface } from 'node:readline';
import { Tiktoken } from 'js-tiktoken/lite';
import o200k_base from 'js-tiktoken/ranks/o200k_base';

const encoding = new Tiktoken(o200k_base);
for await (const line of createInterface({ input: process.stdin })) {
  console.log(encoding.encode(JSON.parse(line), [], []).length);
}
