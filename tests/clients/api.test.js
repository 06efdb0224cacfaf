// The API through the openai package, in the versions that people use. Version 4 uses node-fetch 2, version 6 the
// runtime's own fetch. The newest needs a newer Node.js than Debian 12 has; there it is skipped with the reason.
import fs from 'node:fs';
import { describe, test } from 'node:test';
import { apiCases } from './api_cases.js';
import { missingNode } from './lib.js';

for (const name of ['openai-4', 'openai-6', 'openai']) {
  const { version, engines } = JSON.parse(fs.readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)));
  const missing = missingNode(engines?.node);
  if (missing) {
    test(`openai ${version}`, { skip: missing }, () => {});
    continue;
  }
  const { default: OpenAI } = await import(name);
  describe(`openai ${version}`, () => apiCases(OpenAI));
}
