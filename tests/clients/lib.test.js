// Tests of the helper that decides which tests are skipped.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missingNode } from './lib.js';

test('a package that needs a newer Node.js is skipped, and the reason names the version', () => {
  assert.equal(missingNode('>=22.0.0', 'v18.20.4'), 'needs Node.js 22.0.0 or newer; this is v18.20.4');
  assert.equal(missingNode('>=20.19', 'v20.18.9'), 'needs Node.js 20.19.0 or newer; this is v20.18.9');
  for (const version of ['v22.0.0', 'v22.3.1', 'v100.0.0']) assert.equal(missingNode('>=22.0.0', version), null, version);
  assert.equal(missingNode('>=20.19', 'v22.0.0'), null);
  assert.equal(missingNode('>= 18', 'v18.0.0'), null);
  assert.equal(missingNode(undefined, 'v18.0.0'), null, 'the package has no requirement');
  assert.equal(missingNode('^22', 'v18.0.0'), null, 'an unknown form never skips');
});
